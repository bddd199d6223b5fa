//! Calibrates intervals by split conformal prediction, per operator and device.
//!
//! A fifth of the shapes is held out. The half-width is the 90 % quantile of the nonconformity scores (absolute
//! log errors) of the held-out rows. For intervals on unseen devices, every device is held out once.
//! `applicability` widens intervals for queries far from the training data.

use super::applicability::{ApplicabilityDomain, End, HeldOutError, split_off_ends};
use super::ensemble::{Ensemble, ParametersOf, Purpose, fit_ensemble};
use super::levels::LevelRatios;
use super::operator_statistics::OperatorStatistics;
use super::{COVERAGE, FitOptions, Fitted, UNSEEN, by_operator};
use crate::error::Result;
use crate::split;
use samples::Samples;
use samples::features::View;
use samples::statistics::quantile;
use std::collections::BTreeMap;

/// Minimum number of scores of a device; devices with fewer use the scores of all devices.
const FEWEST: usize = 30;

pub fn calibrate_intervals(
    fitted: &mut Ensemble,
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    options: &FitOptions,
) -> Result<()> {
    let FitOptions { seed, purpose, .. } = *options;
    if purpose != Purpose::Transfer {
        let (learned, held_out) = split::held_out_fifth(samples, train, seed ^ 1);
        if !learned.is_empty() {
            let trial = fit_ensemble(samples, &learned, parameters_of, seed, Purpose::Known)?;
            set_half_widths(fitted, samples, &nonconformity_scores(&trial, samples, &held_out, false, None), None);
            set_held_out_errors(fitted, &trial, samples, &held_out);
            let most = samples.views.last();
            for view in samples.views.iter().filter(|view| Some(*view) != most) {
                let asked = asked_in_view(samples, &held_out, *view);
                set_half_widths(
                    fitted,
                    samples,
                    &nonconformity_scores(&trial, samples, &asked, false, Some(*view)),
                    Some(*view),
                );
            }
            calibrate_widening(fitted, samples, train, parameters_of, seed)?;
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
            let mut trial = fit_ensemble(samples, &pick(&fold.train), parameters_of, seed, Purpose::Transfer)?;
            for (name, known) in &mut trial.operators {
                known.statistics.per_device_weight =
                    fitted.operators.get(name).map_or(0.0, |one| one.statistics.per_device_weight);
            }
            for (group, mut found) in nonconformity_scores(&trial, samples, &pick(&fold.test), true, None) {
                all.entry(group).or_insert_with(Vec::new).append(&mut found);
            }
        }
        set_half_widths(fitted, samples, &all, None);
    }
    Ok(())
}

/// Returns the rows that are like queries of a view. For `View::Sizes`, these are the rows of default schedules.
pub(crate) fn asked_in_view(samples: &Samples, rows: &[usize], view: View) -> Vec<usize> {
    let asks = |row: &&usize| match view {
        View::Sizes => samples.rows[**row].is_default,
        View::Knobs | View::Code => samples.row_view(**row) >= view,
    };
    rows.iter().filter(asks).copied().collect()
}

fn calibrate_widening(
    fitted: &mut Ensemble,
    samples: &Samples,
    train: &[usize],
    parameters_of: ParametersOf<'_>,
    seed: u64,
) -> Result<()> {
    for (operator, rows) in by_operator(samples, train) {
        let Some(entry) = fitted.operators.get_mut(&samples.operators[operator as usize]) else { continue };
        entry.statistics.applicability = ApplicabilityDomain::fit_domain(samples, &rows);
    }
    let mut all: BTreeMap<u32, Vec<HeldOutError>> = BTreeMap::new();
    for end in [End::Large, End::Small] {
        let (mut learned, mut held_out) = (Vec::new(), Vec::new());
        for rows in by_operator(samples, train).into_values() {
            let (inside, outside) = split_off_ends(samples, &rows, end);
            learned.extend(inside);
            held_out.extend(outside);
        }
        let trial = fit_ensemble(samples, &learned, parameters_of, seed, Purpose::Known)?;
        let learned = by_operator(samples, &learned);
        for (operator, rows) in by_operator(samples, &held_out) {
            let name = &samples.operators[operator as usize];
            let domain = learned.get(&operator).and_then(|rows| ApplicabilityDomain::fit_domain(samples, rows));
            let (Some(entry), Some(domain)) = (fitted.operators.get(name), domain) else { continue };
            let times = trial.predict(samples, &rows);
            let error = |(row, time): (&usize, f64)| {
                let half_width = entry.statistics.half_width(samples.device_name(*row), samples.row_view(*row))?;
                let off = (time / samples.rows[*row].time_ns).ln().abs() / half_width;
                off.is_finite().then(|| domain.held_out_error(samples.features.row(*row), off))
            };
            all.entry(operator).or_default().extend(rows.iter().zip(times).filter_map(error));
        }
    }
    for (operator, errors) in all {
        let entry = fitted.operators.get_mut(&samples.operators[operator as usize]);
        entry
            .and_then(|entry| entry.statistics.applicability.as_mut())
            .into_iter()
            .for_each(|domain| domain.fit_widening(&errors));
    }
    Ok(())
}

/// Returns the half-width with nominal coverage, with the finite-sample correction of conformal prediction.
pub fn half_width(scores: &mut [f64]) -> f64 {
    let share = COVERAGE * (scores.len() + 1) as f64 / scores.len() as f64;
    quantile(scores, share.min(1.0))
}

fn set_held_out_errors(fitted: &mut Ensemble, trial: &Ensemble, samples: &Samples, rows: &[usize]) {
    for (operator, rows) in by_operator(samples, rows) {
        let off = rows.iter().zip(trial.predict(samples, &rows));
        let off: f64 = off.map(|(row, time)| 100.0 * (time / samples.rows[*row].time_ns - 1.0).abs()).sum();
        if let Some(entry) = fitted.operators.get_mut(&samples.operators[operator as usize]) {
            entry.statistics.held_out_mape = Some(off / rows.len() as f64);
        }
    }
}

type Scores = BTreeMap<(u32, Option<u32>), Vec<f64>>;

/// Returns absolute log errors by operator and device. `view` limits the known schedule; `unseen` pools all devices.
fn nonconformity_scores(
    trial: &Ensemble,
    samples: &Samples,
    rows: &[usize],
    unseen: bool,
    view: Option<View>,
) -> Scores {
    let mut found = Scores::new();
    for (operator, rows) in by_operator(samples, rows) {
        for (row, time) in rows.iter().zip(trial.predict_in_view(samples, &rows, view)) {
            let sample = &samples.rows[*row];
            let device = (!unseen).then_some(sample.device);
            found.entry((operator, device)).or_default().push((time / sample.time_ns).ln().abs());
        }
    }
    found
}

fn set_half_widths(fitted: &mut Ensemble, samples: &Samples, found: &Scores, view: Option<View>) {
    let name_of = |device: Option<u32>| device.map_or(UNSEEN, |device| samples.devices[device as usize].0.as_str());
    // Operators with too few shapes to hold one out use the scores of all operators together.
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((_, device), scores) in found {
        all.entry(name_of(*device)).or_default().extend(scores);
    }
    for (device, mut scores) in all {
        let half_width = quantile(&mut scores, COVERAGE);
        let levels = LevelRatios::fit_ratios(&scores, half_width);
        for entry in fitted.operators.values_mut() {
            if device == UNSEEN || entry.statistics.has_seen(device) {
                half_widths_mut(&mut entry.statistics, view).insert(device.to_owned(), half_width);
                entry.statistics.levels.entry(device.to_owned()).or_insert(levels);
            }
        }
    }
    for ((operator, device), scores) in found {
        let name = &samples.operators[*operator as usize];
        let Some(entry) = fitted.operators.get_mut(name) else { continue };
        let mut own = scores.clone();
        if device.is_some() && own.len() < FEWEST {
            own = found.iter().filter(|((other, _), _)| other == operator).flat_map(|(_, all)| all.clone()).collect();
        }
        let (device, half_width) = (name_of(*device).to_owned(), half_width(&mut own));
        if view.is_none() {
            entry.statistics.levels.insert(device.clone(), LevelRatios::fit_ratios(&own, half_width));
        }
        half_widths_mut(&mut entry.statistics, view).insert(device, half_width);
    }
}

fn half_widths_mut(statistics: &mut OperatorStatistics, view: Option<View>) -> &mut BTreeMap<String, f64> {
    match view {
        Some(view) => statistics.half_widths_by_view.entry(view).or_default(),
        None => &mut statistics.half_widths,
    }
}
