//! The learner that an evaluation shows, and the texts of its errors.

use super::evaluation_ranking::sort_ranking;
use crate::evaluate::metrics::{IntervalScore, Metrics};
use crate::evaluate::{Evaluation, NetworkScores, is_ours};
use learn::Learner;
use models::Choice;
use report::{UNKNOWN, format_percent, format_percentage, format_signed_percentage};
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

/// Returns whether a learner is compared with another one: it is not ours, and has as many measurements of the held-out
/// devices, which are part of the names of learners if there are any.
pub fn is_rival(name: &str, other: &str) -> bool {
    fn shots(name: &str) -> Option<&str> {
        name.split_once(' ').map(|(_, shots)| shots)
    }
    name != other && !is_ours(other) && shots(other) == shots(name)
}

/// Returns the best of the learners that are compared with another one.
pub fn best_other<'a>(learners: &'a BTreeMap<String, Metrics>, name: &str) -> Option<(&'a String, &'a Metrics)> {
    sort_learners(learners).into_iter().find(|(other, _)| is_rival(name, other))
}

/// Returns our predictor, else the learner that orders schedules best, else that with the smallest mean error.
pub fn shown_learner(evaluation: &Evaluation) -> Option<(&String, &Metrics)> {
    let ours = evaluation.learners.iter().find(|(learner, _)| is_ours(learner));
    let ranked = || sort_ranking(&evaluation.ranking).into_iter().next();
    let of_ranking = || ranked().and_then(|(learner, _)| evaluation.learners.get_key_value(learner));
    ours.or_else(of_ranking).or_else(|| find_best(&evaluation.learners))
}

/// Largest error that is shown, in percent.
pub(super) const MAX_ERROR: f64 = 9_999.0;

/// Formats an error in percent for terminal and page. The size of larger errors has no meaning.
pub fn format_error(percent: f64, decimals: usize) -> String {
    if percent > MAX_ERROR { format!("> {MAX_ERROR:.0}") } else { format_percentage(percent, decimals) }
}

/// Formats a signed error in percent for terminal and page.
pub fn format_signed_error(percent: f64, decimals: usize) -> String {
    if percent > MAX_ERROR { format_error(percent, decimals) } else { format_signed_percentage(percent, decimals) }
}

/// Smallest number of rows or networks with a 95 % interval and a coverage.
pub(super) const MIN_ROWS: usize = 5;

/// Minimum acceptable actual coverage of 90 % intervals, in percent.
pub(super) const MIN_COVERAGE: f64 = 85.0;

/// Formats the 95 % interval of a mean error for terminal and page; few rows, or rows with one error, have none.
pub fn format_error_interval(one: &Metrics, space: &str) -> Option<String> {
    interval_text(one.mape_interval, one.rows, 1, space)
}

/// Formats the 95 % interval of the mean error of whole networks for terminal and page; few networks have none.
pub fn format_network_interval(one: &NetworkScores, space: &str) -> Option<String> {
    interval_text(one.mape_interval, one.networks, 1, space)
}

fn interval_text((low, high): (f64, f64), count: usize, decimals: usize, space: &str) -> Option<String> {
    let text = || format!("{}{space}…{space}{}", format_error(low, decimals), format_error(high, decimals));
    (count >= MIN_ROWS && low != high).then(text)
}

/// Returns the score of 90 % intervals; few rows have none.
pub(super) fn known_coverage(one: &Metrics) -> Option<&IntervalScore> {
    one.interval.as_ref().filter(|interval| interval.rows >= MIN_ROWS)
}

/// Returns whether too few measurements are inside 90 % intervals.
pub(super) fn is_too_narrow(interval: &IntervalScore) -> bool {
    interval.coverage < MIN_COVERAGE
}

/// Formats the coverage of 90 % intervals for terminal and page, and returns whether it is too low. Few rows have none.
pub fn format_coverage(one: &Metrics) -> (String, bool) {
    let Some(interval) = known_coverage(one) else { return (UNKNOWN.to_owned(), false) };
    let suffix = if interval.rows < one.rows { format!(" of {}", interval.rows) } else { String::new() };
    (format!("{} %{suffix}", format_percentage(interval.coverage, 1)), is_too_narrow(interval))
}

/// Formats the coverage of intervals at levels other than 90 % for the terminal.
pub fn other_coverage(one: &Metrics) -> String {
    let levels = known_coverage(one).into_iter().flat_map(|interval| &interval.levels);
    let others = levels.filter(|(level, _)| **level != 90);
    let held: Vec<String> = others.map(|(_, coverage)| format_percentage(*coverage, 1)).collect();
    if held.is_empty() { UNKNOWN.to_owned() } else { held.join("/") }
}

/// Names a learner for terminal and page. The name `median` alone could be taken for a median error.
pub fn learner_label(name: &str) -> String {
    let (learner, shots) = name.split_at(name.find(' ').unwrap_or(name.len()));
    let learner = if learner == Learner::OperatorMedian.name() { "median utilisation" } else { learner };
    format!("{learner}{shots}")
}

/// States how many of the measurements the evaluation did not use; None if it used all.
pub fn skipped_share(evaluation: &Evaluation) -> Option<String> {
    let skipped = evaluation.left_out.values().sum::<u64>();
    let all = evaluation.measurements as u64 + skipped;
    (skipped > 0).then(|| format!("{skipped} of {all} measurements ({})", format_percent(skipped as f64 / all as f64)))
}

/// Describes the deviation between repeated measurements, for terminal and page.
pub fn describe_repeats(evaluation: &Evaluation) -> Vec<String> {
    let repeats = evaluation.repeats.as_ref().map(|repeats| {
        format!(
            "{} candidates (operator, schedule, threads and device) were measured at least twice: the medians of \
             their measurements deviate by {} % from the candidate's time on average, 90 % of them by at most {} %",
            repeats.candidates,
            format_percentage(repeats.mape, 1),
            format_percentage(repeats.p90, 1)
        )
    });
    let spread = evaluation.mean_cv.map(|spread| {
        format!(
            "Single runs within a measurement scatter by {} % (mean coefficient of variation); a measurement is the \
             median of its runs",
            format_percentage(spread, 1)
        )
    });
    repeats.into_iter().chain(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learners_are_compared_with_others_that_have_as_many_measurements() {
        assert!(is_rival("ours", "linear") && is_rival("ours k=10", "linear k=10"));
        assert!(!is_rival("ours k=10", "ours k=200") && !is_rival("ours k=10", "linear k=200"));
        assert!(is_rival("linear", "forest") && !is_rival("linear", "linear"));
        assert_eq!(learner_label("median k=10"), "median utilisation k=10");
        assert_eq!(
            (learner_label("median"), learner_label("ours k=10")),
            ("median utilisation".into(), "ours k=10".into())
        );
    }
}
