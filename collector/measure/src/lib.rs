//! Measures the run times of an artifact as a distribution, with its precision. [`sample_runs`] repeats short batches
//! until the median is precise enough or the budget ends; [`evaluate_rule`] follows TVM's time evaluator. No sample is
//! dropped, because predictors of tail latency need outliers. Tests replace [`clock::Clock`] with a fake.

pub mod affinity;
pub mod clock;
#[allow(unsafe_code)]
pub mod counters;
mod evaluator;
mod flush;
pub mod host;
mod placement;
pub mod plan;
mod race;
mod ratio;
mod recorder;
mod sampling;
pub mod statistics;
pub mod stopping;
pub mod synthetic;
mod together;
pub mod warning;

pub use clock::{Clock, HostClock};
pub use evaluator::evaluate_rule;
pub use flush::{PinnedThreads, RunThreads};
pub use placement::{PAGE_BYTES, Placement};
pub use plan::{Cache, Evaluator, Method, Plan, PlanError};
pub use race::{Race, RoundTimes};
pub use ratio::{ROUNDS, Ratio, paired_ratio};
pub use sampling::sample_runs;
pub use stopping::StopReason;
pub use together::{CoRunRounds, MemberError, SHARED_SPAN_NS, Shared, Together};
pub use warning::Warning;

use serde::{Deserialize, Serialize};

use crate::counters::{CounterReader, CounterValue, Refusal, Usage};

pub fn measure_runs<E>(
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    method: &Method,
    clock: &mut dyn Clock,
    counters: &mut dyn CounterReader,
) -> Result<Measurement, E> {
    match method {
        Method::Sample(plan) => sample_runs(run, plan, clock, counters),
        Method::Evaluate(rule) => evaluate_rule(run, rule, clock, counters),
    }
}

/// Measured times per run of one artifact; a sample is the mean of a batch. [`statistics`] defines each number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub n: u32,
    pub median_ns: f64,
    pub mean_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
    pub p95_ns: f64,
    /// Standard deviation; `None` for one sample.
    pub std_ns: Option<f64>,
    /// Coefficient of variation; `None` for one sample.
    pub cv: Option<f64>,
    /// 95 % confidence interval of the median within one visit; `None` for too few samples.
    pub median_interval_ns: Option<(f64, f64)>,
    /// Median of each visit, in time order; empty for a single visit.
    pub visits_ns: Vec<f64>,

    /// Duration of the first run, which includes cold caches, page faults and lazy loading. It is not a sample.
    pub first_run_ns: u64,
    /// Number of warm-up runs, not counting the first run.
    pub warm_up_runs: u64,
    /// Runs per sample; the last value if TVM's rule increased this number.
    pub batch_size: u32,
    /// Number of timed runs, by which counters and CPU times are divided.
    pub timed_runs: u64,
    /// Stored samples: every `samples_stride`-th one, in time order.
    pub samples_ns: Vec<f64>,
    /// Stride of the stored samples; 1 if all samples are stored.
    pub samples_stride: u32,
    pub timed_ns: u64,
    /// Duration from before the first run to the last sample.
    pub elapsed_ns: u64,
    /// Bytes written between runs for cold caches; `None` for warm caches.
    pub flush_bytes: Option<u64>,
    pub stop: StopReason,

    /// CPU time per run of all threads, including time in the kernel.
    pub cpu_time_ns: f64,
    /// CPU time per run of the measuring thread.
    pub thread_cpu_time_ns: f64,
    /// Resource usage of the process, summed over all samples.
    pub usage: Usage,
    pub counters: Vec<CounterValue>,
    pub refusals: Vec<Refusal>,

    pub clock_precision_ns: u64,
    /// Median time of a fixed computation between the samples: the clock rate of the processor during the measurement.
    pub clock_probe_ns: Option<f64>,
    pub warnings: Vec<Warning>,
}

impl Measurement {
    /// Returns the visit with the median time (the earlier of two) and adds all visits' medians; `None` without visits.
    pub fn of_visits(visits: Vec<Measurement>) -> Option<Measurement> {
        let visits_ns: Vec<f64> = visits.iter().map(|visit| visit.median_ns).collect();
        let mut order: Vec<usize> = (0..visits.len()).collect();
        order.sort_by(|&one, &other| visits_ns[one].total_cmp(&visits_ns[other]));
        let (low, high) = (order.len().checked_sub(1)? / 2, order.len() / 2);
        let middle = order[low].min(order[high]);
        let sum = |figure: fn(&Measurement) -> u64| visits.iter().map(figure).sum();
        let (timed_ns, elapsed_ns) = (sum(|visit| visit.timed_ns), sum(|visit| visit.elapsed_ns));
        let (first_run_ns, stop) = (visits[0].first_run_ns, visits[middle].stop);
        let min_ns = visits.iter().map(|visit| visit.min_ns).fold(f64::INFINITY, f64::min);
        let max_ns = visits.iter().map(|visit| visit.max_ns).fold(0.0, f64::max);
        let shown = visits.into_iter().nth(middle)?;
        let visits_ns = if visits_ns.len() > 1 { visits_ns } else { Vec::new() };
        Some(Measurement { visits_ns, timed_ns, elapsed_ns, first_run_ns, stop, min_ns, max_ns, ..shown })
    }
}

#[cfg(test)]
mod tests;
