//! Times of operators in further visits: in fresh processes, between which times differ more than between runs of one.

use super::{GroupBy, summary_rows};
use crate::data::{Kind, Profile};
use crate::sort::SortBy;
use datasets::log_spread;
use measure::statistics::median;
use report::format_percent;

/// Scatter between visits, on a logarithmic scale, from which the machine counts as busy.
pub const BUSY: f64 = 0.1;

/// Returns the median self time of each operator, in the order of the operators.
pub fn medians_ns(profile: &Profile) -> Vec<u64> {
    own_times(profile).iter().map(|times| median(times).unwrap_or(0.0).round() as u64).collect()
}

/// Returns the self times of each operator's calls in nanoseconds, in the order of the operators.
pub(super) fn own_times(profile: &Profile) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); profile.operators.len()];
    let own = profile.self_ns();
    for (span, own_ns) in profile.spans.iter().zip(own).filter(|(span, _)| span.kind == Kind::Operator) {
        times[span.operator as usize].push(own_ns as f64);
    }
    times
}

/// Returns the standard deviation of log times over visits (time-weighted median of operators); None for one visit.
pub fn visit_scatter(profile: &Profile) -> Option<f64> {
    let known = |row: super::Row| Some((log_spread(&row.visits_ns)?, row.share));
    let mut spreads: Vec<(f64, f64)> =
        summary_rows(profile, GroupBy::InputShape, SortBy::Order).into_iter().filter_map(known).collect();
    spreads.sort_by(|left, right| left.0.total_cmp(&right.0));
    let half = spreads.iter().map(|(_, share)| share).sum::<f64>() / 2.0;
    let mut passed = 0.0;
    let reached = |(_, share): &&(f64, f64)| {
        passed += share;
        passed >= half
    };
    spreads.iter().find(reached).map(|(spread, _)| *spread)
}

/// Warns of operators whose times differ between visits; None if they agree or for a single visit.
pub fn describe_busy(profile: &Profile) -> Option<String> {
    let scatter = visit_scatter(profile).filter(|scatter| *scatter >= BUSY)?;
    let others = profile.visits.len();
    Some(format!(
        "the machine is busy: operators differ by {} between {} processes, that of this profile and {others} more, \
         which ran only to estimate this difference; close other programs and profile again before you compare",
        format_percent(scatter.exp_m1()),
        others + 1
    ))
}
