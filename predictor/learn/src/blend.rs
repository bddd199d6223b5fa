//! Predicts for devices outside of the training data by a weighted mean of transfer trees and per-device trees.
//!
//! For some operators, the ratio of time to bound is similar on all devices; then the average of per-device trees is
//! better. For other operators the transfer trees, which use device features, are better. The weight of each operator
//! is chosen by holding out each known device once.

use super::Fitted;
use super::boosted::BoostingParameters;
use super::ensemble::{Ensemble, ParametersOf};
use super::{by_device, by_operator};
use crate::error::Result;
use samples::Samples;

const WEIGHTS: &[f64] = &[0.0, 0.5, 1.0];
/// Minimum number of devices. With fewer, holding one out leaves too few for transfer trees.
const FEWEST_DEVICES: usize = 4;
/// Maximum number of rows per device; larger sets are subsampled evenly.
const MOST_ROWS: usize = 4000;
/// Minimum relative error reduction that justifies the next larger weight.
const WORTH: f64 = 0.02;

pub(super) fn fit_blend(
    fitted: &mut Ensemble,
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    seed: u64,
) -> Result<()> {
    for (operator, rows) in by_operator(samples, train) {
        let name = &samples.operators[operator as usize];
        let weight = best_per_device_weight(samples, operator, &rows, &parameters_of(name), seed)?;
        fitted.operators.entry(name.clone()).and_modify(|entry| entry.statistics.per_device_weight = weight);
    }
    Ok(())
}

fn best_per_device_weight(
    samples: &Samples,
    operator: u32,
    rows: &[usize],
    parameters: &BoostingParameters,
    seed: u64,
) -> Result<f64> {
    let thinned = |rows: Vec<usize>| rows.iter().copied().step_by(rows.len().div_ceil(MOST_ROWS)).collect::<Vec<_>>();
    let devices: Vec<Vec<usize>> = by_device(samples, rows).into_values().map(thinned).collect();
    if devices.len() < FEWEST_DEVICES {
        return Ok(0.0);
    }
    let name = &samples.operators[operator as usize];
    let parameters = BoostingParameters { rounds: parameters.rounds.div_ceil(3), ..parameters.clone() };
    // Per-device trees do not depend on which other device is held out, so they are fitted once.
    let mut whole = Ensemble::default();
    let all = devices.concat();
    whole.fit_statistics(samples, operator, &all);
    whole.fit_per_device(samples, name, &all, &parameters, seed)?;
    let mut errors = vec![0.0; WEIGHTS.len()];
    for (held_out, asked) in devices.iter().enumerate() {
        let others = devices.iter().enumerate().filter(|(place, _)| *place != held_out);
        let learned: Vec<usize> = others.flat_map(|(_, rows)| rows).copied().collect();
        let mut trial = Ensemble::default();
        let training_set = trial.fit_statistics(samples, operator, &learned);
        trial.fit_transfer(name, &training_set, &parameters, seed)?;
        let mut per_device = whole.operators[name].per_device.clone();
        per_device.remove(held_out);
        trial.operators.entry(name.clone()).and_modify(|entry| entry.per_device = per_device);
        for (error, weight) in errors.iter_mut().zip(WEIGHTS) {
            trial.operators.entry(name.clone()).and_modify(|entry| entry.statistics.per_device_weight = *weight);
            let times = trial.predict(samples, asked);
            let off = |(row, time): (&usize, f64)| (time / samples.rows[*row].time_ns).ln().abs();
            *error += asked.iter().zip(times).map(off).sum::<f64>() / asked.len() as f64;
        }
    }
    Ok(pick_weight(&errors))
}

fn pick_weight(errors: &[f64]) -> f64 {
    let mut best = 0;
    for place in 1..errors.len() {
        if errors[place] < (1.0 - WORTH) * errors[best] {
            best = place;
        }
    }
    WEIGHTS[best]
}

#[cfg(test)]
mod tests {
    use super::pick_weight;

    #[test]
    fn a_larger_weight_must_be_clearly_better() {
        assert_eq!(pick_weight(&[1.0, 0.99, 1.2]), 0.0);
        assert_eq!(pick_weight(&[1.0, 0.9, 0.89]), 0.5);
        assert_eq!(pick_weight(&[1.0, 0.9, 0.8]), 1.0);
        assert_eq!(pick_weight(&[1.0, 1.1, 0.8]), 1.0);
    }
}
