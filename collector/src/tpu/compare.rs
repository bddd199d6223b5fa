//! Two captures of the same work, before and after: which operators got slower, and what that costs.

use super::operators::{self, Operator, Runs};
use super::timeline::Timeline;
use std::collections::HashMap;

/// One operator before and after.
#[derive(Clone, Debug)]
pub struct Change {
    /// The operator.
    pub operator: Operator,
    /// Records before, and their mean time.
    pub before: (usize, f64),
    /// The same after.
    pub after: (usize, f64),
}

impl Change {
    /// Time lost per capture: difference of the means for as many runs as there are after; negative is gained.
    pub fn lost_ns(&self) -> f64 {
        (self.after.1 - self.before.1) * self.after.0 as f64
    }

    /// Mean after over mean before.
    pub fn ratio(&self) -> f64 {
        self.after.1 / self.before.1
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
}

/// Compares them, all cores together.
pub fn compare(before: &Timeline, after: &Timeline) -> Comparison {
    let (mut before, after) = (merged(before), merged(after));
    let mut comparison = Comparison::default();
    for (operator, now) in after {
        match before.remove(&operator) {
            Some(then) => comparison.changes.push(Change {
                operator,
                before: (then.times_ns.len(), then.mean_ns()),
                after: (now.times_ns.len(), now.mean_ns()),
            }),
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

fn merged(timeline: &Timeline) -> HashMap<Operator, Runs> {
    let mut merged: HashMap<Operator, Runs> = HashMap::new();
    for (_, operator, runs) in operators::by_core(timeline) {
        merged.entry(operator).or_default().times_ns.extend(runs.times_ns);
    }
    merged
}
