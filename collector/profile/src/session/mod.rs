//! Looks at runs of a model: times around each call, counts in runs beside, and runs that nobody looks at in turns.
//!
//! Between the first and the last call of a run nothing is asked for and nothing is written but places that were there before.
//! Counters are read in runs of their own, one for each group of them that fits together, so that reading changes no time; what
//! stands at one span of a profile was counted in the same call of the runs right after it. However long a session is, what it
//! keeps is bounded: when it is full, every second step goes, and only every second step is kept from then on.

mod kept;
mod told;
mod watchers;

use crate::data::Profile;
use crate::schedule::{Action, Schedule};
use kept::{Session, alone};
use measure::Clock;
use measure::counters::{Channel, CounterReader, Reading};
use serde::{Deserialize, Serialize};

pub use told::refusal;

/// What hears of the calls of a run.
pub trait Watch {
    /// A call begins.
    fn begin(&mut self, call: usize);
    /// It has ended.
    fn end(&mut self, call: usize);
}

/// A model that can be run.
pub trait Subject {
    /// Why a run fails.
    type Error;
    /// Calls of one run.
    fn calls(&self) -> usize;
    /// Runs it while nobody looks.
    fn run(&mut self) -> Result<(), Self::Error>;
    /// Runs it and says of each call when it begins and ends.
    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), Self::Error>;
    /// Runs it once, and says what each call asks of a workspace; nothing where that is not known.
    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, Self::Error> {
        Ok(None)
    }
    /// In the run that follows, what the threads of a pool do is looked at, too, where there are such.
    fn look_at_threads(&mut self) {}
    /// What threads of a pool did in the run after that, in any order.
    fn tasks(&mut self) -> Vec<Task> {
        Vec::new()
    }
    /// In runs that follow, threads of a pool count around what they do, with counters of this group; with none they stop.
    fn count_on_threads(&mut self, _group: Option<usize>) {}
    /// What they counted since this was asked last.
    fn thread_counts(&mut self) -> Vec<ThreadCount> {
        Vec::new()
    }
    /// What was counted so, by the places that counts name.
    fn thread_channels(&self) -> Vec<Channel> {
        Vec::new()
    }
    /// Processor time of each thread of the pool so far.
    fn threads_cpu_ns(&mut self) -> Vec<u64> {
        Vec::new()
    }
}

/// A part of a call that one thread of a pool did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Of which call.
    pub call: usize,
    /// By which thread of the pool.
    pub thread: u32,
    /// When it began, by the clock of the session.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// What one thread of a pool counted in all its parts of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount {
    /// Of which call.
    pub call: usize,
    /// By which thread of the pool.
    pub thread: u32,
    /// Which counter, by its place among those of threads.
    pub channel: usize,
    /// The count.
    pub reading: Reading,
}

/// How a model is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Which runs.
    pub schedule: Schedule,
    /// It ends after this long, once the least number of steps is kept.
    pub budget_ns: u64,
    /// It ends after this long as soon as anything is kept.
    pub limit_ns: u64,
    /// Times and counts that are kept at most.
    pub cells_max: usize,
}

/// Steps that are kept at least, unless the limit comes first.
const STEPS_MIN: usize = 5;

impl Plan {
    /// A plan that ends after so long; a model that is slow may take a minute more.
    pub fn new(schedule: Schedule, budget_ns: u64) -> Plan {
        const MINUTE_NS: u64 = 60_000_000_000;
        Plan { schedule, budget_ns, limit_ns: budget_ns.saturating_add(MINUTE_NS), cells_max: 1 << 20 }
    }

    fn is_over(&self, elapsed_ns: u64, kept: usize) -> bool {
        (elapsed_ns >= self.budget_ns && kept >= STEPS_MIN) || (elapsed_ns >= self.limit_ns && kept >= 1)
    }
}

/// Looks at a model as a plan says. The operators, tracks and memory of the profile are for the caller to tell: spans have
/// the number of their call in the place of an operator's.
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
