//! The learner that an evaluation shows, and the texts of its errors.

use super::evaluation_ranking::sort_ranking;
use crate::evaluate::metrics::{IntervalScore, Metrics};
use crate::evaluate::{Evaluation, NetworkScores, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_percentage, format_signed_percentage};
use std::collections::BTreeMap;

/// Sorts learners by mean error, the smallest first.
pub fn sort_learners(learners: &BTreeMap<String, Metrics>) -> Vec<(&String, &Metrics)> {
    let mut sorted: Vec<_> = learners.iter().collect();
    sorted.sort_by(|one, two| one.1.mape.total_cmp(&two.1.mape));
    sorted
}

/// Returns the learner with the smallest mean error.
pub fn find_best(learners: &BTreeMap<String, Metrics>) -> Option<(&String, &Metrics)> {
    sort_learners(learners).into_iter().next()
}

/// Returns our predictor, else the learner that orders schedules best, else that with the smallest mean error.
pub fn shown_learner(evaluation: &Evaluation) -> Option<(&String, &Metrics)> {
    let ours = evaluation.learners.iter().find(|(learner, _)| is_ours(learner));
    let ranked = || sort_ranking(&evaluation.ranking).into_iter().next();
    let of_ranking = || ranked().and_then(|(learner, _)| evaluation.learners.get_key_value(learner));
    ours.or_else(of_ranking).or_else(|| find_best(&evaluation.learners))
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

/// Smallest number of rows or networks with a 95 % interval and a coverage.
pub(super) const MIN_ROWS: usize = 5;

/// Formats the 95 % interval of a mean error for terminal and page; few rows, or rows with one error, have none.
pub fn format_error_interval(one: &Metrics, space: &str) -> String {
    interval_text(one.mape_interval, one.rows, 2, space)
}

/// Formats the 95 % interval of the mean error of whole networks for terminal and page; few networks have none.
pub fn format_network_interval(one: &NetworkScores, space: &str) -> String {
    interval_text(one.mape_interval, one.networks, 1, space)
}

fn interval_text((low, high): (f64, f64), count: usize, decimals: usize, space: &str) -> String {
    match count < MIN_ROWS || low == high {
        true => UNKNOWN.to_owned(),
        false => format!("{}{space}…{space}{}", format_error(low, decimals), format_error(high, decimals)),
    }
}

/// Formats the coverage of 90 % intervals for terminal and page, and returns whether it is too low. Few rows have none.
pub fn format_coverage(interval: &IntervalScore, rows: usize) -> (String, bool) {
    let suffix = if interval.rows < rows { format!(" of {}", interval.rows) } else { String::new() };
    match interval.rows < MIN_ROWS {
        true => (UNKNOWN.to_owned(), false),
        false => {
            let text = format!("{} %{suffix}", format_percentage(interval.coverage, 1));
            (text, interval.coverage < super::KEPT)
        }
    }
}

/// Names a learner for terminal and page. The name `median` alone could be taken for a median error.
pub fn learner_label(name: &str) -> &str {
    if name == Learner::OperatorMedian.name() { "median utilisation" } else { name }
}

/// Describes the deviation between repeated measurements, for terminal and page.
pub fn describe_repeats(evaluation: &Evaluation) -> Vec<String> {
    let repeats = evaluation.repeats.as_ref().map(|repeats| {
        format!(
            "{} candidates (operator, schedule, threads and device) were measured at least twice: the medians of \
             their measurements deviate by {} % from the candidate's time on average, 90 % of them by at most {} %",
            repeats.candidates,
            format_percentage(repeats.mape, 2),
            format_percentage(repeats.p90, 2)
        )
    });
    let spread = evaluation.mean_cv.map(|spread| {
        format!(
            "Single runs within a measurement scatter by {} % (mean coefficient of variation); a measurement is the \
             median of its runs",
            format_percentage(spread, 2)
        )
    });
    repeats.into_iter().chain(spread).collect()
}
