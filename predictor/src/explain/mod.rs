//! Explains predictions and the effects of changes.
//!
//! Contributions are Shapley values of the trees. They sum to the log ratio of the predicted time to its bound, so each
//! contribution is a factor of the time.

mod answer;
mod changes;
mod importance;
mod limits;
mod neighbours;

pub use answer::{ExplainedAnswer, MAX_SUMMARY_ROWS, explain_answer, summarise_operators};
pub use changes::{Change, Effect, feature_effects, find_improvements, sweep_feature, thread_counts};
pub use importance::{Importance, rank_importance};
pub use limits::{Limits, find_limits};
pub use neighbours::{Neighbour, nearest_rows};

use crate::error::{Error, Result};
use learn::operator::OperatorEnsemble;
use learn::predictor::{Prediction, Predictor, Query};
use learn::shap;
use rayon::prelude::*;
use samples::Samples;
use samples::features::Matrix;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contribution {
    pub feature: String,
    /// Value of the feature; NaN if the query does not specify it.
    pub value: f32,
    /// Time factor of the feature, relative to the average training row.
    pub factor: f64,
}

/// A decomposed prediction: `time = bound × average × factors of the parts × rest`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    #[serde(rename = "answer")]
    pub prediction: Prediction,
    /// Lower bound of the time in nanoseconds, including overhead.
    pub bound_ns: f64,
    /// Ratio of time to bound for the average training row.
    pub average: f64,
    /// Contributions of the features, the largest first.
    pub parts: Vec<Contribution>,
    /// Factor outside of the trees: device corrections, the clamp to the best measured ratio, and the factor between the
    /// training machine and this one.
    pub rest: f64,
}

pub fn explain_prediction(predictor: &Predictor, query: &Query<'_>) -> Result<Explanation> {
    let prediction = predictor.predict(query)?;
    let row = predictor.feature_row(query)?;
    let operator = predictor.find_operator(query.operator)?;
    let is_known = operator.statistics.has_seen(query.device);
    let values = feature_contributions(operator, &row, is_known)?;
    let (average, logs) = values.split_last().expect("there is a value for the average");
    let part = |((feature, value), log): ((&str, &f32), &f64)| Contribution {
        feature: feature.to_owned(),
        value: *value,
        factor: log.exp(),
    };
    let mut parts: Vec<Contribution> = feature_names(predictor).zip(&row).zip(logs).map(part).collect();
    parts.sort_by(|one, two| two.factor.ln().abs().total_cmp(&one.factor.ln().abs()));
    let bound_ns = prediction.reference_ns;
    let rest = prediction.time_ns / (bound_ns * values.iter().sum::<f64>().exp());
    Ok(Explanation { bound_ns, average: average.exp(), parts, rest, prediction })
}

fn feature_names(predictor: &Predictor) -> impl Iterator<Item = &str> {
    predictor.about.names.iter().map(String::as_str).chain([crate::exchange::LAST_FEATURE])
}

fn feature_contributions(operator: &OperatorEnsemble, row: &[f32], is_known: bool) -> Result<Vec<f64>> {
    let mut trees = operator.weighted_trees(is_known).peekable();
    if trees.peek().is_none() {
        return Err(Error::Query("the predictor has no trees for this query".to_owned()));
    }
    let mut sums = vec![0.0; row.len() + 1];
    for (weight, trees) in trees {
        sums.iter_mut().zip(shap::feature_contributions(trees, row)).for_each(|(sum, value)| *sum += weight * value);
    }
    Ok(sums)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub operator: String,
    /// Summaries of the features, the most influential first; features with one value are last.
    pub features: Vec<FeatureSummary>,
    pub rows: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeatureSummary {
    pub feature: String,
    /// Geometric mean of the feature's time factors, with factors below 1 inverted.
    pub typical: f64,
    pub points: Vec<(f32, f64)>,
}

impl FeatureSummary {
    /// Describes the effect of a larger value on the time, by rank correlation over the rows with a value.
    pub fn effect_of_larger(&self) -> &'static str {
        const CLEAR: f64 = 0.3;
        let known = self.points.iter().filter(|(value, factor)| !value.is_nan() && factor.is_finite());
        let (values, factors): (Vec<f64>, Vec<f64>) = known.map(|(value, factor)| (f64::from(*value), *factor)).unzip();
        match samples::statistics::spearman(&values, &factors) {
            rank if rank > CLEAR => "longer",
            rank if rank < -CLEAR => "shorter",
            rank if rank.is_finite() => "mixed",
            _ if self.varies() => "the same",
            _ => "one value",
        }
    }

    /// Returns whether the rows have several values of the feature, not counting rows without a value.
    pub fn varies(&self) -> bool {
        let mut values = self.points.iter().map(|(value, _)| value).filter(|value| !value.is_nan());
        let first = values.next();
        values.any(|value| Some(value) != first)
    }

    /// Returns the range of the time factors of 90 % of the rows.
    pub fn factor_range(&self) -> (f64, f64) {
        let mut factors: Vec<f64> = self.points.iter().map(|(_, factor)| *factor).collect();
        let (low, high) = (0.05, 0.95);
        (samples::statistics::quantile(&mut factors, low), samples::statistics::quantile(&mut factors, high))
    }
}

pub fn summarise_operator(predictor: &Predictor, samples: &Samples, operator: &str, most: usize) -> Result<Summary> {
    let matrix = background_rows(predictor, samples, operator, most)?;
    let known = predictor.find_operator(operator)?;
    let rows: Vec<usize> = (0..matrix.row_count()).collect();
    let values =
        rows.par_iter().map(|row| feature_contributions(known, matrix.row(*row), true)).collect::<Result<Vec<_>>>()?;
    let summary = |(column, feature): (usize, &str)| {
        let points: Vec<(f32, f64)> =
            rows.iter().map(|row| (matrix.row(*row)[column], values[*row][column].exp())).collect();
        let typical = points.iter().map(|(_, factor)| factor.ln().abs()).sum::<f64>() / points.len() as f64;
        FeatureSummary { feature: feature.to_owned(), typical: typical.exp(), points }
    };
    let mut features: Vec<FeatureSummary> = feature_names(predictor).enumerate().map(summary).collect();
    features.sort_by(|one, two| two.varies().cmp(&one.varies()).then(two.typical.total_cmp(&one.typical)));
    Ok(Summary { operator: operator.to_owned(), features, rows: rows.len() })
}

fn background_rows(predictor: &Predictor, samples: &Samples, operator: &str, most: usize) -> Result<Matrix> {
    let learned = predictor.find_operator(operator)?;
    let of_operator = |row: &usize| samples.operators[samples.rows[*row].operator as usize] == operator;
    let rows: Vec<usize> = (0..samples.rows.len()).filter(of_operator).collect();
    if rows.is_empty() {
        return Err(Error::Data(format!("the data has no measurement of `{operator}`")));
    }
    let picked: Vec<usize> = rows.iter().copied().step_by(rows.len().div_ceil(most.max(1))).collect();
    let samples = samples.select_rows(&picked).with_features(&predictor.about.names);
    let all: Vec<usize> = (0..samples.rows.len()).collect();
    let mut matrix = predictor.learned.feature_matrix(&samples, &all);
    if let Some(column) = predictor.choice_column() {
        let devices: Vec<&str> = all.iter().map(|row| samples.device_name(*row)).collect();
        learned.fill_choices(&mut matrix, column, &devices);
    }
    Ok(matrix)
}
