//! Computes cross-validated errors by operator and view. Every shape is held out once with all its rows.

use super::by_operator;
use super::calibration::asked_in_view;
use super::ensemble::{ParametersOf, Purpose, fit_ensemble};
use crate::error::Result;
use crate::split::{self, PARTS};
use samples::Samples;
use samples::features::View;
use samples::statistics::median;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrossValidatedError {
    pub median_percent: f64,
    pub shapes: usize,
    pub rows: usize,
}

pub type CrossValidatedErrors = BTreeMap<String, BTreeMap<View, CrossValidatedError>>;

type Errors = (Vec<f64>, BTreeSet<u64>);

/// Cross-validates over shapes; held-out rows are from devices that are also in the training rows.
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
        let trial = fit_ensemble(samples, &pick(&fold.train), parameters_of, seed, Purpose::Known)?;
        let held_out = pick(&fold.test);
        for view in &samples.views {
            for (operator, rows) in by_operator(samples, &asked_in_view(samples, &held_out, *view)) {
                // If all shapes of an operator are in one fold, the trial has no training data of the operator.
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
