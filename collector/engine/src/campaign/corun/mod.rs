//! Co-runs: plans combinations of operators that run concurrently, and records the slowdown of each member.
//!
//! A combination is one attempt with a record of each member. Time columns hold the times next to the other members;
//! counters hold the time alone on the same cores and the slowdown, both from the same rounds. If a member fails, the
//! times of all are discarded, because the combination did not run as recorded.

pub mod plan;
mod run;

pub use plan::{Combination, plan_combinations, sample_operators};
pub use run::{CoRuns, run_combinations};
