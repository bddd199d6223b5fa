//! Why a predictor answers as it does, and what would change the answer.
//!
//! Contributions are Shapley values of the trees: they add up to the logarithm of the ratio between the answer and its
//! bound, so each is a factor of time. Importance is what mixing a feature up costs on shapes that were held out.

mod answer;
mod changes;
mod importance;
mod limits;
mod neighbours;

pub use answer::{ExplainedAnswer, explain_answer, summaries};
pub use changes::{Change, Effect, effects, improvements, sweep, thread_counts};
pub use importance::{Importance, importance};
pub use limits::{Limits, limits};
pub use neighbours::{Neighbour, neighbours};

use crate::error::{Error, Result};
use learn::operator::OperatorEnsemble;
use learn::predictor::{Prediction, Predictor, Query};
use learn::shap;
use rayon::prelude::*;
use samples::Samples;
use samples::features::Matrix;
use serde::Serialize;

/// A feature's part in an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contribution {
    /// The feature.
    pub feature: String,
    /// Its value; not-a-number where the question leaves it open.
    pub value: f32,
    /// What it multiplies the time by, against the average row that was learned from.
    pub factor: f64,
}

/// An answer taken apart: `time = bound × average × factors of the parts × rest`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The answer.
    #[serde(rename = "answer")]
    pub prediction: Prediction,
    /// What multiplies: the time no implementation can beat, overhead included.
    pub bound_ns: f64,
    /// What the average row that was learned from takes, as a multiple of its bound.
    pub average: f64,
    /// The parts, the largest first.
    pub parts: Vec<Contribution>,
    /// What multiplies the time beside the trees: corrections by measurements of the device, and the best ratio that was
    /// measured, which no answer falls below.
    pub rest: f64,
}

/// Takes the answer to a question apart.
pub fn explain(predictor: &Predictor, query: &Query<'_>) -> Result<Explanation> {
    let prediction = predictor.predict(query)?;
    let row = predictor.row(query)?;
    let operator = predictor.operator(query.operator)?;
    let is_known = operator.statistics.has_seen(query.device);
    let values = contributions(operator, &row, is_known)?;
    let (average, logs) = values.split_last().expect("there is a value for the average");
    let part = |((feature, value), log): ((&str, &f32), &f64)| Contribution {
        feature: feature.to_owned(),
        value: *value,
        factor: log.exp(),
    };
    let mut parts: Vec<Contribution> = names(predictor).zip(&row).zip(logs).map(part).collect();
    parts.sort_by(|one, two| two.factor.ln().abs().total_cmp(&one.factor.ln().abs()));
    let bound_ns = prediction.reference_ns;
    let rest = prediction.time_ns / (bound_ns * values.iter().sum::<f64>().exp());
    Ok(Explanation { bound_ns, average: average.exp(), parts, rest, prediction })
}

/// The names of all that the trees see.
fn names(predictor: &Predictor) -> impl Iterator<Item = &str> {
    predictor.about.names.iter().map(String::as_str).chain([crate::exchange::LAST_FEATURE])
}

/// Contributions of all features and of the average, over all trees that answer.
fn contributions(operator: &OperatorEnsemble, row: &[f32], is_known: bool) -> Result<Vec<f64>> {
    let mut trees = operator.trees(is_known).peekable();
    if trees.peek().is_none() {
        return Err(Error::Query("there are no trees to explain".to_owned()));
    }
    let mut sums = vec![0.0; row.len() + 1];
    for (weight, trees) in trees {
        sums.iter_mut().zip(shap::contributions(trees, row)).for_each(|(sum, value)| *sum += weight * value);
    }
    Ok(sums)
}

/// What every feature does to many answers of one operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The operator.
    pub operator: String,
    /// The features, the one that moves answers the most first.
    pub features: Vec<FeatureSummary>,
    /// Rows that were looked at.
    pub rows: usize,
}

/// What one feature does to many answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeatureSummary {
    /// The feature.
    pub feature: String,
    /// What it multiplies times by in the middle of the rows, up or down.
    pub typical: f64,
    /// Its value and its factor in each row.
    pub points: Vec<(f32, f64)>,
}

/// Looks at up to `most` measured rows of an operator, drawn evenly.
pub fn summary(predictor: &Predictor, samples: &Samples, operator: &str, most: usize) -> Result<Summary> {
    let matrix = background(predictor, samples, operator, most)?;
    let known = predictor.operator(operator)?;
    let rows: Vec<usize> = (0..matrix.rows()).collect();
    let values = rows.par_iter().map(|row| contributions(known, matrix.row(*row), true)).collect::<Result<Vec<_>>>()?;
    let of = |(column, feature): (usize, &str)| {
        let points: Vec<(f32, f64)> =
            rows.iter().map(|row| (matrix.row(*row)[column], values[*row][column].exp())).collect();
        let typical = points.iter().map(|(_, factor)| factor.ln().abs()).sum::<f64>() / points.len() as f64;
        FeatureSummary { feature: feature.to_owned(), typical: typical.exp(), points }
    };
    let mut features: Vec<FeatureSummary> = names(predictor).enumerate().map(of).collect();
    features.sort_by(|one, two| two.typical.total_cmp(&one.typical));
    Ok(Summary { operator: operator.to_owned(), features, rows: rows.len() })
}

/// Measured rows of an operator as its trees see them, at most so many, drawn evenly.
fn background(predictor: &Predictor, samples: &Samples, operator: &str, most: usize) -> Result<Matrix> {
    let learned = predictor.operator(operator)?;
    let of_operator = |row: &usize| samples.operators[samples.rows[*row].operator as usize] == operator;
    let rows: Vec<usize> = (0..samples.rows.len()).filter(of_operator).collect();
    if rows.is_empty() {
        return Err(Error::Data(format!("the data has no `{operator}`")));
    }
    let picked: Vec<usize> = rows.iter().copied().step_by(rows.len().div_ceil(most.max(1))).collect();
    let samples = samples.select(&picked).with_features(&predictor.about.names);
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let mut matrix = predictor.learned.matrix(&samples, &all);
    if let Some(column) = predictor.choice_column() {
        let devices: Vec<&str> = all.iter().map(|row| samples.device_name(*row)).collect();
        learned.fill_choices(&mut matrix, column, &devices);
    }
    Ok(matrix)
}
