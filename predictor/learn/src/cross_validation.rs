//! How far off answers are for shapes that were held out, by operator and by what was known of the schedule.
//!
//! All shapes are divided into parts, and each part is answered by what was learned of the others; so every shape is held out
//! once, with all its rows.

use super::by_operator;
use super::calibration::asked_in_view;
use super::ensemble::{ParametersOf, Purpose, fit};
use crate::error::Result;
use crate::split::{self, PARTS};
use samples::Samples;
use samples::features::View;
use samples::statistics::median;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The error of an operator's answers on shapes that were held out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossValidatedError {
    /// Median of the absolute errors, in percent of the measured time.
    pub median_percent: f64,
    /// Shapes, each of which was held out once.
    pub shapes: usize,
    /// Rows of these shapes.
    pub rows: usize,
}

/// By operator and view.
pub type CrossValidatedErrors = BTreeMap<String, BTreeMap<View, CrossValidatedError>>;

/// Absolute errors in percent, and the shapes they are of.
type Errors = (Vec<f64>, BTreeSet<u64>);

/// Holds out every shape of some samples once. The devices are those that were learned from.
pub(crate) fn cross_validate(
    samples: &Samples,
    rows: &[usize],
    parameters_of: ParametersOf<'_>,
    seed: u64,
) -> Result<CrossValidatedErrors> {
    let shapes: Vec<u64> = rows.iter().map(|row| samples.rows[*row].shape).collect();
    let pick = |places: &[usize]| places.iter().map(|place| rows[*place]).collect::<Vec<_>>();
    let mut errors: BTreeMap<(u32, View), Errors> = BTreeMap::new();
    for fold in split::by_group(&shapes, PARTS, seed ^ 1) {
        let trial = fit(samples, &pick(&fold.train), parameters_of, seed, Purpose::Known)?;
        let held_out = pick(&fold.test);
        for view in &samples.views {
            for (operator, rows) in by_operator(samples, &asked_in_view(samples, &held_out, *view)) {
                // Where all shapes of an operator are in one part, nothing was learned of it.
                if !trial.operators.contains_key(&samples.operators[operator as usize]) {
                    continue;
                }
                let (percents, shapes) = errors.entry((operator, *view)).or_default();
                for (row, time) in rows.iter().zip(trial.predict_in_view(samples, &rows, Some(*view))) {
                    let sample = &samples.rows[*row];
                    percents.push(100.0 * (time / sample.time_ns - 1.0).abs());
                    shapes.insert(sample.shape);
                }
            }
        }
    }
    let mut found = CrossValidatedErrors::new();
    for ((operator, view), (mut percents, shapes)) in errors {
        let error =
            CrossValidatedError { rows: percents.len(), median_percent: median(&mut percents), shapes: shapes.len() };
        found.entry(samples.operators[operator as usize].clone()).or_default().insert(view, error);
    }
    Ok(found)
}
