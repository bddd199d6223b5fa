//! One answer explained: its parts, its limits, what would improve it, and the rows near it.

use super::{
    Change, Effect, Explanation, Limits, Neighbour, Summary, effects, explain, improvements, limits, neighbours,
    summary, sweep,
};
use crate::error::{Error, Result};
use crate::queries::{self, Operator, Setting};
use learn::predictor::Predictor;
use samples::Samples;
use serde::Serialize;

/// Rows near an answer that are named.
const NEIGHBOURS: usize = 5;
/// Rows that a summary looks at.
const ROWS: usize = 300;

/// An answer with its explanation.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedAnswer {
    /// The operator as a person reads it.
    pub operator: String,
    /// The answer taken apart.
    pub explanation: Explanation,
    /// What limits it.
    pub limits: Limits,
    /// Single changes that make it faster.
    pub improvements: Vec<Change>,
    /// The nearest measured rows; none without samples.
    pub neighbours: Vec<Neighbour>,
    /// The answer for other values of one feature; none unless asked for.
    pub varied: Vec<Change>,
    /// What that feature does over all samples.
    pub effects: Vec<Effect>,
}

/// Explains the answer for an operator in a setting, beside measured samples and over the range of one feature where those are given.
pub fn explain_answer(
    predictor: &Predictor,
    operator: &Operator,
    setting: &Setting,
    samples: Option<&Samples>,
    vary: Option<&str>,
) -> Result<ExplainedAnswer> {
    let operator = operator.as_learned(predictor);
    let setting = setting.asked(predictor, &operator)?;
    let query = queries::to_query(predictor, &operator, &setting)?;
    let explanation = explain(predictor, &query)?;
    let limits = limits(predictor, &query, &explanation.prediction)?;
    let improvements = improvements(predictor, &query)?;
    let near = |samples| neighbours(predictor, &query, samples, NEIGHBOURS);
    let near = samples.map(near).transpose()?.unwrap_or_default();
    let varied = vary.map(|feature| sweep(predictor, &query, feature)).transpose()?.unwrap_or_default();
    let effects = match (vary, samples) {
        (Some(feature), Some(samples)) => effects(predictor, samples, &operator.name, feature)?,
        _ => Vec::new(),
    };
    let (explanation, limits) = translate_to_host(predictor, &setting, &operator.name, explanation, limits);
    Ok(ExplainedAnswer {
        operator: operator.text,
        explanation,
        limits,
        improvements,
        neighbours: near,
        varied,
        effects,
    })
}

/// Turns all times into those of this machine, where answers are for it: each by the factor of the answer itself.
fn translate_to_host(
    predictor: &Predictor,
    setting: &Setting,
    kind: &str,
    explanation: Explanation,
    limits: Limits,
) -> (Explanation, Limits) {
    let before_ns = explanation.prediction.time_ns;
    let prediction = queries::translate_to_host(predictor, setting, kind, explanation.prediction);
    let factor = prediction.time_ns / before_ns;
    let bound_ns = factor * explanation.bound_ns;
    let (arithmetic_ns, memory_ns) = (factor * limits.arithmetic_ns, factor * limits.memory_ns);
    (Explanation { prediction, bound_ns, ..explanation }, Limits { arithmetic_ns, memory_ns, ..limits })
}

/// Returns what each feature does over many rows of each operator that a predictor learned, the operator with most rows first.
pub fn summaries(predictor: &Predictor, samples: &Samples) -> Result<Vec<Summary>> {
    let known = samples.operators.iter().filter(|name| predictor.learned.operators.contains_key(*name));
    let mut found =
        known.map(|operator| summary(predictor, samples, operator, ROWS)).collect::<Result<Vec<Summary>>>()?;
    found.sort_by_key(|summary| std::cmp::Reverse(summary.rows));
    match found.is_empty() {
        true => Err(Error::Data("the predictor has none of the operators in the data".to_owned())),
        false => Ok(found),
    }
}
