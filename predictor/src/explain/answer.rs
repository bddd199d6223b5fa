//! Explains one prediction: its parts, its bottleneck, changes that would reduce the time, and measured neighbours.

use super::{
    Change, Effect, Explanation, Limits, Neighbour, Summary, explain_prediction, feature_effects, find_improvements,
    find_limits, nearest_rows, summarise_operator, sweep_feature,
};
use crate::error::{Error, Result};
use crate::queries::{self, Operator, Setting};
use learn::predictor::Predictor;
use samples::Samples;
use serde::Serialize;

const NEIGHBOURS: usize = 5;
/// Maximum number of rows of each operator in a summary.
pub const MAX_SUMMARY_ROWS: usize = 300;

#[derive(Clone, Debug, Serialize)]
pub struct ExplainedAnswer {
    pub operator: String,
    pub explanation: Explanation,
    pub limits: Limits,
    pub improvements: Vec<Change>,
    /// Nearest measured rows; empty if no samples were given.
    pub neighbours: Vec<Neighbour>,
    pub varied: Vec<Change>,
    pub effects: Vec<Effect>,
}

pub fn explain_answer(
    predictor: &Predictor,
    operator: &Operator,
    setting: &Setting,
    samples: Option<&Samples>,
    vary: Option<&str>,
) -> Result<ExplainedAnswer> {
    let operator = operator.as_learned(predictor);
    let setting = setting.without_default_knobs(predictor, &operator)?;
    let query = queries::to_query(predictor, &operator, &setting)?;
    let host = setting.this_host(predictor);
    let explanation = translate_to_host(predictor, &setting, &operator, explain_prediction(predictor, &query)?);
    let limits = find_limits(predictor, &query, &explanation.prediction, host)?;
    let improvements = find_improvements(predictor, &query, host)?;
    let near = |samples| nearest_rows(predictor, &query, samples, NEIGHBOURS);
    let near = samples.map(near).transpose()?.unwrap_or_default();
    let varied = vary.map(|feature| sweep_feature(predictor, &query, host, feature)).transpose()?.unwrap_or_default();
    let effects = match (vary, samples) {
        (Some(feature), Some(samples)) => feature_effects(predictor, samples, &operator.name, feature)?,
        _ => Vec::new(),
    };
    Ok(ExplainedAnswer {
        operator: operator.into_owned().text,
        explanation,
        limits,
        improvements,
        neighbours: near,
        varied,
        effects,
    })
}

/// Translates the prediction to this machine, if it is calibrated. The bound is scaled like the prediction's, and the rest
/// contains the factor between machines.
fn translate_to_host(
    predictor: &Predictor,
    setting: &Setting,
    operator: &Operator,
    explanation: Explanation,
) -> Explanation {
    let (time_ns, reference_ns) = (explanation.prediction.time_ns, explanation.prediction.reference_ns);
    let prediction = queries::translate_to_host(predictor, setting, operator, explanation.prediction);
    let of_bound = prediction.reference_ns / reference_ns;
    let rest = explanation.rest * prediction.time_ns / time_ns / of_bound;
    Explanation { prediction, bound_ns: explanation.bound_ns * of_bound, rest, ..explanation }
}

/// Summarises the feature effects of each trained operator, starting with the operators with most rows.
pub fn summarise_operators(predictor: &Predictor, samples: &Samples) -> Result<Vec<Summary>> {
    let known = samples.operators.iter().filter(|name| predictor.learned.operators.contains_key(*name));
    let mut found = known
        .map(|operator| summarise_operator(predictor, samples, operator, MAX_SUMMARY_ROWS))
        .collect::<Result<Vec<Summary>>>()?;
    found.sort_by_key(|summary| std::cmp::Reverse(summary.rows));
    match found.is_empty() {
        true => Err(Error::Data("the data has no operator that the predictor was trained on".to_owned())),
        false => Ok(found),
    }
}
