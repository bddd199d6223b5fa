//! Looks at runs of a model: times around each call, counts in runs beside, and runs that nobody looks at in turns.
//!
//! Between the first and the last call of a run nothing is asked for and nothing is written but places that were there before.
//! Counters are read in runs of their own, one for each group of them that fits together, so that reading changes no time; what
//! stands at one span of a profile was counted in the same call of the runs right after it. However long a session is, what it
//! keeps is bounded: when it is full, every second step goes, and only every second step is kept from then on.

mod watchers;

use crate::data::{Count, Counter, Kind, Profile, Refusal, Span, Step, Track};
use crate::schedule::{Action, Schedule};
use measure::Clock;
use measure::counters::{Channel, CounterReader, Coverage, Reading};
use measure::statistics::median;
use serde::{Deserialize, Serialize};
use watchers::{Counts, Times};

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
    /// In the run that follows, what the threads of a pool do is looked at, too, where there are such.
    fn look_at_threads(&mut self) {}
    /// What threads of a pool did in the run after that, in any order.
    fn tasks(&mut self) -> Vec<Task> {
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
    Ok(session.profile(number, last, counters))
}

/// What is kept, and the places that a run writes to.
struct Session {
    calls: usize,
    cells_max: usize,
    /// Begin and end of each call of the run that was looked at last.
    stamps: Vec<u64>,
    /// All channels before each call of the runs that were counted last, and after the last call; a run for each group.
    readings: Vec<Option<Reading>>,
    channels: Vec<Channel>,
    /// What each counts between two readings with nothing between them.
    alone: Vec<Option<f64>>,
    /// Steps that were recorded, kept or not.
    recorded: u64,
    /// Of so many that are recorded one is kept.
    stride: u64,
    steps: Vec<Step>,
    bare_ns: Vec<u64>,
    kept_stamps: Vec<u64>,
    /// What each channel counted during each call; none where its source gave no answer.
    kept_counts: Vec<Option<Reading>>,
    /// What threads did in the run that was looked at last, and their processor time in it.
    threads: Threads,
    kept_threads: Vec<Threads>,
}

/// What threads of a pool did in one step.
#[derive(Clone, Debug, Default)]
struct Threads {
    tasks: Vec<Task>,
    cpu_ns: Vec<u64>,
}

impl Session {
    fn new(calls: usize, plan: &Plan, counters: &dyn CounterReader) -> Session {
        let (channels, groups) = (counters.channels().to_vec(), counters.groups());
        let readings = vec![None; if channels.is_empty() { 0 } else { groups * (calls + 1) * channels.len() }];
        Session {
            calls,
            cells_max: plan.cells_max,
            stamps: vec![0; 2 * calls],
            readings,
            channels,
            alone: Vec::new(),
            recorded: 0,
            stride: 1,
            steps: Vec::new(),
            bare_ns: Vec::new(),
            kept_stamps: Vec::new(),
            kept_counts: Vec::new(),
            threads: Threads::default(),
            kept_threads: Vec::new(),
        }
    }

    /// A run that nobody looks at and one that is looked at; which is first changes, so that what else goes on falls on both.
    fn in_turns<S: Subject>(&mut self, subject: &mut S, clock: &mut impl Clock) -> Result<(u64, Step), S::Error> {
        if self.recorded.is_multiple_of(2) {
            let bare_ns = bare(subject, clock)?;
            Ok((bare_ns, self.time(subject, clock)?))
        } else {
            let step = self.time(subject, clock)?;
            Ok((bare(subject, clock)?, step))
        }
    }

    /// A run with times around its calls.
    fn time<S: Subject>(&mut self, subject: &mut S, clock: &mut impl Clock) -> Result<Step, S::Error> {
        let before = subject.threads_cpu_ns();
        subject.look_at_threads();
        let start_ns = clock.now_ns();
        subject.run_watched(&mut Times { clock, stamps: &mut self.stamps })?;
        let duration_ns = clock.now_ns().saturating_sub(start_ns);
        let after = subject.threads_cpu_ns();
        // A thread that ran its first task meanwhile was not seen before.
        let cpu_ns = if before.len() == after.len() { passed(&before, &after) } else { Vec::new() };
        self.threads = Threads { tasks: subject.tasks(), cpu_ns };
        Ok(Step { start_ns, duration_ns, ..Step::default() })
    }

    /// A run for each group of counters, with all that counts read between its calls.
    fn count<S: Subject>(&mut self, subject: &mut S, counters: &mut dyn CounterReader) -> Result<(), S::Error> {
        let channels = self.channels.len();
        if channels == 0 {
            return Ok(());
        }
        let calls = self.calls;
        for (group, readings) in self.readings.chunks_exact_mut((calls + 1) * channels).enumerate() {
            counters.select(group);
            subject.run_watched(&mut Counts { counters, channels, calls, readings })?;
        }
        Ok(())
    }

    fn keep(&mut self, step: Step, bare_ns: u64) {
        let is_kept = self.recorded.is_multiple_of(self.stride);
        self.recorded += 1;
        if !is_kept {
            return;
        }
        self.steps.push(step);
        self.bare_ns.push(bare_ns);
        self.kept_stamps.extend_from_slice(&self.stamps);
        self.kept_threads.push(std::mem::take(&mut self.threads));
        self.keep_counts();
        let tasks = self.kept_threads.last().map_or(0, |threads| threads.tasks.len());
        let cells = self.steps.len() * (self.calls * (1 + self.channels.len()) + tasks);
        if self.steps.len() > 1 && cells > self.cells_max {
            self.thin_out();
        }
    }

    /// What passed during each call, by the run of the channel's own group.
    fn keep_counts(&mut self) {
        let channels = self.channels.len();
        for call in 0..self.calls {
            for (place, channel) in self.channels.iter().enumerate() {
                let row = channel.group.unwrap_or(0) * (self.calls + 1) + call;
                let at = |row: usize| self.readings[row * channels + place];
                let passed = at(row).zip(at(row + 1)).and_then(|(before, after)| after.since(&before));
                self.kept_counts.push(passed);
            }
        }
    }

    /// Forgets every second step.
    fn thin_out(&mut self) {
        let (per_stamp, per_count) = (2 * self.calls, self.calls * self.channels.len());
        every_second(&mut self.steps, 1);
        every_second(&mut self.bare_ns, 1);
        every_second(&mut self.kept_threads, 1);
        every_second(&mut self.kept_stamps, per_stamp);
        every_second(&mut self.kept_counts, per_count);
        self.stride *= 2;
    }

    fn profile(self, ran: u64, planned: u64, counters: &dyn CounterReader) -> Profile {
        let mut profile = Profile {
            counters: self.channels.iter().zip(&self.alone).map(|(one, alone)| counter(one, *alone)).collect(),
            refusals: counters.refusals().iter().map(refusal).collect(),
            spans: self.spans(),
            notes: self.notes(ran, planned),
            ..Profile::default()
        };
        self.add_counts(&mut profile);
        self.add_threads(&mut profile);
        Profile { steps: self.steps, bare_ns: self.bare_ns, ..profile }
    }

    fn notes(&self, ran: u64, planned: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if self.stride > 1 {
            let (stride, recorded) = (self.stride, self.recorded);
            notes.push(format!("one in {stride} of {recorded} steps is kept, so that what is kept stays small"));
        }
        if ran < planned && planned < Schedule::default().active {
            notes.push(format!("the time was over after {ran} of {planned} steps"));
        }
        notes
    }

    fn spans(&self) -> Vec<Span> {
        let of_step = |(step, stamps): (usize, &[u64])| {
            let step = u32::try_from(step).ok();
            let span = move |(call, pair): (usize, &[u64])| Span {
                operator: u32::try_from(call).expect("a program has fewer calls"),
                step,
                start_ns: pair[0],
                duration_ns: pair[1].saturating_sub(pair[0]),
                ..Span::default()
            };
            stamps.chunks_exact(2).enumerate().map(span).collect::<Vec<Span>>()
        };
        self.kept_stamps.chunks_exact((2 * self.calls).max(1)).enumerate().flat_map(of_step).collect()
    }

    /// What threads did: tracks behind that of the caller, and spans behind those that they are parts of.
    fn add_threads(&self, profile: &mut Profile) {
        let all = || self.kept_threads.iter().flat_map(|threads| &threads.tasks);
        let Some(most) = all().map(|task| task.thread).max() else { return };
        let cpu_ns = |thread: usize| {
            let of_steps = self.kept_threads.iter().map(|threads| threads.cpu_ns.get(thread).copied());
            of_steps.sum::<Option<u64>>()
        };
        profile.tracks.push(Track::default());
        profile.tracks.extend((0..=most as usize).map(|thread| Track { cpu_ns: cpu_ns(thread), ..Track::default() }));
        for (step, threads) in self.kept_threads.iter().enumerate() {
            for task in threads.tasks.iter().filter(|task| task.call < self.calls) {
                let parent = step * self.calls + task.call;
                let whole = profile.spans[parent];
                // Both clocks are one, read by two processors.
                let start_ns = task.start_ns.clamp(whole.start_ns, whole.end_ns());
                let end_ns = task.end_ns.clamp(start_ns, whole.end_ns());
                profile.spans.push(Span {
                    kind: Kind::Task,
                    parent: u32::try_from(parent).ok(),
                    track: task.thread + 1,
                    start_ns,
                    duration_ns: end_ns - start_ns,
                    ..whole
                });
            }
        }
    }

    /// What was counted; a counter that gave nothing at all is refused.
    fn add_counts(&self, profile: &mut Profile) {
        let channels = self.channels.len();
        let mut seen = vec![false; channels];
        for (place, passed) in self.kept_counts.iter().enumerate() {
            let (span, channel) = (place / channels, place % channels);
            let Some((value, running_ratio)) = passed.and_then(counted) else { continue };
            seen[channel] = true;
            let index = |place: usize| u32::try_from(place).expect("what is kept is bounded");
            profile.counts.push(Count { span: index(span), counter: index(channel), value, running_ratio });
        }
        for (counter, _) in self.channels.iter().zip(seen).filter(|(_, seen)| !seen && !self.steps.is_empty()) {
            profile.refusals.push(Refusal {
                counter: counter.name.clone(),
                source: counter.step.name().to_owned(),
                errno: None,
                why: "its source gave no count, or one that went down, or no register was free for it".to_owned(),
            });
        }
    }
}

/// What each channel counts between two readings with nothing between them: the middle of some.
fn alone(counters: &mut dyn CounterReader) -> Vec<Option<f64>> {
    const PAIRS: usize = 33;
    let channels = counters.channels().to_vec();
    let mut seen: Vec<Vec<f64>> = vec![Vec::with_capacity(PAIRS); channels.len()];
    let (mut before, mut after) = (vec![None; channels.len()], vec![None; channels.len()]);
    for group in 0..if channels.is_empty() { 0 } else { counters.groups() } {
        counters.select(group);
        for _ in 0..PAIRS {
            counters.read(&mut before);
            counters.read(&mut after);
            for (place, _) in channels.iter().enumerate().filter(|(_, one)| one.group.unwrap_or(0) == group) {
                let passed = before[place].zip(after[place]).and_then(|(before, after)| after.since(&before));
                seen[place].extend(passed.and_then(counted).map(|(value, _)| value as f64));
            }
        }
    }
    let middle = |mut seen: Vec<f64>| {
        seen.sort_by(f64::total_cmp);
        (!seen.is_empty()).then(|| median(&seen))
    };
    seen.into_iter().map(middle).collect()
}

/// A count, and for which part of the time it ran.
fn counted(passed: Reading) -> Option<(u64, f64)> {
    match passed {
        Reading { value, enabled_ns: 0, .. } => Some((value, 1.0)),
        Reading { running_ns: 0, .. } => None,
        Reading { value, enabled_ns, running_ns } => {
            let ratio = (running_ns as f64 / enabled_ns as f64).min(1.0);
            Some(((value as f64 / ratio).round() as u64, ratio))
        }
    }
}

fn passed(before: &[u64], after: &[u64]) -> Vec<u64> {
    before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
}

fn bare<S: Subject>(subject: &mut S, clock: &mut impl Clock) -> Result<u64, S::Error> {
    let start_ns = clock.now_ns();
    subject.run()?;
    Ok(clock.now_ns().saturating_sub(start_ns))
}

/// Keeps the first, the third, the fifth … of parts of this length.
fn every_second<T: Clone>(all: &mut Vec<T>, length: usize) {
    if length > 0 {
        let kept: Vec<T> = all.chunks(length).step_by(2).flatten().cloned().collect();
        *all = kept;
    }
}

fn counter(channel: &Channel, alone: Option<f64>) -> Counter {
    let coverage = match channel.coverage {
        Coverage::ThreadUser => "thread_user",
        Coverage::Thread => "thread",
        Coverage::DescendantsUser => "descendants_user",
        Coverage::Descendants => "descendants",
        Coverage::Process => "process",
        Coverage::External => "external",
    };
    Counter {
        name: channel.name.clone(),
        unit: channel.unit.clone(),
        source: channel.step.name().to_owned(),
        native: channel.native.clone(),
        coverage: coverage.to_owned(),
        alone,
    }
}

fn refusal(refusal: &measure::counters::Refusal) -> Refusal {
    Refusal {
        counter: refusal.event.clone(),
        source: refusal.step.name().to_owned(),
        errno: refusal.errno,
        why: refusal.why.clone(),
    }
}

#[cfg(test)]
mod tests;
