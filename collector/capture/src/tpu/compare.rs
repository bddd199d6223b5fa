//! Two captures of the same work, before and after: which operators got slower, and what that costs.
//!
//! An operator is *slower* when its mean grew by more than a share that the caller gives, and by more than chance makes
//! of the spread of its runs; a capture is when it took longer by more than that share.

use super::operators::{self, Operator, Runs};
use super::timeline::Timeline;
use std::collections::HashMap;

/// Beyond this many standard errors a difference of two means is no chance.
const STANDARD_ERRORS: f64 = 3.0;

/// The runs of an operator in one capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// How many.
    pub count: usize,
    /// Their mean time.
    pub mean_ns: f64,
    /// Square of the standard error of that mean; nothing is known of the spread of a single run.
    variance_of_mean: f64,
}

impl Side {
    fn of(runs: &Runs) -> Side {
        let (count, mean_ns) = (runs.times_ns.len(), runs.mean_ns());
        let squares: f64 = runs.times_ns.iter().map(|time| (*time as f64 - mean_ns).powi(2)).sum();
        let variance_of_mean = if count > 1 { squares / (count - 1) as f64 / count as f64 } else { 0.0 };
        Side { count, mean_ns, variance_of_mean }
    }
}

/// One operator before and after.
#[derive(Clone, Debug)]
pub struct Change {
    /// The operator.
    pub operator: Operator,
    /// Its runs before.
    pub before: Side,
    /// Its runs after.
    pub after: Side,
}

impl Change {
    /// Time lost per capture: difference of the means for as many runs as there are after; negative is gained.
    pub fn lost_ns(&self) -> f64 {
        (self.after.mean_ns - self.before.mean_ns) * self.after.count as f64
    }

    /// Mean after over mean before.
    pub fn ratio(&self) -> f64 {
        self.after.mean_ns / self.before.mean_ns
    }

    /// Whether anything about it differs.
    pub fn differs(&self) -> bool {
        self.before.count != self.after.count || self.before.mean_ns != self.after.mean_ns
    }

    /// Whether it got slower by more than a share of its time before, such as 0.05, and by more than chance.
    pub fn is_slower(&self, share: f64) -> bool {
        let error = (self.before.variance_of_mean + self.after.variance_of_mean).sqrt();
        let lost = self.after.mean_ns - self.before.mean_ns;
        self.ratio() > 1.0 + share && lost > STANDARD_ERRORS * error
    }
}

/// What two captures have in common and what not.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Operators of both, the costliest first.
    pub changes: Vec<Change>,
    /// Operators only before, with their time.
    pub gone: Vec<(Operator, i64)>,
    /// Operators only after, with their time.
    pub new: Vec<(Operator, i64)>,
    /// Time from the first record to the last, before and after.
    pub spans_ns: (i64, i64),
}

impl Comparison {
    /// Whether nothing about the operators or the whole time differs.
    pub fn is_equal(&self) -> bool {
        let (before, after) = self.spans_ns;
        before == after && self.gone.is_empty() && self.new.is_empty() && !self.changes.iter().any(Change::differs)
    }

    /// Time after over time before.
    pub fn ratio(&self) -> f64 {
        self.spans_ns.1.max(1) as f64 / self.spans_ns.0.max(1) as f64
    }

    /// Whether an operator or the whole got slower.
    pub fn is_slower(&self, share: f64) -> bool {
        self.ratio() > 1.0 + share || self.changes.iter().any(|change| change.is_slower(share))
    }
}

/// Compares them, all cores together.
pub fn compare(before: &Timeline, after: &Timeline) -> Comparison {
    let spans_ns = (span_ns(before), span_ns(after));
    let (mut before, after) = (merged(before), merged(after));
    let mut comparison = Comparison { spans_ns, ..Comparison::default() };
    for (operator, now) in after {
        match before.remove(&operator) {
            Some(then) => comparison.changes.push(Change { operator, before: Side::of(&then), after: Side::of(&now) }),
            None => comparison.new.push((operator, now.total_ns())),
        }
    }
    comparison.gone = before.into_iter().map(|(operator, runs)| (operator, runs.total_ns())).collect();
    // Ties are broken by the operator, so that the order does not depend on a hash.
    comparison.changes.sort_by(|a, b| b.lost_ns().total_cmp(&a.lost_ns()).then_with(|| a.operator.cmp(&b.operator)));
    for list in [&mut comparison.gone, &mut comparison.new] {
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
    comparison
}

fn span_ns(timeline: &Timeline) -> i64 {
    let first = timeline.records().map(|record| record.start).min().unwrap_or(0);
    timeline.records().map(|record| record.end).max().unwrap_or(0) - first
}

fn merged(timeline: &Timeline) -> HashMap<Operator, Runs> {
    let mut merged: HashMap<Operator, Runs> = HashMap::new();
    for (_, operator, runs) in operators::by_core(timeline) {
        merged.entry(operator).or_default().times_ns.extend(runs.times_ns);
    }
    merged
}
