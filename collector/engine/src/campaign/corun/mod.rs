//! Operators beside each other: which run together, and the records of what that costs each.
//!
//! A combination is one attempt with a record of each member: its times beside the others in the columns of times, and its time
//! alone on the same cores and its slowdown, both from the same rounds, among the counters. A member that fails takes the times of
//! all with it, for they were not beside what the record says.

pub mod plan;
mod run;

pub use plan::{Combination, combinations, operators};
pub use run::{CoRuns, run};
