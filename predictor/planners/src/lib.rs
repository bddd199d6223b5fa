//! Which operators run where, beside whom and on how many cores: three planners and the model of what sharing costs.
//!
//! `interference` says what operators that run side by side take, `stages` cuts a graph into stages of groups by it,
//! `cotune` chooses the schedules of a few operators that run together, and `placement` puts operators on devices. Times come
//! in as numbers, whoever measured or predicted them; answers go out as numbers. Nothing here reads, prints or knows a clock,
//! and the same question has the same answer.

#![forbid(unsafe_code)]

pub mod cotune;
pub mod interference;
pub mod placement;
pub mod stages;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("{what} is {value}; it must be a number above zero")]
    NotPositive { what: String, value: f64 },
    #[error("{what} is {value}; it must be a number and not below zero")]
    Negative { what: String, value: f64 },
    #[error("there is no {0} to plan for")]
    Nothing(&'static str),
    #[error("operator {operator} has {found} times, for {wanted} {of}")]
    Ragged { operator: usize, found: usize, wanted: usize, of: &'static str },
    #[error("operators {from} and {to} wait for each other, or for themselves")]
    Circle { from: usize, to: usize },
    #[error("operator {operator} waits for operator {missing}, which there is not")]
    Unknown { operator: usize, missing: usize },
    #[error("{operators} operators on {cores} core{}: each needs one of its own", if *.cores == 1 { "" } else { "s" })]
    TooFewCores { operators: usize, cores: usize },
}

/// What comes of a question.
pub type Result<T> = std::result::Result<T, Error>;

/// A number above zero.
fn positive(what: impl Fn() -> String, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() { Ok(()) } else { Err(Error::NotPositive { what: what(), value }) }
}

/// A number that is not below zero.
fn not_negative(what: impl Fn() -> String, value: f64) -> Result<()> {
    if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(Error::Negative { what: what(), value }) }
}

/// The operators in an order in which each comes after those it waits for; `before` names those of each.
pub fn topological(before: &[Vec<usize>]) -> Result<Vec<usize>> {
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
    // The lowest that is ready comes first, so an order that was right stays.
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
