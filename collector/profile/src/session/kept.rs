//! Recorded data of a session, buffers of a run, and the measurements of one step.

use super::watchers::{CountWatcher, TimeWatcher};
use super::{Plan, Subject, Task, ThreadCount};
use crate::data::Step;
use measure::Clock;
use measure::counters::{Channel, CounterReader, Reading};
use measure::statistics::median;

pub(super) struct Session {
    pub(super) calls: usize,
    pub(super) cells_max: usize,
    /// Start and end of each call of the last timed run.
    pub(super) stamps: Vec<u64>,
    /// Readings of all channels before each call and after the last one, in the last counted run of each group.
    pub(super) readings: Vec<Option<Reading>>,
    pub(super) channels: Vec<Channel>,
    pub(super) alone: Vec<Option<f64>>,
    pub(super) workspace_bytes: Option<Vec<u64>>,
    /// Number of steps recorded so far, including those discarded to bound the memory.
    pub(super) recorded: u64,
    pub(super) stride: u64,
    pub(super) steps: Vec<Step>,
    pub(super) bare_ns: Vec<u64>,
    pub(super) kept_stamps: Vec<u64>,
    /// Count of each channel during each call; `None` if its source failed.
    pub(super) kept_counts: Vec<Option<Reading>>,
    pub(super) threads: Threads,
    pub(super) kept_threads: Vec<Threads>,
    pub(super) thread_counts: Vec<ThreadCount>,
    pub(super) kept_thread_counts: Vec<Vec<ThreadCount>>,
    pub(super) thread_channels: Vec<Channel>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    pub(super) tasks: Vec<Task>,
    pub(super) cpu_ns: Vec<u64>,
}

impl Session {
    pub(super) fn new(calls: usize, plan: &Plan, counters: &dyn CounterReader) -> Session {
        let (channels, groups) = (counters.channels().to_vec(), counters.group_count());
        let readings = vec![None; if channels.is_empty() { 0 } else { groups * (calls + 1) * channels.len() }];
        Session {
            calls,
            cells_max: plan.cells_max,
            stamps: vec![0; 2 * calls],
            readings,
            channels,
            alone: Vec::new(),
            workspace_bytes: None,
            recorded: 0,
            stride: 1,
            steps: Vec::new(),
            bare_ns: Vec::new(),
            kept_stamps: Vec::new(),
            kept_counts: Vec::new(),
            threads: Threads::default(),
            kept_threads: Vec::new(),
            thread_counts: Vec::new(),
            kept_thread_counts: Vec::new(),
            thread_channels: Vec::new(),
        }
    }

    /// Measures an unprofiled and a profiled run in alternating order, so that disturbances affect both equally.
    pub(super) fn measure_pair<S: Subject>(
        &mut self,
        subject: &mut S,
        clock: &mut impl Clock,
    ) -> Result<(u64, Step), S::Error> {
        if self.recorded.is_multiple_of(2) {
            let bare_ns = time_bare_run(subject, clock)?;
            Ok((bare_ns, self.time_run(subject, clock)?))
        } else {
            let step = self.time_run(subject, clock)?;
            Ok((time_bare_run(subject, clock)?, step))
        }
    }

    pub(super) fn time_run<S: Subject>(&mut self, subject: &mut S, clock: &mut impl Clock) -> Result<Step, S::Error> {
        let before = subject.threads_cpu_ns();
        subject.record_threads();
        let start_ns = clock.now_ns();
        subject.run_watched(&mut TimeWatcher { clock, stamps: &mut self.stamps })?;
        let duration_ns = clock.now_ns().saturating_sub(start_ns);
        let after = subject.threads_cpu_ns();
        // A thread that ran its first task in this run has no earlier reading.
        let cpu_ns = if before.len() == after.len() { subtract_readings(&before, &after) } else { Vec::new() };
        self.threads = Threads { tasks: subject.tasks(), cpu_ns };
        Ok(Step { start_ns, duration_ns, ..Step::default() })
    }

    pub(super) fn count_run<S: Subject>(
        &mut self,
        subject: &mut S,
        counters: &mut dyn CounterReader,
    ) -> Result<(), S::Error> {
        let channels = self.channels.len();
        if channels == 0 {
            return Ok(());
        }
        let calls = self.calls;
        self.thread_counts.clear();
        for (group, readings) in self.readings.chunks_exact_mut((calls + 1) * channels).enumerate() {
            counters.select_group(group);
            subject.count_on_threads(Some(group));
            let ran = subject.run_watched(&mut CountWatcher { counters, channels, calls, readings });
            subject.count_on_threads(None);
            ran?;
            self.thread_counts.extend(subject.thread_counts());
        }
        Ok(())
    }

    pub(super) fn keep_step(&mut self, step: Step, bare_ns: u64) {
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
        let tasks = self.kept_threads.last().map_or(0, |threads| threads.tasks.len()) + self.thread_counts.len();
        self.kept_thread_counts.push(std::mem::take(&mut self.thread_counts));
        let cells = self.steps.len() * (self.calls * (1 + self.channels.len()) + tasks);
        if self.steps.len() > 1 && cells > self.cells_max {
            self.thin_out();
        }
    }

    /// Stores the counts of each call; those of a channel come from the run in which its group of counters was enabled.
    fn keep_counts(&mut self) {
        let channels = self.channels.len();
        for call in 0..self.calls {
            for (place, channel) in self.channels.iter().enumerate() {
                let row = channel.group.unwrap_or(0) * (self.calls + 1) + call;
                let at = |row: usize| self.readings[row * channels + place];
                let passed = at(row).zip(at(row + 1)).and_then(|(before, after)| after.change_since(&before));
                self.kept_counts.push(passed);
            }
        }
    }

    fn thin_out(&mut self) {
        let (per_stamp, per_count) = (2 * self.calls, self.calls * self.channels.len());
        every_second(&mut self.steps, 1);
        every_second(&mut self.bare_ns, 1);
        every_second(&mut self.kept_threads, 1);
        every_second(&mut self.kept_thread_counts, 1);
        every_second(&mut self.kept_stamps, per_stamp);
        every_second(&mut self.kept_counts, per_count);
        self.stride *= 2;
    }
}

/// Returns each channel's median count between two readings in direct succession; None for a channel that fails.
pub(super) fn reading_overhead(counters: &mut dyn CounterReader) -> Vec<Option<f64>> {
    const PAIRS: usize = 33;
    let channels = counters.channels().to_vec();
    let mut seen: Vec<Vec<f64>> = vec![Vec::with_capacity(PAIRS); channels.len()];
    let (mut before, mut after) = (vec![None; channels.len()], vec![None; channels.len()]);
    for group in 0..if channels.is_empty() { 0 } else { counters.group_count() } {
        counters.select_group(group);
        for _ in 0..PAIRS {
            counters.read_channels(&mut before);
            counters.read_channels(&mut after);
            for (place, _) in channels.iter().enumerate().filter(|(_, one)| one.group.unwrap_or(0) == group) {
                let passed = before[place].zip(after[place]).and_then(|(before, after)| after.change_since(&before));
                seen[place].extend(passed.and_then(extrapolate_count).map(|(value, _)| value as f64));
            }
        }
    }
    seen.iter().map(|seen| median(seen)).collect()
}

/// Returns a count, extrapolated if the counter was active for only a part of the time, and that part; None if never.
pub(super) fn extrapolate_count(passed: Reading) -> Option<(u64, f64)> {
    match passed {
        Reading { value, enabled_ns: 0, .. } => Some((value, 1.0)),
        Reading { running_ns: 0, .. } => None,
        Reading { value, enabled_ns, running_ns } => {
            let ratio = (running_ns as f64 / enabled_ns as f64).min(1.0);
            Some(((value as f64 / ratio).round() as u64, ratio))
        }
    }
}

fn subtract_readings(before: &[u64], after: &[u64]) -> Vec<u64> {
    before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
}

fn time_bare_run<S: Subject>(subject: &mut S, clock: &mut impl Clock) -> Result<u64, S::Error> {
    let start_ns = clock.now_ns();
    subject.run()?;
    Ok(clock.now_ns().saturating_sub(start_ns))
}

/// Keeps every second chunk of the given length, starting with the first.
fn every_second<T: Clone>(all: &mut Vec<T>, length: usize) {
    if length > 0 {
        let kept: Vec<T> = all.chunks(length).step_by(2).flatten().cloned().collect();
        *all = kept;
    }
}
