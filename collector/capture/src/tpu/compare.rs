//! Comparison of two captures of the same work. An operator is *slower* if its mean time grew by more than a given
//! share, and by more than its spread explains. A capture is slower if its total time grew by more than that share.

use super::operators::{self, Operator, Runs};
use super::timeline::Timeline;
use std::collections::HashMap;

/// Number of standard errors beyond which a difference of means is significant.
const STANDARD_ERRORS: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaptureSide {
    pub count: usize,
    pub mean_ns: f64,
    /// Squared standard error of the mean; zero for a single run, whose spread is unknown.
    variance_of_mean: f64,
}

impl CaptureSide {
    fn from_runs(runs: &Runs) -> CaptureSide {
        let (count, mean_ns) = (runs.times_ns.len(), runs.mean_ns());
        let squares: f64 = runs.times_ns.iter().map(|time| (*time as f64 - mean_ns).powi(2)).sum();
        let variance_of_mean = if count > 1 { squares / (count - 1) as f64 / count as f64 } else { 0.0 };
        CaptureSide { count, mean_ns, variance_of_mean }
    }
}

#[derive(Clone, Debug)]
pub struct CaptureChange {
    pub operator: Operator,
    pub before: CaptureSide,
    pub after: CaptureSide,
}

impl CaptureChange {
    /// Returns the time lost in the later capture: difference of means times the number of runs; negative if gained.
    pub fn lost_ns(&self) -> f64 {
        (self.after.mean_ns - self.before.mean_ns) * self.after.count as f64
    }

    pub fn mean_ratio(&self) -> f64 {
        self.after.mean_ns / self.before.mean_ns
    }

    pub fn differs(&self) -> bool {
        self.before.count != self.after.count || self.before.mean_ns != self.after.mean_ns
    }

    pub fn is_slower(&self, share: f64) -> bool {
        let error = (self.before.variance_of_mean + self.after.variance_of_mean).sqrt();
        let lost = self.after.mean_ns - self.before.mean_ns;
        self.mean_ratio() > 1.0 + share && lost > STANDARD_ERRORS * error
    }
}

#[derive(Clone, Debug, Default)]
pub struct CaptureComparison {
    /// Operators in both captures, sorted by decreasing time lost.
    pub changes: Vec<CaptureChange>,
    /// Operators only in the earlier capture, with their times.
    pub gone: Vec<(Operator, i64)>,
    pub new: Vec<(Operator, i64)>,
    pub spans_ns: (i64, i64),
}

impl CaptureComparison {
    pub fn is_equal(&self) -> bool {
        let (before, after) = self.spans_ns;
        before == after
            && self.gone.is_empty()
            && self.new.is_empty()
            && !self.changes.iter().any(CaptureChange::differs)
    }

    pub fn span_ratio(&self) -> f64 {
        self.spans_ns.1.max(1) as f64 / self.spans_ns.0.max(1) as f64
    }

    pub fn is_slower(&self, share: f64) -> bool {
        self.span_ratio() > 1.0 + share || self.changes.iter().any(|change| change.is_slower(share))
    }
}

/// Compares two captures, with the operators of all cores merged.
pub fn compare_captures(before: &Timeline, after: &Timeline) -> CaptureComparison {
    let spans_ns = (span_ns(before), span_ns(after));
    let (mut before, after) = (merge_cores(before), merge_cores(after));
    let mut comparison = CaptureComparison { spans_ns, ..CaptureComparison::default() };
    for (operator, now) in after {
        match before.remove(&operator) {
            Some(then) => comparison.changes.push(CaptureChange {
                operator,
                before: CaptureSide::from_runs(&then),
                after: CaptureSide::from_runs(&now),
            }),
            None => comparison.new.push((operator, now.total_ns())),
        }
    }
    comparison.gone = before.into_iter().map(|(operator, runs)| (operator, runs.total_ns())).collect();
    // Ties are resolved by the operator, so that the order is deterministic.
    comparison.changes.sort_by(|a, b| b.lost_ns().total_cmp(&a.lost_ns()).then_with(|| a.operator.cmp(&b.operator)));
    for list in [&mut comparison.gone, &mut comparison.new] {
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
    comparison
}

fn span_ns(timeline: &Timeline) -> i64 {
    let first = timeline.all_records().map(|record| record.start).min().unwrap_or(0);
    timeline.all_records().map(|record| record.end).max().unwrap_or(0) - first
}

fn merge_cores(timeline: &Timeline) -> HashMap<Operator, Runs> {
    let mut merged: HashMap<Operator, Runs> = HashMap::new();
    for (_, operator, runs) in operators::operators_by_core(timeline) {
        merged.entry(operator).or_default().times_ns.extend(runs.times_ns);
    }
    merged
}
