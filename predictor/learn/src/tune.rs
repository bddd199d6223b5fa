//! A small random search for the hyperparameters of each operator, within the training rows.
//!
//! A fifth of the training shapes is held out for the search, so the test rows of an evaluation are never used.
//! Operators with many rows use a subset of their shapes.

use super::boosted::BoostingParameters;
use super::ensemble::{self, Purpose};
use super::{Fitted, by_operator};
use crate::error::Result;
use crate::split;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use samples::Samples;
use std::collections::BTreeMap;

const DRAWN: usize = 5;
const ROWS: usize = 8000;

pub fn search_parameters(
    samples: &Samples,
    train: &[usize],
    seed: u64,
    purpose: Purpose,
) -> Result<BTreeMap<String, BoostingParameters>> {
    let mut chosen = BTreeMap::new();
    for (operator, rows) in by_operator(samples, train) {
        let parameters = of_operator(samples, &rows, seed, purpose)?;
        chosen.insert(samples.operators[operator as usize].clone(), parameters);
    }
    Ok(chosen)
}

fn of_operator(samples: &Samples, rows: &[usize], seed: u64, purpose: Purpose) -> Result<BoostingParameters> {
    let (learned, held_out) = split_rows(samples, rows, seed, purpose);
    if learned.is_empty() || held_out.is_empty() {
        return Ok(BoostingParameters::default_parameters());
    }
    let mut best: Option<(f64, BoostingParameters)> = None;
    for parameters in draw_settings(seed) {
        let trial = ensemble::fit_ensemble(samples, &learned, &|_| parameters.clone(), seed, purpose)?;
        let errors = held_out.iter().zip(trial.predict(samples, &held_out));
        let error: f64 = errors.map(|(row, time)| (time / samples.rows[*row].time_ns).ln().abs()).sum();
        if best.as_ref().is_none_or(|(least, _)| error < *least) {
            best = Some((error, parameters));
        }
    }
    Ok(best.map_or_else(BoostingParameters::default_parameters, |(_, parameters)| parameters))
}

fn split_rows(samples: &Samples, rows: &[usize], seed: u64, purpose: Purpose) -> (Vec<usize>, Vec<usize>) {
    let step = rows.len().div_ceil(ROWS).max(1) as u64;
    let some: Vec<usize> = rows.iter().copied().filter(|row| samples.rows[*row].shape.is_multiple_of(step)).collect();
    if purpose != Purpose::Transfer {
        return split::held_out_fifth(samples, &some, seed ^ 2);
    }
    let mut devices: Vec<u32> = some.iter().map(|row| samples.rows[*row].device).collect();
    devices.sort_unstable();
    devices.dedup();
    let held = devices.choose(&mut ChaCha8Rng::seed_from_u64(seed)).copied();
    some.into_iter().partition(|row| Some(samples.rows[*row].device) != held)
}

fn draw_settings(seed: u64) -> Vec<BoostingParameters> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ 3);
    let mut settings = vec![BoostingParameters::default_parameters()];
    for _ in 0..DRAWN {
        let learning_rate = [0.03, 0.05, 0.08].choose(&mut random).copied().unwrap_or(0.05);
        settings.push(BoostingParameters {
            learning_rate,
            // Lower learning rates need more trees.
            rounds: (30.0 / learning_rate) as usize,
            max_depth: random.random_range(5..=10),
            min_child_weight: [1.0, 3.0, 10.0].choose(&mut random).copied().unwrap_or(3.0),
            subsample: [0.6, 0.8, 1.0].choose(&mut random).copied().unwrap_or(0.8),
            colsample: [0.25, 0.5, 0.8].choose(&mut random).copied().unwrap_or(0.5),
            lambda: [0.3, 1.0, 5.0].choose(&mut random).copied().unwrap_or(1.0),
            ..BoostingParameters::default_parameters()
        });
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_settings_the_usual_one_first() {
        assert_eq!(draw_settings(4), draw_settings(4));
        assert_ne!(draw_settings(4)[1..], draw_settings(5)[1..]);
        assert_eq!(draw_settings(4)[0], BoostingParameters::default_parameters());
    }
}
