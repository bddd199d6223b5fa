//! Measures the run times of an artifact as a distribution, with its precision.
//!
//! [`sample`] repeats short batches until the median is precise enough or the budget ends; [`evaluate`] follows the
//! rule of TVM's time evaluator. Both return a [`Measurement`] with all samples, the counters of exactly the timed
//! runs, the stop reason and warnings. No sample is dropped, because predictors of tail latency need outliers. Tests
//! replace [`clock::Clock`] with a fake.

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
pub use evaluator::evaluate;
pub use flush::{PinnedThreads, RunThreads};
pub use placement::{PAGE_BYTES, Placement};
pub use plan::{Cache, Evaluator, Method, Plan, PlanError};
pub use race::{Course, Race};
pub use ratio::{ROUNDS, Ratio, ratio};
pub use sampling::sample;
pub use stopping::StopReason;
pub use together::{Meeting, Missed, Shared, Together};
pub use warning::Warning;

use serde::{Deserialize, Serialize};

use crate::counters::{CounterReader, CounterValue, Refusal, Usage};

/// Measures by the given method; see [`sample`] and [`evaluate`].
pub fn measure<E>(
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    method: &Method,
    clock: &mut dyn Clock,
    counters: &mut dyn CounterReader,
) -> Result<Measurement, E> {
    match method {
        Method::Sample(plan) => sample(run, plan, clock, counters),
        Method::Evaluate(rule) => evaluate(run, rule, clock, counters),
    }
}

/// The measured times of one artifact. Times are per run; each sample is the mean over one batch. See [`statistics`]
/// for the definition of each number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    pub n: u32,
    pub median_ns: f64,
    pub mean_ns: f64,
    /// Minimum of the samples, from the least disturbed batch.
    pub min_ns: f64,
    pub max_ns: f64,
    pub p95_ns: f64,
    /// Sample standard deviation; `None` for one sample.
    pub std_ns: Option<f64>,
    /// Coefficient of variation; `None` for one sample.
    pub cv: Option<f64>,
    /// 95 % confidence interval of the median within one visit; `None` for too few samples.
    pub median_interval_ns: Option<(f64, f64)>,
    /// Medians of the summarised visits in time order; empty for a single visit.
    pub visits_ns: Vec<f64>,

    /// Time of the first run, with cold caches, page faults and lazy loading. Not a sample.
    pub first_run_ns: u64,
    /// Number of warm-up runs after the first run.
    pub warm_up_runs: u64,
    /// Runs per sample; the last sample's value if the evaluator's rule increased it.
    pub batch_size: u32,
    /// Number of runs in all samples; counters and CPU time are per run of these.
    pub timed_runs: u64,
    /// Every `samples_stride`-th sample in time order.
    pub samples_ns: Vec<f64>,
    /// Stride of the stored samples; 1 if all are stored.
    pub samples_stride: u32,
    pub timed_ns: u64,
    /// Time of the whole measurement, from before the first run to the last sample.
    pub elapsed_ns: u64,
    /// Bytes written between runs for cold caches; `None` for warm caches.
    pub flush_bytes: Option<u64>,
    pub stop: StopReason,

    /// CPU time per run of all threads of the process, kernel included.
    pub cpu_time_ns: f64,
    /// CPU time per run of the measuring thread.
    pub thread_cpu_time_ns: f64,
    /// Faults and context switches of the process during all samples.
    pub usage: Usage,
    /// Counters per run.
    pub counters: Vec<CounterValue>,
    /// Requested counters without a value, with the reason.
    pub refusals: Vec<Refusal>,

    /// Smallest measurable time difference, including the cost of reading the clock.
    pub clock_precision_ns: u64,
    pub warnings: Vec<Warning>,
}

impl Measurement {
    /// Summarises several visits by the one with the median time (the earlier of two), with the medians of all. `None`
    /// without visits.
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
