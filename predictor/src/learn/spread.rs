//! How far off predictions are: intervals by split conformal prediction, per operator and device.
//!
//! A fifth of the shapes is left aside, the rest is learned, and the distances on what was left aside are ranked; the one
//! at 90 % is the half-width, as a logarithm. For devices that were never seen, every device is left aside once. What is
//! unlike all that was learned gets wider ones (`unlike`), by what is found in regions that are left aside whole.

use super::ensemble::{Ensemble, GrowthOf, Purpose, fit};
use super::facts::Facts;
use super::unlike::{End, Seen, Unlike, without_ends};
use super::{FitOptions, Fitted, by_operator};
use crate::error::Result;
use crate::features::View;
use crate::samples::Samples;
use crate::split;
use crate::statistics::quantile;
use std::collections::BTreeMap;

/// The share of measurements that intervals should hold.
pub const COVERAGE: f64 = 0.9;
/// The name that spreads of devices never seen stand under.
pub const UNSEEN: &str = "";
/// Devices with fewer distances share those of all.
const FEWEST: usize = 30;

/// Finds the half-widths of a fitted predictor's intervals.
pub fn calibrate(
    fitted: &mut Ensemble,
    samples: &Samples,
    train: &[usize],
    growth_of: GrowthOf<'_>,
    options: &FitOptions,
) -> Result<()> {
    let FitOptions { seed, purpose, .. } = *options;
    if purpose != Purpose::Transfer {
        let (learned, aside) = split::aside(samples, train, seed ^ 1);
        if !learned.is_empty() {
            let trial = fit(samples, &learned, growth_of, seed, Purpose::Known)?;
            record(fitted, samples, &distances(&trial, samples, &aside, false, None), None);
            record_errors(fitted, &trial, samples, &aside);
            let most = samples.views.last();
            for view in samples.views.iter().filter(|view| Some(*view) != most) {
                let asks = |row: &&usize| match view {
                    View::Sizes => samples.rows[**row].is_default,
                    View::Knobs | View::Code => samples.view(**row) >= *view,
                };
                let asked: Vec<usize> = aside.iter().filter(asks).copied().collect();
                record(fitted, samples, &distances(&trial, samples, &asked, false, Some(*view)), Some(*view));
            }
            widen_for_the_unlike(fitted, samples, train, growth_of, seed)?;
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
            let mut trial = fit(samples, &pick(&fold.train), growth_of, seed, Purpose::Transfer)?;
            for (name, known) in &mut trial.operators {
                known.facts.per_device_weight =
                    fitted.operators.get(name).map_or(0.0, |one| one.facts.per_device_weight);
            }
            for (group, mut found) in distances(&trial, samples, &pick(&fold.test), true, None) {
                all.entry(group).or_insert_with(Vec::new).append(&mut found);
            }
        }
        record(fitted, samples, &all, None);
    }
    Ok(())
}

/// Finds how intervals widen away from what was learned: each operator's regions are left aside, those at one end of all sizes
/// at once.
fn widen_for_the_unlike(
    fitted: &mut Ensemble,
    samples: &Samples,
    train: &[usize],
    growth_of: GrowthOf<'_>,
    seed: u64,
) -> Result<()> {
    for (operator, rows) in by_operator(samples, train) {
        let Some(entry) = fitted.operators.get_mut(&samples.operators[operator as usize]) else { continue };
        entry.facts.unlike = Unlike::learn(samples, &rows);
    }
    let mut all: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for end in [End::Large, End::Small] {
        let (mut learned, mut aside) = (Vec::new(), Vec::new());
        for rows in by_operator(samples, train).into_values() {
            let (inside, outside) = without_ends(samples, &rows, end);
            learned.extend(inside);
            aside.extend(outside);
        }
        let trial = fit(samples, &learned, growth_of, seed, Purpose::Known)?;
        let learned = by_operator(samples, &learned);
        for (operator, rows) in by_operator(samples, &aside) {
            let name = &samples.operators[operator as usize];
            let known = learned.get(&operator).and_then(|rows| Unlike::learn(samples, rows));
            let (Some(entry), Some(known)) = (fitted.operators.get(name), known) else { continue };
            let times = trial.predict(samples, &rows);
            let seen = |(row, time): (&usize, f64)| {
                let half_width = entry.facts.spread(samples.device_name(*row), samples.view(*row))?;
                let off = (time / samples.rows[*row].time_ns).ln().abs() / half_width;
                off.is_finite().then(|| known.seen(samples.features.row(*row), off))
            };
            all.entry(operator).or_default().extend(rows.iter().zip(times).filter_map(seen));
        }
    }
    for (operator, seen) in all {
        let entry = fitted.operators.get_mut(&samples.operators[operator as usize]);
        entry.and_then(|entry| entry.facts.unlike.as_mut()).into_iter().for_each(|unlike| unlike.widen(&seen));
    }
    Ok(())
}

/// The half-width that holds what it should, from distances of answers that had not seen what they were asked for; with the
/// correction for a finite number of them that makes the promise hold.
pub fn half_width(distances: &mut [f64]) -> f64 {
    let share = COVERAGE * (distances.len() + 1) as f64 / distances.len() as f64;
    quantile(distances, share.min(1.0))
}

/// What the error was on samples that were left aside.
fn record_errors(fitted: &mut Ensemble, trial: &Ensemble, samples: &Samples, rows: &[usize]) {
    for (operator, rows) in by_operator(samples, rows) {
        let off = rows.iter().zip(trial.predict(samples, &rows));
        let off: f64 = off.map(|(row, time)| 100.0 * (time / samples.rows[*row].time_ns - 1.0).abs()).sum();
        if let Some(entry) = fitted.operators.get_mut(&samples.operators[operator as usize]) {
            entry.facts.mape_aside = Some(off / rows.len() as f64);
        }
    }
}

/// By operator and device; by none where devices are not told apart.
type Distances = BTreeMap<(u32, Option<u32>), Vec<f64>>;

/// Absolute distances as logarithms; as if no more were known of schedules than the view says.
fn distances(trial: &Ensemble, samples: &Samples, rows: &[usize], unseen: bool, view: Option<View>) -> Distances {
    let mut found = Distances::new();
    for (operator, rows) in by_operator(samples, rows) {
        for (row, time) in rows.iter().zip(trial.predict_in_view(samples, &rows, view)) {
            let sample = &samples.rows[*row];
            let device = (!unseen).then_some(sample.device);
            found.entry((operator, device)).or_default().push((time / sample.time_ns).ln().abs());
        }
    }
    found
}

fn record(fitted: &mut Ensemble, samples: &Samples, found: &Distances, view: Option<View>) {
    let name_of = |device: Option<u32>| device.map_or(UNSEEN, |device| samples.devices[device as usize].0.as_str());
    // Operators of too few shapes to leave one aside are as far off as all operators together.
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((_, device), distances) in found {
        all.entry(name_of(*device)).or_default().extend(distances);
    }
    for (device, mut distances) in all {
        let spread = quantile(&mut distances, COVERAGE);
        for entry in fitted.operators.values_mut() {
            if device == UNSEEN || entry.facts.has_seen(device) {
                spreads(&mut entry.facts, view).insert(device.to_owned(), spread);
            }
        }
    }
    for ((operator, device), distances) in found {
        let name = &samples.operators[*operator as usize];
        let Some(entry) = fitted.operators.get_mut(name) else { continue };
        let mut own = distances.clone();
        if device.is_some() && own.len() < FEWEST {
            own = found.iter().filter(|((other, _), _)| other == operator).flat_map(|(_, all)| all.clone()).collect();
        }
        spreads(&mut entry.facts, view).insert(name_of(*device).to_owned(), half_width(&mut own));
    }
}

fn spreads(facts: &mut Facts, view: Option<View>) -> &mut BTreeMap<String, f64> {
    match view {
        Some(view) => facts.spreads_before.entry(view).or_default(),
        None => &mut facts.spreads,
    }
}
