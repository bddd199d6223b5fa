//! Turns runs of one artifact into a distribution of times that says how far it can be trusted.
//!
//! [`sample`] repeats short batches until the median is known to the plan's precision or the budget ends;
//! [`evaluate`] follows the rule of TVM's own time evaluator, for comparison like with like. Both return a
//! [`Measurement`], which keeps the samples, the counters of exactly the timed runs, the reason for stopping, and
//! warnings as values. No sample is ever dropped: a predictor of tail latency needs the outliers too.
//!
//! The clock is a seam ([`clock::Clock`]): the logic is tested on a clock that moves only when told.

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

/// Measures by the given method. See [`sample`] and [`evaluate`].
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

/// What was seen of one artifact. Times are of a single run; every sample is the mean over one batch of runs.
///
/// See [`statistics`] for the exact definition of each number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Number of samples the statistics are of.
    pub n: u32,
    /// Median of the samples.
    pub median_ns: f64,
    /// Mean of the samples.
    pub mean_ns: f64,
    /// Smallest sample: the least disturbed batch.
    pub min_ns: f64,
    /// Largest sample.
    pub max_ns: f64,
    /// 95th percentile of the samples.
    pub p95_ns: f64,
    /// Sample standard deviation; `None` for one sample.
    pub std_ns: Option<f64>,
    /// Standard deviation over mean; `None` for one sample.
    pub cv: Option<f64>,
    /// 95 % confidence interval of the median within one visit, low and high; `None` for too few samples.
    pub median_interval_ns: Option<(f64, f64)>,
    /// Medians of the visits that this sums up, in the order of time; empty for a single visit.
    pub visits_ns: Vec<f64>,

    /// Time of the very first run, which pays for cold caches, page faults and lazy loading. Not among the samples.
    pub first_run_ns: u64,
    /// Runs between the first and the timed ones.
    pub warm_up_runs: u64,
    /// Runs per sample (of the last sample, where the evaluator's rule let it grow).
    pub batch_size: u32,
    /// Runs in all samples together; counters and processor time are per run of these.
    pub timed_runs: u64,
    /// The samples in the order of their making: every `samples_stride`-th one.
    pub samples_ns: Vec<f64>,
    /// 1 when all samples are kept.
    pub samples_stride: u32,
    /// Time of all samples together.
    pub timed_ns: u64,
    /// Time of the whole measuring, from before the first run to the last sample.
    pub elapsed_ns: u64,
    /// Bytes written between runs to make caches cold; `None` when they were left warm.
    pub flush_bytes: Option<u64>,
    /// Why sampling stopped.
    pub stop: StopReason,

    /// Processor time per run of all threads of the process, kernel included: what a run costs the machine.
    pub cpu_time_ns: f64,
    /// Processor time per run of the measuring thread alone.
    pub thread_cpu_time_ns: f64,
    /// What the process used during all samples: faults and context switches of all its threads.
    pub usage: Usage,
    /// Counters per run.
    pub counters: Vec<CounterValue>,
    /// Counters asked for and not given, and why.
    pub refusals: Vec<Refusal>,

    /// Smallest difference the clock can show, its own cost included.
    pub clock_precision_ns: u64,
    /// What a reader should know before trusting the numbers.
    pub warnings: Vec<Warning>,
}

impl Measurement {
    /// Several visits as one: the one with the middle median, of an even number the earlier of both, with the medians of all.
    /// `None` when there are none.
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
