//! Tuners, which propose schedules of a task and learn from their results.
//!
//! Nothing in this crate compiles, runs, reads files or reads a clock. The same problem, seed and results give the same
//! proposals, so a search continues from the records of a store, and tests use spaces with synthetic times. Trees are
//! trained with the crate `learn`.

mod anneal;
mod draft;
mod error;
mod evolved;
mod explain;
pub mod features;
mod genetic;
mod grid;
mod guided;
mod judge;
pub mod model;
mod name;
mod points;
mod problem;
mod random;
pub mod spending;
#[cfg(test)]
mod synthetic;

pub use error::{Error, Result};
pub use explain::{Effect, effects};
pub use features::View;
pub use model::Features;
pub use name::TunerName;
pub use problem::Problem;

use job::space::Schedule;

/// Result of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialResult {
    Time(f64),
    /// Failed build, crash or wrong result.
    Failed,
    /// Another process tries the schedule; its result will not be observed.
    Elsewhere,
    /// Built, but rejected by the cost model.
    PassedOver,
}

/// A strategy that proposes schedules of one task and observes their results.
pub trait Tuner {
    /// Returns up to `count` schedules that were neither proposed nor observed before. None means that the space is
    /// exhausted or that the tuner waits for results.
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>>;

    /// Whether a built schedule of this tuner should be run, by the features of its code. For a rejected schedule,
    /// `observe` is called with [`TrialResult::PassedOver`].
    fn is_worth_a_run(&mut self, _schedule: &Schedule, _figures: &Features) -> Result<bool> {
        Ok(true)
    }

    /// Observes the result of any schedule of the task, with features of its code if they are known.
    fn observe(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: TrialResult);

    /// Observes a schedule of a similar problem: its time relative to that problem's default schedule, with features of
    /// its code if they are known.
    fn learn(&mut self, _problem: &Problem, _schedule: &Schedule, _figures: Option<&Features>, _over_default: f64) {}

    /// Returns the time of the best hint relative to the default schedule, or None if no hint promises more than the
    /// best known time.
    fn hinted(&self) -> Option<f64> {
        None
    }
}

/// TVM's evolutionary search, in whichever process has TVM.
pub trait Evolution {
    /// Returns up to `count` children of measured schedules, whose times are in nanoseconds, or an error.
    fn breed(
        &mut self,
        measured: &[(Schedule, f64)],
        count: usize,
        seed: i64,
    ) -> std::result::Result<Vec<Schedule>, String>;
}

/// Creates a tuner by name; only `metaschedule` calls `evolution`.
pub fn tuner(
    name: TunerName,
    problem: &Problem,
    seed: u64,
    evolution: impl FnOnce() -> Box<dyn Evolution>,
) -> Result<Box<dyn Tuner>> {
    name.start(name::Start { problem, seed, evolution: Box::new(evolution) })
}

#[cfg(test)]
mod tests;
