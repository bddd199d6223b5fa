//! How much trees of each device alone count in answers for devices that were not learned from.
//!
//! Some operators behave alike on all devices once their bound is known; then what one device taught, averaged over
//! devices, says more about another one than what devices have in common by their figures. Of other operators the reverse
//! is true. So each known device is held out once, and the shares are compared that the two kinds of trees may have.

use super::Fitted;
use super::boosted::Growth;
use super::ours::{GrowthOf, Ours};
use super::{by_device, by_operator};
use crate::error::Result;
use crate::samples::Samples;

/// Shares of trees of each device alone that are compared.
const SHARES: &[f64] = &[0.0, 0.5, 1.0];
/// With fewer devices there is nothing to compare: what devices have in common is not known when one is held out.
const FEWEST_DEVICES: usize = 4;
/// Rows of each device that are looked at; more are thinned out evenly.
const MOST_ROWS: usize = 4000;
/// A larger share must be so much better than the one before it, as a part of the error.
const WORTH: f64 = 0.02;

/// Gives trees of each device alone the share in every operator's answers that would have been best for the known devices.
pub(super) fn weigh(
    fitted: &mut Ours,
    samples: &Samples,
    train: &[usize],
    growth_of: GrowthOf<'_>,
    seed: u64,
) -> Result<()> {
    for (operator, rows) in by_operator(samples, train) {
        let name = &samples.operators[operator as usize];
        let share = share_of_alone(samples, operator, &rows, &growth_of(name), seed)?;
        fitted.operators.entry(name.clone()).and_modify(|entry| entry.facts.share_of_alone = share);
    }
    Ok(())
}

fn share_of_alone(samples: &Samples, operator: u32, rows: &[usize], growth: &Growth, seed: u64) -> Result<f64> {
    let thinned = |rows: Vec<usize>| rows.iter().copied().step_by(rows.len().div_ceil(MOST_ROWS)).collect::<Vec<_>>();
    let devices: Vec<Vec<usize>> = by_device(samples, rows).into_values().map(thinned).collect();
    if devices.len() < FEWEST_DEVICES {
        return Ok(0.0);
    }
    let name = &samples.operators[operator as usize];
    let growth = Growth { rounds: growth.rounds.div_ceil(3), ..growth.clone() };
    // What one device taught alone is the same whichever other one is held out.
    let mut whole = Ours::default();
    let all = devices.concat();
    whole.begin(samples, operator, &all);
    whole.learn_alone(samples, name, &all, &growth, seed)?;
    let mut errors = vec![0.0; SHARES.len()];
    for (held_out, asked) in devices.iter().enumerate() {
        let others = devices.iter().enumerate().filter(|(place, _)| *place != held_out);
        let learned: Vec<usize> = others.flat_map(|(_, rows)| rows).copied().collect();
        let mut trial = Ours::default();
        let seen = trial.begin(samples, operator, &learned);
        trial.learn_common(name, &seen, &growth, seed)?;
        let mut alone = whole.operators[name].alone.clone();
        alone.remove(held_out);
        trial.operators.entry(name.clone()).and_modify(|entry| entry.alone = alone);
        for (error, share) in errors.iter_mut().zip(SHARES) {
            trial.operators.entry(name.clone()).and_modify(|entry| entry.facts.share_of_alone = *share);
            let times = trial.predict(samples, asked);
            let off = |(row, time): (&usize, f64)| (time / samples.rows[*row].time_ns).ln().abs();
            *error += asked.iter().zip(times).map(off).sum::<f64>() / asked.len() as f64;
        }
    }
    Ok(best(&errors))
}

/// The smallest share that no larger one is clearly better than.
fn best(errors: &[f64]) -> f64 {
    let mut best = 0;
    for place in 1..errors.len() {
        if errors[place] < (1.0 - WORTH) * errors[best] {
            best = place;
        }
    }
    SHARES[best]
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn a_larger_share_must_be_clearly_better() {
        assert_eq!(best(&[1.0, 0.99, 1.2]), 0.0);
        assert_eq!(best(&[1.0, 0.9, 0.89]), 0.5);
        assert_eq!(best(&[1.0, 0.9, 0.8]), 1.0);
        assert_eq!(best(&[1.0, 1.1, 0.8]), 1.0);
    }
}
