//! How far off predictions are: intervals by split conformal prediction, per operator and device.
//!
//! A fifth of the shapes is left aside, the rest is learned, and the distances on what was left aside are ranked; the one
//! at 90 % is the half-width, as a logarithm. For devices that were never seen, every device is left aside once.

use super::boosted::Growth;
use super::ours::{Ours, Purpose, fit};
use super::{Fitted, by_operator, quantile};
use crate::error::Result;
use crate::samples::Samples;
use crate::split;
use std::collections::BTreeMap;

/// The share of measurements that intervals should hold.
pub const COVERAGE: f64 = 0.9;
/// The name that spreads of devices never seen stand under.
pub const UNSEEN: &str = "";
/// Devices with fewer distances share those of all.
const FEWEST: usize = 30;

/// Finds the half-widths of a fitted predictor's intervals.
pub fn calibrate(
    fitted: &mut Ours,
    samples: &Samples,
    train: &[usize],
    growth: &Growth,
    seed: u64,
    purpose: Purpose,
) -> Result<()> {
    if purpose != Purpose::Transfer {
        let shapes: Vec<u64> = train.iter().map(|row| samples.rows[*row].shape).collect();
        if let Some(fold) = split::by_group(&shapes, 5, seed ^ 1).first() {
            let pick = |places: &[usize]| places.iter().map(|place| train[*place]).collect::<Vec<_>>();
            let (learned, aside) = (pick(&fold.train), pick(&fold.test));
            if !learned.is_empty() {
                let trial = fit(samples, &learned, growth, seed, Purpose::Known)?;
                record(fitted, samples, &distances(&trial, samples, &aside, false));
            }
        }
    }
    if purpose != Purpose::Known {
        let devices: Vec<u32> = train.iter().map(|row| samples.rows[*row].device).collect();
        let names: Vec<String> = samples.devices.iter().map(|(name, _)| name.clone()).collect();
        let mut all = BTreeMap::new();
        for fold in split::one_out(&devices, &names) {
            if fold.train.is_empty() {
                continue;
            }
            let pick = |places: &[usize]| places.iter().map(|place| train[*place]).collect::<Vec<_>>();
            let trial = fit(samples, &pick(&fold.train), growth, seed, Purpose::Transfer)?;
            for (group, mut found) in distances(&trial, samples, &pick(&fold.test), true) {
                all.entry(group).or_insert_with(Vec::new).append(&mut found);
            }
        }
        record(fitted, samples, &all);
    }
    Ok(())
}

/// Absolute distances as logarithms, by operator and device (or none where devices are not told apart).
fn distances(trial: &Ours, samples: &Samples, rows: &[usize], unseen: bool) -> BTreeMap<(u32, Option<u32>), Vec<f64>> {
    let mut found: BTreeMap<(u32, Option<u32>), Vec<f64>> = BTreeMap::new();
    for (operator, rows) in by_operator(samples, rows) {
        for (row, time) in rows.iter().zip(trial.predict(samples, &rows)) {
            let sample = &samples.rows[*row];
            let device = (!unseen).then_some(sample.device);
            found.entry((operator, device)).or_default().push((time / sample.time_ns).ln().abs());
        }
    }
    found
}

fn record(fitted: &mut Ours, samples: &Samples, found: &BTreeMap<(u32, Option<u32>), Vec<f64>>) {
    for ((operator, device), distances) in found {
        let name = &samples.operators[*operator as usize];
        let Some(entry) = fitted.operators.get_mut(name) else { continue };
        let mut own = distances.clone();
        if device.is_some() && own.len() < FEWEST {
            own = found.iter().filter(|((other, _), _)| other == operator).flat_map(|(_, all)| all.clone()).collect();
        }
        // The correction for a finite number of distances that makes the promise hold.
        let share = (COVERAGE * (own.len() + 1) as f64 / own.len() as f64).min(1.0);
        let spread = quantile(&mut own, share);
        let device = device.map_or(UNSEEN, |device| samples.devices[device as usize].0.as_str());
        entry.facts.spreads.insert(device.to_owned(), spread);
    }
}
