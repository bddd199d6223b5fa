//! Profiling sessions: timestamps around each call, counters in separate runs, and interleaved unprofiled runs.
//! During a run the session does not allocate and writes only to existing buffers. Counters are read in separate runs,
//! one per group of compatible counters, so that reading them does not affect times. A span's counts come from the same
//! call of the runs that follow. The recorded data is bounded: when it is full, every second step is discarded and the
//! sampling stride doubles.

mod assembly;
mod kept;
mod watchers;

use crate::data::Profile;
use crate::schedule::{Action, ProfileSchedule};
use kept::{Session, reading_overhead};
use measure::Clock;
use measure::counters::{Channel, CounterReader, Reading};
use serde::{Deserialize, Serialize};

pub use assembly::to_refusal;

pub trait Watch {
    fn begin_call(&mut self, call: usize);
    fn end_call(&mut self, call: usize);
}

pub trait Subject {
    type Error;
    fn call_count(&self) -> usize;
    fn run(&mut self) -> Result<(), Self::Error>;
    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), Self::Error>;
    /// Runs the model once and returns the requested workspace bytes of each call, or `None` if unknown.
    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, Self::Error> {
        Ok(None)
    }
    /// Enables the recording of pool threads, if there are any, for the next run.
    fn record_threads(&mut self) {}
    /// Returns the tasks that pool threads executed in the last run for which recording was enabled, in any order.
    fn tasks(&mut self) -> Vec<Task> {
        Vec::new()
    }
    /// Sets the counter group that pool threads read around their tasks in later runs; `None` disables it.
    fn count_on_threads(&mut self, _group: Option<usize>) {}
    /// Returns the counts of pool threads since the last call of this method.
    fn thread_counts(&mut self) -> Vec<ThreadCount> {
        Vec::new()
    }
    fn thread_channels(&self) -> Vec<Channel> {
        Vec::new()
    }
    fn threads_cpu_ns(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub call: usize,
    pub thread: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    pub call: usize,
    pub thread: u32,
    pub channel: usize,
    pub reading: Reading,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub schedule: ProfileSchedule,
    /// Time after which the session ends, once the minimum number of steps is recorded.
    pub budget_ns: u64,
    /// Time after which the session ends even with fewer steps, as soon as one step is recorded.
    pub limit_ns: u64,
    /// Maximum number of stored times and counts.
    pub cells_max: usize,
}

/// Minimum number of recorded steps, unless the time limit ends the session earlier.
const STEPS_MIN: usize = 5;

impl Plan {
    /// Creates a plan. Its time limit is one minute above the budget, for slow models.
    pub fn new(schedule: ProfileSchedule, budget_ns: u64) -> Plan {
        const MINUTE_NS: u64 = 60_000_000_000;
        Plan { schedule, budget_ns, limit_ns: budget_ns.saturating_add(MINUTE_NS), cells_max: 1 << 20 }
    }

    fn is_over(&self, elapsed_ns: u64, kept: usize) -> bool {
        (elapsed_ns >= self.budget_ns && kept >= STEPS_MIN) || (elapsed_ns >= self.limit_ns && kept >= 1)
    }
}

/// Profiles a model. Until the caller adds operators, tracks and memory, a span's operator is its call's index.
pub fn profile_model<S: Subject>(
    subject: &mut S,
    plan: &Plan,
    clock: &mut impl Clock,
    counters: &mut dyn CounterReader,
) -> Result<Profile, S::Error> {
    let mut session = Session::new(subject.call_count(), plan, counters);
    session.alone = reading_overhead(counters);
    session.workspace_bytes = subject.workspace_bytes()?;
    let started_ns = clock.now_ns();
    let last = plan.schedule.step_count().unwrap_or(u64::MAX);
    let mut number = 0;
    while number < last && !plan.is_over(clock.now_ns().saturating_sub(started_ns), session.steps.len()) {
        match plan.schedule.step_action(number) {
            Action::Nothing => subject.run()?,
            Action::Warmup => {
                subject.run()?;
                session.time_run(subject, clock)?;
                session.count_run(subject, counters)?;
            }
            Action::Record | Action::RecordAndSave => {
                let (bare_ns, mut step) = session.measure_pair(subject, clock)?;
                session.count_run(subject, counters)?;
                step.number = number;
                step.cycle = u32::try_from(plan.schedule.cycle_of_step(number)).unwrap_or(u32::MAX);
                session.keep_step(step, bare_ns);
            }
        }
        number += 1;
    }
    session.thread_channels = subject.thread_channels();
    Ok(session.into_profile(number, last, counters))
}

#[cfg(test)]
mod tests;
