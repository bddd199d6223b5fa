//! Measures several members that run concurrently, each in a loop on a thread of its own. A round has a phase for each
//! member alone, while the others sleep, and a phase in which all run together until each has enough samples. A sample
//! counts only if it ended while every member was running. A failed member stays in all phases, so that no other waits.
//! Slowdowns are ratios within rounds, because a disturbance of some seconds affects both phases of a round.

use super::recorder::{Closing, Recorder};
use super::{Clock, Measurement, Ratio, StopReason, paired_ratio, statistics};
use crate::counters::{CounterReader, NoCounters};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Together {
    /// Number of rounds; a confidence interval needs at least six.
    pub rounds: u32,
    pub phase_ns: u64,
    pub samples_min: u32,
    /// Minimum duration of a sample; shorter runs are batched.
    pub sample_ns: u64,
    /// Time after which no phase begins.
    pub time_limit_ns: u64,
    /// Maximum number of stored samples, which are evenly spaced; statistics use all samples.
    pub samples_kept_max: u32,
}

impl Default for Together {
    fn default() -> Together {
        Together {
            rounds: 9,
            phase_ns: 5_000_000,
            samples_min: 3,
            sample_ns: 20_000,
            time_limit_ns: 10_000_000_000,
            samples_kept_max: 256,
        }
    }
}

impl Together {
    /// Checks all settings. The error holds the setting's name, its value and the allowed values.
    pub fn check_settings(&self) -> Result<(), (&'static str, String, &'static str)> {
        let refuse = |field, found: u64, allowed| Err((field, found.to_string(), allowed));
        if !(1..=1000).contains(&self.rounds) {
            return refuse("rounds", self.rounds.into(), "allowed are 1 to 1000");
        }
        if !(1..=60_000_000_000).contains(&self.phase_ns) {
            return refuse("phase_ns", self.phase_ns, "allowed are 1 to 60000000000, a minute");
        }
        if !(1..=10_000).contains(&self.samples_min) {
            return refuse("samples_min", self.samples_min.into(), "allowed are 1 to 10000");
        }
        if !(1..=1_000_000_000).contains(&self.sample_ns) {
            return refuse("sample_ns", self.sample_ns, "allowed are 1 to 1000000000, a second");
        }
        if !(1..=600_000_000_000).contains(&self.time_limit_ns) {
            return refuse("time_limit_ns", self.time_limit_ns, "allowed are 1 to 600000000000, ten minutes");
        }
        if !(1..=10_000).contains(&self.samples_kept_max) {
            return refuse("samples_kept_max", self.samples_kept_max.into(), "allowed are 1 to 10000");
        }
        Ok(())
    }
}

/// Minimum duration of a sample of members that share cores: several time slices of the scheduler. The median of shorter
/// samples misses the time in which other members have the cores.
pub const SHARED_SPAN_NS: u64 = 24_000_000;

pub struct CoRunRounds {
    members: usize,
    /// Minimum duration of a sample of several batches; 0 for samples of one batch.
    span_ns: u64,
    barrier: Barrier,
    arrived: AtomicUsize,
    satisfied: AtomicUsize,
    /// Number of rounds to run, which is lowered to the number of completed rounds when the time limit has passed.
    rounds: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shared {
    pub beside: Measurement,
    /// Median time of each round while the other members run.
    pub beside_ns: Vec<f64>,
    /// Median time of each round while the other members sleep.
    pub alone_ns: Vec<f64>,
}

impl Shared {
    pub fn slowdown_ratio(&self) -> Option<Ratio> {
        paired_ratio(&self.beside_ns, &self.alone_ns)
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MemberError<E> {
    #[error("failed: {0}")]
    Failed(E),
    #[error("the time limit was reached in the first round, so there is no sample")]
    TimeLimit,
}

struct Phase {
    samples: Vec<f64>,
    times: u32,
}

impl CoRunRounds {
    pub fn new(members: usize, rule: &Together, share_cores: bool) -> CoRunRounds {
        CoRunRounds {
            members,
            span_ns: if share_cores { SHARED_SPAN_NS } else { 0 },
            barrier: Barrier::new(members),
            arrived: AtomicUsize::new(0),
            satisfied: AtomicUsize::new(0),
            rounds: AtomicUsize::new(rule.rounds as usize),
        }
    }

    pub fn measure_member<E>(
        &self,
        member: usize,
        run: &mut dyn FnMut(u32) -> Result<(), E>,
        rule: &Together,
        (clock, alone_clock): (&mut dyn Clock, &mut dyn Clock),
        counters: &mut dyn CounterReader,
    ) -> Result<Shared, MemberError<E>> {
        let mut nothing = NoCounters;
        let mut recorder = Recorder::new(clock, counters);
        let mut alone = Recorder::new(alone_clock, &mut nothing);
        let (mut beside_ns, mut alone_ns) = (Vec::new(), Vec::new());
        let mut failure = None;
        let mut first_run_ns = 0;
        let mut times = 1;
        let speed_before_ns = alone.clock.speed_probe_ns();
        // The first run is cold; the second one gives the batch size.
        self.run_sequentially(|turn| {
            if turn == member {
                match alone.time_runs(run, 1).and_then(|first| Ok((first, alone.time_runs(run, 1)?))) {
                    Ok((first, next)) => (first_run_ns, times) = (first, runs_per_sample(rule, next)),
                    Err(error) => failure = Some(error),
                }
            }
        });
        for round in 0..rule.rounds as usize {
            if member == 0 && recorder.elapsed_ns() > rule.time_limit_ns {
                self.rounds.store(round, Ordering::Relaxed);
            }
            self.barrier.wait();
            if round >= self.rounds.load(Ordering::Relaxed) {
                break;
            }
            let mut own = None;
            self.run_sequentially(|turn| {
                if turn == member && failure.is_none() {
                    let mut phase = Phase { samples: Vec::new(), times };
                    let start_ns = alone.elapsed_ns();
                    while failure.is_none() && !phase.is_enough(rule, alone.elapsed_ns() - start_ns) {
                        match alone.time_span(run, phase.times, self.span_ns) {
                            Ok((runs, elapsed_ns)) => phase.add_sample(runs, elapsed_ns),
                            Err(error) => failure = Some(error),
                        }
                    }
                    times = phase.next_times(rule);
                    own = phase.median_ns();
                }
            });
            let beside = self.measure_together(run, (rule, times), &mut recorder, &mut failure);
            if let (Some(alone), Some(beside), None) = (own, beside, &failure) {
                alone_ns.push(alone);
                beside_ns.push(beside);
            }
        }
        if let Some(error) = failure {
            return Err(MemberError::Failed(error));
        }
        if recorder.sorted_samples().is_empty() {
            return Err(MemberError::TimeLimit);
        }
        let is_whole = beside_ns.len() == rule.rounds as usize;
        let speed_after_ns = alone.clock.speed_probe_ns();
        let beside = recorder.finish_measurement(Closing {
            first_run_ns,
            warm_up_runs: 1,
            batch_size: times,
            confidence: statistics::CONFIDENCE,
            samples_kept_max: rule.samples_kept_max,
            flush_bytes: None,
            stop: if is_whole { StopReason::RepeatsDone } else { StopReason::TimeLimit },
            wanted: None,
            samples_min: rule.samples_min,
            speed_ns: (speed_before_ns, speed_after_ns),
        });
        Ok(Shared { beside, beside_ns, alone_ns })
    }

    /// Calls `run_member` with each member in order, separated by barriers. Every thread must call this function.
    fn run_sequentially(&self, mut run_member: impl FnMut(usize)) {
        for member in 0..self.members {
            self.barrier.wait();
            run_member(member);
        }
        self.barrier.wait();
    }

    fn measure_together<E>(
        &self,
        run: &mut dyn FnMut(u32) -> Result<(), E>,
        (rule, times): (&Together, u32),
        recorder: &mut Recorder<'_>,
        failure: &mut Option<E>,
    ) -> Option<f64> {
        self.barrier.wait();
        // Counters only grow, so an early arrival at the next phase does not change those of this one.
        let phases = self.arrived.fetch_add(1, Ordering::AcqRel) / self.members + 1;
        let all = phases * self.members;
        while self.arrived.load(Ordering::Acquire) < all {
            std::hint::spin_loop();
        }
        let mut phase = Phase { samples: Vec::new(), times };
        let start_ns = recorder.elapsed_ns();
        let mut is_satisfied = false;
        // Other members were still waking up during the first sample.
        let mut is_first = true;
        loop {
            if failure.is_none() {
                match recorder.time_batches(run, times, self.span_ns) {
                    Ok(batch) if !is_first && self.satisfied.load(Ordering::Acquire) < all => {
                        recorder.keep_batch();
                        phase.add_sample(batch.runs, batch.elapsed_ns);
                    }
                    Ok(_) => {}
                    Err(error) => *failure = Some(error),
                }
                is_first = false;
            }
            let is_enough = failure.is_some() || phase.is_enough(rule, recorder.elapsed_ns() - start_ns);
            if is_enough && !is_satisfied {
                is_satisfied = true;
                self.satisfied.fetch_add(1, Ordering::AcqRel);
            }
            if self.satisfied.load(Ordering::Acquire) >= all {
                return phase.median_ns();
            }
            if failure.is_some() {
                std::thread::yield_now();
            }
        }
    }
}

impl Phase {
    fn add_sample(&mut self, runs: u32, elapsed_ns: u64) {
        self.samples.push(elapsed_ns as f64 / f64::from(runs));
    }

    fn is_enough(&self, rule: &Together, elapsed_ns: u64) -> bool {
        self.samples.len() >= rule.samples_min as usize && elapsed_ns >= rule.phase_ns
    }

    fn median_ns(&self) -> Option<f64> {
        statistics::median(&self.samples)
    }

    fn next_times(&self, rule: &Together) -> u32 {
        self.median_ns().map_or(self.times, |run_ns| runs_per_sample(rule, run_ns as u64))
    }
}

fn runs_per_sample(rule: &Together, run_ns: u64) -> u32 {
    const RUNS_MAX: u64 = 1 << 20;
    u32::try_from(rule.sample_ns.div_ceil(run_ns.max(1)).clamp(1, RUNS_MAX)).unwrap_or(1)
}

#[cfg(test)]
mod tests;
