//! Planners that decide which operators run where, with which partners and on how many cores.
//!
//! `interference` predicts concurrent times, `stages` cuts a graph into stages, `cotune` chooses schedules, `placement`
//! assigns operators to devices. The planners are deterministic; they read no files and no clock.

#![forbid(unsafe_code)]

pub mod cotune;
pub mod interference;
pub mod placement;
pub mod stages;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("{what} is {value}, not a positive number")]
    NotPositive { what: String, value: f64 },
    #[error("{what} is {value}, not a non-negative number")]
    Negative { what: String, value: f64 },
    #[error("no {0}s to plan for")]
    Nothing(&'static str),
    #[error("operator {operator} has {found} values for {wanted} {kind}")]
    Ragged { operator: usize, found: usize, wanted: usize, kind: &'static str },
    #[error("operators {from} and {to} are part of a dependency cycle")]
    Circle { from: usize, to: usize },
    #[error("operator {operator} depends on operator {missing}, which does not exist")]
    Unknown { operator: usize, missing: usize },
    #[error("{operators} operators on {cores} core{}: each operator needs a core of its own", if *.cores == 1 { "" } else { "s" })]
    TooFewCores { operators: usize, cores: usize },
}

pub type Result<T> = std::result::Result<T, Error>;

fn check_positive(what: impl Fn() -> String, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(Error::NotPositive { what: what(), value }) }
}

fn not_negative(what: impl Fn() -> String, value: f64) -> Result<()> {
    if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(Error::Negative { what: what(), value }) }
}

/// Returns the operators in topological order; `before` lists the predecessors of each operator.
pub fn topological_order(before: &[Vec<usize>]) -> Result<Vec<usize>> {
    let count = before.len();
    let mut after = vec![Vec::new(); count];
    let mut missing = vec![0usize; count];
    for (operator, waits) in before.iter().enumerate() {
        for &other in waits {
            if other >= count {
                return Err(Error::Unknown { operator, missing: other });
            }
            after[other].push(operator);
            missing[operator] += 1;
        }
    }
    // The ready operator with the lowest index comes first, so an order that is already topological is kept.
    let mut ready: std::collections::BTreeSet<usize> = (0..count).filter(|&one| missing[one] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for &one in &after[next] {
            missing[one] -= 1;
            if missing[one] == 0 {
                ready.insert(one);
            }
        }
    }
    match (0..count).find(|&one| missing[one] > 0) {
        None => Ok(order),
        Some(to) => Err(Error::Circle { from: before[to].first().copied().unwrap_or(to), to }),
    }
}
