//! Adapts a predictor to a new device with a few measurements, and suggests which shapes to measure.

use crate::calibration::half_width;
use crate::ensemble::Ensemble;
use crate::error::{Error, Result};
use crate::predictor::Predictor;
use crate::split::{Fold, by_group};
use crate::{Fitted, by_device, by_operator};
use samples::Samples;
use samples::features::{FEATURES, Origin};
use samples::statistics::median;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of measured shapes for calibrating a device's intervals.
const FEWEST: usize = 20;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceChange {
    pub operator: String,
    pub device: String,
    pub rows: usize,
    /// Mean absolute error in percent before adaptation.
    pub before: f64,
    /// Mean absolute error in percent after adaptation, two-fold cross-validated over shapes; None for a single shape.
    pub after: Option<f64>,
    /// Whether the correction increases the error on other shapes by more than chance explains.
    pub is_worse: bool,
}

/// Standard errors by which a mean must be above 0 to count as an increase; without one, chance exceeds them in 2 % of
/// many shapes and 15 % of two.
const ERRORS_OF_INCREASE: f64 = 2.0;

/// Median ratio of measured to predicted values above which the unit of the measurements must be wrong.
const IMPLAUSIBLE_FACTOR: f64 = 50.0;

/// Describes measured values as a multiple of the predicted ones if their unit must be wrong, else returns None.
/// `log_errors` are logarithms of predicted to measured values.
///
/// Values that are too small exceed a peak only for large operators, so bounds do not reveal all wrong units.
pub fn implausible_factor(mut log_errors: Vec<f64>) -> Option<String> {
    let factor = (-median(&mut log_errors)).exp();
    match factor {
        _ if factor > IMPLAUSIBLE_FACTOR => Some(format!("{factor:.0} times")),
        _ if factor < 1.0 / IMPLAUSIBLE_FACTOR => Some(format!("1/{:.0} of", 1.0 / factor)),
        _ => None,
    }
}

/// Returns whether the mean of differences is above 0 by more than chance explains. A single difference never is.
pub fn is_increase(differences: &[f64]) -> bool {
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let variance = differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean > ERRORS_OF_INCREASE * (variance / count).sqrt()
}

/// Returns the number of rows of each operator that the predictor lacks. `adapt_predictor` cannot use them.
pub fn count_unknown_rows(predictor: &Predictor, samples: &Samples) -> BTreeMap<String, usize> {
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let counts = by_operator(samples, &all).into_iter();
    let counts = counts.map(|(operator, rows)| (samples.operators[operator as usize].clone(), rows.len()));
    counts.filter(|(operator, _)| !predictor.learned.operators.contains_key(operator)).collect()
}

/// Adapts a predictor to every device in the samples that it was not trained on.
pub fn adapt_predictor(predictor: &mut Predictor, samples: Samples) -> Result<Vec<DeviceChange>> {
    let samples = samples.with_features(&predictor.about.names);
    let learned = &predictor.learned;
    let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    for (operator, rows) in by_operator(&samples, &all) {
        let Some(known) = learned.operators.get(&samples.operators[operator as usize]) else { continue };
        let is_new = |row: &usize| !known.statistics.has_seen(samples.device_name(*row));
        let rows: Vec<usize> = rows.into_iter().filter(is_new).collect();
        groups.extend(by_device(&samples, &rows).into_iter().map(|(device, rows)| ((operator, device), rows)));
    }
    if groups.is_empty() {
        return Err(Error::Data(
            "the data contains no measurement of a trained operator on a new device; to add data of a trained device, train again with all data".to_owned(),
        ));
    }
    let mut residuals = Vec::with_capacity(groups.len());
    for ((operator, device), rows) in &groups {
        let before = log_residuals(&predictor.learned, &samples, rows);
        if let Some(times) = implausible_factor(before.clone()) {
            let (operator, device) = (&samples.operators[*operator as usize], &samples.devices[*device as usize].0);
            return Err(Error::Data(format!(
                "the time of `{operator}` on {device} is {times} the predicted time in the median; check the sizes and the unit"
            )));
        }
        residuals.push(before);
    }
    let mut changes = Vec::new();
    for (((operator, device), rows), before) in groups.into_iter().zip(residuals) {
        let (operator, device) = (&samples.operators[operator as usize], &samples.devices[device as usize]);
        let held_out = cross_validated(&mut predictor.learned, &samples, &rows);
        let logs: Vec<f64> = held_out.iter().map(|(_, log)| *log).collect();
        let after = (!logs.is_empty()).then(|| mean_percent(&logs));
        let is_worse = is_increase(&changes_by_shape(&samples, &rows, &before, &held_out));
        predictor.learned.adapt_to(&samples, &rows);
        let mut distances: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
        let is_enough = count_shapes(&samples, &rows) >= FEWEST && !distances.is_empty();
        if let Some(known) = predictor.learned.operators.get_mut(operator).filter(|_| is_enough) {
            known.statistics.half_widths.insert(device.0.clone(), half_width(&mut distances));
        }
        if let (Some(known), Some(schedules)) =
            (predictor.learned.operators.get_mut(operator), samples.schedules.get(operator))
        {
            known.statistics.schedules.add_defaults_of(schedules);
        }
        predictor.about.devices.insert(device.0.clone(), device.1.clone());
        let (operator, device) = (operator.clone(), device.0.clone());
        changes.push(DeviceChange {
            operator,
            device,
            rows: rows.len(),
            before: mean_percent(&before),
            after,
            is_worse,
        });
    }
    Ok(changes)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suggestion {
    pub operator: String,
    /// Sizes of the shape, without sizes that are equal for all shapes of the operator.
    pub sizes: Vec<(&'static str, f64)>,
    /// Operator and sizes in the syntax of `opcollect`; empty for foreign tables.
    pub text: String,
    pub threads: f64,
}

/// Returns up to `count` shapes per operator whose measurement most reduces the variance of predictions, best first.
pub fn suggest_shapes(predictor: &Predictor, samples: Samples, count: usize) -> Result<Vec<Suggestion>> {
    let samples = samples.with_features(&predictor.about.names);
    let default: Vec<usize> = (0..samples.rows.len()).filter(|row| samples.rows[*row].is_default).collect();
    let mut suggestions = Vec::new();
    for (operator, rows) in by_operator(&samples, &default) {
        // All devices were measured with the same shapes, so the device with the most rows represents the others.
        let Some(rows) = by_device(&samples, &rows).into_values().max_by_key(Vec::len) else { continue };
        let columns = sizes_that_differ(&samples, &rows);
        for row in predictor.learned.most_informative(&samples, &rows, count) {
            let size = |column: &usize| {
                let (feature, value) = (&FEATURES[*column], f64::from(samples.features.row(row)[*column]));
                (feature.name, if feature.unit.starts_with("log2") { value.exp2().round() } else { value })
            };
            let sample = &samples.rows[row];
            suggestions.push(Suggestion {
                operator: samples.operators[operator as usize].clone(),
                sizes: columns.iter().map(size).collect(),
                text: samples.shape_texts.get(&sample.shape).cloned().unwrap_or_default(),
                threads: sample.threads,
            });
        }
    }
    match suggestions.is_empty() {
        true => Err(Error::Data(
            "the data contains no measurement of a trained operator with its default schedule".to_owned(),
        )),
        false => Ok(suggestions),
    }
}

fn sizes_that_differ(samples: &Samples, rows: &[usize]) -> Vec<usize> {
    let values = |column: usize| rows.iter().map(move |row| samples.features.row(*row)[column].to_bits());
    let mut found: Vec<usize> = Vec::new();
    for (column, feature) in FEATURES.iter().enumerate() {
        let is_size = feature.origin == Origin::Sizes && !feature.name.ends_with("_count");
        let differs = || values(column).any(|value| Some(value) != values(column).next());
        let repeats = || found.iter().any(|other| values(*other).eq(values(column)));
        if is_size && differs() && !repeats() {
            found.push(column);
        }
    }
    found
}

fn log_residuals(learned: &Ensemble, samples: &Samples, rows: &[usize]) -> Vec<f64> {
    let times = learned.predict(samples, rows);
    rows.iter().zip(times).map(|(row, time)| (time / samples.rows[*row].time_ns).ln()).collect()
}

/// Returns the places of rows with their log errors in two-fold cross-validation, empty for one shape. `learned` keeps
/// the last fold's correction.
fn cross_validated(learned: &mut Ensemble, samples: &Samples, rows: &[usize]) -> Vec<(usize, f64)> {
    let groups: Vec<u64> = rows.iter().map(|row| samples.rows[*row].shape).collect();
    if count_shapes(samples, rows) < 2 {
        return Vec::new();
    }
    let pick = |places: &[usize]| places.iter().map(|place| rows[*place]).collect::<Vec<usize>>();
    let of = |fold: Fold| {
        learned.adapt_to(samples, &pick(&fold.train));
        let logs = log_residuals(learned, samples, &pick(&fold.test));
        fold.test.into_iter().zip(logs)
    };
    by_group(&groups, 2, 0).into_iter().flat_map(of).collect()
}

/// Returns the mean change of the error of each shape, in percentage points: rows of a shape err together.
fn changes_by_shape(samples: &Samples, rows: &[usize], before: &[f64], after: &[(usize, f64)]) -> Vec<f64> {
    let mut shapes: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (place, log) in after {
        let (sum, count) = shapes.entry(samples.rows[rows[*place]].shape).or_default();
        *sum += mean_percent(&[*log]) - mean_percent(&[before[*place]]);
        *count += 1.0;
    }
    shapes.into_values().map(|(sum, count)| sum / count).collect()
}

fn count_shapes(samples: &Samples, rows: &[usize]) -> usize {
    rows.iter().map(|row| samples.rows[*row].shape).collect::<BTreeSet<u64>>().len()
}

fn mean_percent(logs: &[f64]) -> f64 {
    100.0 * logs.iter().map(|log| (log.exp() - 1.0).abs()).sum::<f64>() / logs.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increase_is_beyond_chance() {
        for (differences, expected) in [
            (&[][..], false),
            (&[5.0], false),
            (&[0.0, 0.0], false),
            (&[1.0, 1.0], true),
            (&[1.0, -0.9, 1.0, -1.0, 0.5], false),
            (&[1.0, 0.9, 1.0, -0.1, 0.5], true),
            (&[-1.0, -0.9, -1.0], false),
        ] {
            assert_eq!(is_increase(differences), expected, "{differences:?}");
        }
    }
}
