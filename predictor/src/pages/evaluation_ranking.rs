//! The order and the texts of ranking scores.

use crate::evaluate::Ranking;
use report::UNKNOWN;
use std::collections::BTreeMap;

/// Sorts learners by top-1, the best first, and equal ones by rank correlation.
pub fn sort_ranking(ranking: &BTreeMap<String, Ranking>) -> Vec<(&String, &Ranking)> {
    let key = |one: &Ranking| {
        let kendall = if one.kendall.is_nan() { -1.0 } else { one.kendall };
        (round_top1(one), kendall)
    };
    let mut sorted: Vec<_> = ranking.iter().collect();
    sorted.sort_by(|one, two| {
        let (one, two) = (key(one.1), key(two.1));
        two.0.total_cmp(&one.0).then(two.1.total_cmp(&one.1))
    });
    sorted
}

/// Returns top-1 in thousandths, as it is shown.
pub(super) fn round_top1(one: &Ranking) -> f64 {
    (1e3 * one.top1).round()
}

/// Formats a rank correlation for terminal and page; equal predictions have none.
pub fn format_rank(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { UNKNOWN.to_owned() }
}

/// Formats the number of schedules of each task for terminal and page, as `4 … 9`; evaluations of earlier versions lack
/// it.
pub fn format_schedules(one: &Ranking, space: &str) -> Option<String> {
    let (fewest, most) = one.schedules;
    let text = if fewest == most { fewest.to_string() } else { format!("{fewest}{space}…{space}{most}") };
    (most > 0).then_some(text)
}

/// Formats the 95 % interval of top-1 for terminal and page; a single task has none.
pub fn format_top1_interval(one: &Ranking, space: &str) -> Option<String> {
    let (low, high) = one.top1_interval;
    (one.tasks > 1 && low.is_finite() && high > 0.0).then(|| format!("{low:.3}{space}…{space}{high:.3}"))
}
