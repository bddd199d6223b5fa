//! Tuners, which propose schedules of a task and learn from their results. Nothing in this crate compiles, runs, reads
//! files or reads a clock: the same problem, seed and results give the same proposals, so a search can be continued.

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
pub use explain::{Effect, axis_effects};
pub use features::View;
pub use model::Features;
pub use name::TunerName;
pub use problem::Problem;

use job::space::Schedule;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialResult {
    Time(f64),
    /// The build failed, the code crashed, or its result was wrong.
    Failed,
    /// Another process tries the schedule; this search will not observe the result.
    Elsewhere,
    RejectedByModel,
}

pub trait Tuner {
    /// Returns up to `count` new schedules; an empty list if the space is exhausted or the tuner waits for results.
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>>;

    /// Returns whether to run a built schedule; if not, the caller reports [`TrialResult::RejectedByModel`].
    fn should_run(&mut self, _schedule: &Schedule, _code_features: &Features) -> Result<bool> {
        Ok(true)
    }

    /// Observes the result of any schedule of the task, with features of its code if known.
    fn observe_result(&mut self, schedule: &Schedule, code_features: Option<&Features>, seen: TrialResult);

    /// Observes a schedule of a similar problem, with its time relative to that problem's default schedule.
    fn learn_from_other(
        &mut self,
        _problem: &Problem,
        _schedule: &Schedule,
        _code_features: Option<&Features>,
        _over_default: f64,
    ) {
    }

    /// Returns the best hint's time relative to the default schedule; None if no hint beats the best known time.
    fn best_hint(&self) -> Option<f64> {
        None
    }
}

pub trait Evolution {
    /// Returns up to `count` new schedules bred from measured schedules, whose times are in nanoseconds.
    fn breed_schedules(
        &mut self,
        measured: &[(Schedule, f64)],
        count: usize,
        seed: i64,
    ) -> std::result::Result<Vec<Schedule>, String>;
}

/// Creates a tuner by name. Only the tuner `metaschedule` uses `evolution`.
pub fn create_tuner(
    name: TunerName,
    problem: &Problem,
    seed: u64,
    evolution: impl FnOnce() -> Box<dyn Evolution>,
) -> Result<Box<dyn Tuner>> {
    name.start_tuner(name::Start { problem, seed, evolution: Box::new(evolution) })
}

#[cfg(test)]
mod tests;
