//! Profiling sessions: timestamps around each call, counters in separate runs, and interleaved unprofiled runs.
//!
//! During a run the session does not allocate and writes only to existing buffers. Counters are read in separate runs,
//! one per group of compatible counters, so that reading them does not affect times. A span's counts come from the same
//! call of the runs that follow. The recorded data is bounded: when it is full, every second step is discarded and the
//! sampling stride doubles.

mod assembly;
mod kept;
mod watchers;

use crate::data::Profile;
use crate::schedule::{Action, ProfileSchedule};
use kept::{Session, alone};
use measure::Clock;
use measure::counters::{Channel, CounterReader, Reading};
use serde::{Deserialize, Serialize};

pub use assembly::refusal;

/// Observer of the calls of a run.
pub trait Watch {
    /// Called before each call.
    fn begin(&mut self, call: usize);
    /// Called after each call.
    fn end(&mut self, call: usize);
}

/// A model that can be run.
pub trait Subject {
    /// Error of a run.
    type Error;
    /// Returns the number of calls in a run.
    fn calls(&self) -> usize;
    /// Runs the model without observation.
    fn run(&mut self) -> Result<(), Self::Error>;
    /// Runs the model and notifies the observer of each call.
    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), Self::Error>;
    /// Runs the model once and returns the workspace bytes that each call requests, or `None` if unknown.
    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, Self::Error> {
        Ok(None)
    }
    /// Enables the recording of pool threads for the next run, if there are any.
    fn look_at_threads(&mut self) {}
    /// Returns the tasks of pool threads in that run, in any order.
    fn tasks(&mut self) -> Vec<Task> {
        Vec::new()
    }
    /// Sets the counter group that pool threads read around their tasks in later runs; `None` disables it.
    fn count_on_threads(&mut self, _group: Option<usize>) {}
    /// Returns the counts of pool threads since the last call of this method.
    fn thread_counts(&mut self) -> Vec<ThreadCount> {
        Vec::new()
    }
    /// Returns the channels that `ThreadCount::channel` refers to.
    fn thread_channels(&self) -> Vec<Channel> {
        Vec::new()
    }
    /// Returns the cumulative processor time of each pool thread.
    fn threads_cpu_ns(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// A part of a call on one pool thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub call: usize,
    /// Index of the pool thread.
    pub thread: u32,
    /// Start time by the session's clock.
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Count of a pool thread over all its tasks of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    pub call: usize,
    /// Index of the pool thread.
    pub thread: u32,
    /// Index among the thread channels.
    pub channel: usize,
    pub reading: Reading,
}

/// Parameters of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Selection of the runs.
    pub schedule: ProfileSchedule,
    /// Time after which the session ends, once the minimum number of steps is recorded.
    pub budget_ns: u64,
    /// Time after which the session ends once any step is recorded.
    pub limit_ns: u64,
    /// Maximum number of recorded times and counts.
    pub cells_max: usize,
}

/// Minimum number of recorded steps, unless the time limit comes first.
const STEPS_MIN: usize = 5;

impl Plan {
    /// Returns a plan with a time budget. A slow model may exceed it by one minute.
    pub fn new(schedule: ProfileSchedule, budget_ns: u64) -> Plan {
        const MINUTE_NS: u64 = 60_000_000_000;
        Plan { schedule, budget_ns, limit_ns: budget_ns.saturating_add(MINUTE_NS), cells_max: 1 << 20 }
    }

    fn is_over(&self, elapsed_ns: u64, kept: usize) -> bool {
        (elapsed_ns >= self.budget_ns && kept >= STEPS_MIN) || (elapsed_ns >= self.limit_ns && kept >= 1)
    }
}

/// Profiles a model according to a plan. The caller adds operators, tracks and memory; until then a span's operator is
/// the index of its call.
pub fn watch<S: Subject>(
    subject: &mut S,
    plan: &Plan,
    clock: &mut impl Clock,
    counters: &mut dyn CounterReader,
) -> Result<Profile, S::Error> {
    let mut session = Session::new(subject.calls(), plan, counters);
    session.alone = alone(counters);
    session.workspace_bytes = subject.workspace_bytes()?;
    let started_ns = clock.now_ns();
    let last = plan.schedule.steps().unwrap_or(u64::MAX);
    let mut number = 0;
    while number < last && !plan.is_over(clock.now_ns().saturating_sub(started_ns), session.steps.len()) {
        match plan.schedule.action(number) {
            Action::Nothing => subject.run()?,
            Action::Warmup => {
                subject.run()?;
                session.time(subject, clock)?;
                session.count(subject, counters)?;
            }
            Action::Record | Action::RecordAndSave => {
                let (bare_ns, mut step) = session.in_turns(subject, clock)?;
                session.count(subject, counters)?;
                step.number = number;
                step.cycle = u32::try_from(plan.schedule.cycle(number)).unwrap_or(u32::MAX);
                session.keep(step, bare_ns);
            }
        }
        number += 1;
    }
    session.thread_channels = subject.thread_channels();
    Ok(session.profile(number, last, counters))
}

#[cfg(test)]
mod tests;
