//! The learner that an evaluation shows, and the texts of its errors.

use crate::evaluate::Evaluation;
use crate::evaluate::metrics::Metrics;
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_percentage, format_signed_percentage};
use std::collections::BTreeMap;

pub fn is_ours(learner: &str) -> bool {
    learner.starts_with(Learner::Ensemble.name())
}

/// Returns the learner with the smallest mean error.
pub fn find_best(learners: &BTreeMap<String, Metrics>) -> Option<(&String, &Metrics)> {
    learners.iter().min_by(|one, two| one.1.mape.total_cmp(&two.1.mape))
}

/// Returns our predictor, else the learner with the smallest mean error.
pub fn shown_learner(evaluation: &Evaluation) -> Option<(&String, &Metrics)> {
    let ours = evaluation.learners.iter().find(|(learner, _)| is_ours(learner));
    ours.or_else(|| find_best(&evaluation.learners))
}

/// Largest error that is shown, in percent.
const MAX_ERROR: f64 = 9_999.0;

/// Formats an error in percent for terminal and page. The size of larger errors has no meaning.
pub fn format_error(percent: f64, decimals: usize) -> String {
    if percent > MAX_ERROR { format!("> {MAX_ERROR:.0}") } else { format_percentage(percent, decimals) }
}

/// Formats a mean signed error in percent for terminal and page.
pub fn format_bias(percent: f64, decimals: usize) -> String {
    if percent > MAX_ERROR { format_error(percent, decimals) } else { format_signed_percentage(percent, decimals) }
}

/// Formats the 95 % interval of a mean error for terminal and page; a single row, or rows with one error, have none.
pub fn format_error_interval(one: &Metrics, space: &str) -> String {
    let (low, high) = one.mape_interval;
    match one.rows < 2 || low == high {
        true => UNKNOWN.to_owned(),
        false => format!("{}{space}…{space}{}", format_error(low, 2), format_error(high, 2)),
    }
}
