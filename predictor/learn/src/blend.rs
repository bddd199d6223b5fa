//! The blend that answers for devices that were not learned from: transfer trees, and trees of single devices.
//!
//! Some operators behave alike on all devices once their bound is known; then what one device taught, averaged over
//! devices, says more about another one than what devices have in common by their figures. Of other operators the reverse
//! is true. So each known device is held out once, and a few weights are compared that the trees of single devices may have.

use super::Fitted;
use super::boosted::BoostingParameters;
use super::ensemble::{Ensemble, ParametersOf};
use super::{by_device, by_operator};
use crate::error::Result;
use samples::Samples;

/// Weights of the trees of single devices that are compared.
const WEIGHTS: &[f64] = &[0.0, 0.5, 1.0];
/// With fewer devices there is nothing to compare: what devices have in common is not known when one is held out.
const FEWEST_DEVICES: usize = 4;
/// Rows of each device that are looked at; more are thinned out evenly.
const MOST_ROWS: usize = 4000;
/// A larger weight must be so much better than the one before it, as a part of the error.
const WORTH: f64 = 0.02;

/// Gives trees of single devices the weight in every operator's answers that would have been best for the known devices.
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
    // What one device taught alone is the same whichever other one is held out.
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
    Ok(best(&errors))
}

/// The smallest weight that no larger one is clearly better than.
fn best(errors: &[f64]) -> f64 {
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
    use super::best;

    #[test]
    fn a_larger_weight_must_be_clearly_better() {
        assert_eq!(best(&[1.0, 0.99, 1.2]), 0.0);
        assert_eq!(best(&[1.0, 0.9, 0.89]), 0.5);
        assert_eq!(best(&[1.0, 0.9, 0.8]), 1.0);
        assert_eq!(best(&[1.0, 1.1, 0.8]), 1.0);
    }
}
