//! Why a predictor answers as it does, and what would change the answer.
//!
//! Contributions are SHAP values of the trees, computed by XGBoost: they add up to the logarithm of the ratio between the
//! answer and the bound, so each is a factor of time. Importance is what mixing a feature up costs on shapes that were
//! held out.

use crate::error::{Error, Result};
use crate::features::Matrix;
use crate::learn::boosted::Growth;
use crate::learn::ours::{self, OfOperator, Purpose};
use crate::learn::{Fitted, by_operator};
use crate::samples::Samples;
use crate::split;
use crate::xgboost::{Booster, Data, Output};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// A feature's part in an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The feature.
    pub feature: String,
    /// Its value.
    pub value: f32,
    /// What it multiplies the time by, against the average row that was learned from.
    pub factor: f64,
}

/// The parts of one answer, the largest first, and the factor of the average row against the bound.
pub fn parts(operator: &OfOperator, names: &[String], row: &[f32]) -> Result<(Vec<Part>, f64)> {
    let trees = operator.known.first().ok_or_else(|| Error::Question("there are no trees to explain".to_owned()))?;
    let names: Vec<String> = names.iter().cloned().chain(["bound_of_overhead".to_owned()]).collect();
    let booster = Booster::load(&trees.to_json(&names))?;
    let matrix = Matrix::of(row.len(), row.to_vec());
    let values = booster.predict(&Data::new(&matrix)?, Output::Contributions)?;
    let (base, logs) = values.split_last().ok_or_else(|| Error::XgBoost("XGBoost gave no contributions".to_owned()))?;
    let part = |((feature, value), log): ((&String, &f32), &f32)| Part {
        feature: feature.clone(),
        value: *value,
        factor: f64::from(*log).exp(),
    };
    let mut parts: Vec<Part> = names.iter().zip(row).zip(logs).map(part).collect();
    parts.sort_by(|one, two| two.factor.ln().abs().total_cmp(&one.factor.ln().abs()));
    Ok((parts, f64::from(*base).exp()))
}

/// What mixing a feature up costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Importance {
    /// The operator.
    pub operator: String,
    /// The feature.
    pub feature: String,
    /// MAPE with the feature mixed up less MAPE with it, in percentage points, on held-out shapes.
    pub cost: f64,
}

/// Importance of every feature, the greatest first, on a fifth of the shapes that is not learned from.
pub fn importance(samples: &Samples, seed: u64) -> Result<Vec<Importance>> {
    let folds = split::by_group(&split::shapes(samples), 5, seed);
    let fold = folds.first().ok_or_else(|| Error::Data("there are no shapes".to_owned()))?;
    let fitted = ours::fit(samples, &fold.train, &|_| Growth::boosting(), seed, Purpose::Known)?;
    let mut found = Vec::new();
    for (operator, rows) in by_operator(samples, &fold.test) {
        let mape = |samples: &Samples| {
            let times = fitted.predict(samples, &rows);
            let errors =
                rows.iter().zip(times).map(|(row, time)| 100.0 * (time / samples.rows[*row].time_ns - 1.0).abs());
            errors.sum::<f64>() / rows.len() as f64
        };
        let whole = mape(samples);
        for (column, name) in samples.names.iter().enumerate() {
            let mut mixed = samples.clone();
            let mut order = rows.clone();
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            rows.iter()
                .zip(&order)
                .for_each(|(row, other)| mixed.features.set(*row, column, samples.features.row(*other)[column]));
            let operator = samples.operators[operator as usize].clone();
            found.push(Importance { operator, feature: name.clone(), cost: mape(&mixed) - whole });
        }
    }
    found.sort_by(|one, two| two.cost.total_cmp(&one.cost));
    Ok(found)
}

/// A change of the question and what it does to the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The feature that is changed.
    pub feature: String,
    /// Its new value.
    pub value: f32,
    /// What the change multiplies the time by.
    pub factor: f64,
}

/// What the time becomes while one feature takes values over the range it was learned from, all else unchanged.
pub fn sweep(operator: &OfOperator, names: &[String], row: &[f32], feature: &str) -> Result<Vec<Change>> {
    const STEPS: usize = 12;
    let column = names
        .iter()
        .position(|name| name == feature)
        .ok_or_else(|| Error::Question(format!("there is no feature `{feature}`; there are: {}", names.join(", "))))?;
    let (low, high) = operator.facts.ranges[column].unwrap_or_default();
    let now = operator.log(row, true);
    // Threads and knobs are whole numbers.
    let is_whole = feature == "threads" || feature.starts_with("knob.");
    let mut values: Vec<f32> = (0..STEPS)
        .map(|step| low + (high - low) * step as f32 / (STEPS - 1) as f32)
        .map(|value| if is_whole { value.round() } else { value })
        .collect();
    values.dedup();
    let change = |value: f32| {
        let mut changed = row.to_vec();
        changed[column] = value;
        Change { feature: feature.to_owned(), value, factor: (operator.log(&changed, true) - now).exp() }
    };
    Ok(if low < high { values.into_iter().map(change).collect() } else { Vec::new() })
}

/// Changes of one thing that can be chosen (threads, knobs) that save at least a tenth of the time, the best first.
pub fn improvements(operator: &OfOperator, names: &[String], row: &[f32]) -> Result<Vec<Change>> {
    const ENOUGH: f64 = 0.9;
    let mut found = Vec::new();
    for name in names.iter().filter(|name| *name == "threads" || name.starts_with("knob.")) {
        let best = sweep(operator, names, row, name)?.into_iter().min_by(|one, two| one.factor.total_cmp(&two.factor));
        found.extend(best.filter(|change| change.factor <= ENOUGH));
    }
    found.sort_by(|one, two| one.factor.total_cmp(&two.factor));
    Ok(found)
}
