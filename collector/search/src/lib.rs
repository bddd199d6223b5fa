//! Tuners: which schedules of a task to try next, and what is learned from those that were tried.
//!
//! A tuner proposes schedules and hears what came of them. Nothing here compiles, runs, reads files or looks at a clock: the
//! same problem, seed and news give the same proposals, so a search goes on from the records of a store as if it had never
//! ended, and is tested on spaces with made-up times. Trees are grown through `learn`.

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

/// What came of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen {
    /// Its time in nanoseconds.
    Time(f64),
    /// It gave no time: it was not built, crashed, or computed something else.
    Failed,
    /// Somebody else tries it; nothing will be heard of it.
    Elsewhere,
    /// It was built, and was not worth a run.
    PassedOver,
}

/// Proposes schedules of one task, and hears what came of them.
pub trait Tuner {
    /// Up to so many schedules that were neither proposed nor heard of before. None means that nothing is left, or that the
    /// tuner waits to hear of what it proposed.
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>>;

    /// Whether one of its own, which was built, is worth a run, by what its code says of itself. Of what is not,
    /// [`Seen::PassedOver`] is heard.
    fn is_worth_a_run(&mut self, _schedule: &Schedule, _figures: &Features) -> Result<bool> {
        Ok(true)
    }

    /// Hears of a schedule, one of its own or another, with what its code says of itself, where that is known.
    fn observe(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: Seen);

    /// Hears of a schedule of another problem that is like its own: how long it took as a multiple of that problem's default
    /// schedule, and what its code says of itself, where that is known.
    fn learn(&mut self, _problem: &Problem, _schedule: &Schedule, _figures: Option<&Features>, _over_default: f64) {}

    /// What of the default schedule's time something took for an equal problem that it would propose next; nothing where it knows of
    /// none that promises more than what it has.
    fn hinted(&self) -> Option<f64> {
        None
    }
}

/// TVM's evolutionary search, wherever TVM is.
pub trait Evolution {
    /// Up to so many schedules from those that were measured, with their times in nanoseconds; or why there are none.
    fn breed(
        &mut self,
        measured: &[(Schedule, f64)],
        count: usize,
        seed: i64,
    ) -> std::result::Result<Vec<Schedule>, String>;
}

/// A tuner by its name; `metaschedule` asks for an evolution.
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
