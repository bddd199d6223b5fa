//! The summary of a profile, as scripts read it.

use crate::network::Comparison;
use crate::network::annotation::Annotation;
use profile::data::{Counter, Energy, Refusal, Simulation};
use profile::summary::threads::Thread;
use profile::summary::{Row, Totals};
use serde::Serialize;
use std::path::PathBuf;

/// The profile of a model.
#[derive(Serialize)]
pub struct Report {
    /// The model.
    pub model: String,
    /// Its batch size, where it has one.
    pub batch: Option<i64>,
    /// The target of its code.
    pub target: String,
    /// Threads that it ran on.
    pub threads: usize,
    /// Seed of its inputs.
    pub seed: u64,
    /// The schedule of profiled runs, where one was given.
    pub schedule: Option<String>,
    /// Calls of a run.
    pub calls: usize,
    /// Different tasks among them.
    pub tasks: usize,
    /// The times of all runs.
    #[serde(flatten)]
    pub totals: TotalTimes,
    /// Memory for tensors between operators.
    pub activation_bytes: u64,
    /// The least that any placement of them takes.
    pub least_activation_bytes: u64,
    /// Memory for constants.
    pub constant_bytes: u64,
    /// The largest resident memory of the process.
    pub peak_memory_bytes: u64,
    /// The outputs compared with the reference, where that was asked for.
    pub check: Option<Comparison>,
    /// Where the records of operators are.
    pub records: Option<OperatorRecords>,
    /// What a row stands for.
    pub group_by: &'static str,
    /// Threads of the pool.
    pub threads_of_pool: Vec<Thread>,
    /// An operator with its code, where one was asked for.
    pub annotation: Option<Annotation>,
    /// The file with names of built code.
    pub perf_map: Option<PathBuf>,
    /// All rows, in their order.
    pub rows: Vec<Row>,
    /// Counters.
    pub counters: Vec<Counter>,
    /// Counters that could not be read.
    pub refusals: Vec<Refusal>,
    /// Energy of runs.
    pub energy: Vec<Energy>,
    /// Counts of a simulator, where they were asked for.
    pub simulated: Option<Simulation>,
    /// Notes on the profile.
    pub notes: Vec<String>,
}

/// Where the records of operators are.
#[derive(Serialize)]
pub struct OperatorRecords {
    /// The folder of the store.
    pub store: String,
    /// The keys.
    pub keys: Vec<String>,
}

/// The times of all runs, with the slowdown by profiling as one number and with its interval.
#[derive(Serialize)]
pub struct TotalTimes {
    pub(super) steps: usize,
    pub(super) sum_ns: u64,
    pub(super) total_ns: u64,
    pub(super) not_attributed_ns: u64,
    pub(super) step_median_ns: f64,
    pub(super) step_min_ns: f64,
    pub(super) bare_median_ns: Option<f64>,
    pub(super) profiler_slowdown: Option<f64>,
    pub(super) profiler_slowdown_interval: Option<(f64, f64)>,
}

impl From<Totals> for TotalTimes {
    fn from(totals: Totals) -> TotalTimes {
        TotalTimes {
            steps: totals.steps,
            sum_ns: totals.sum_ns,
            total_ns: totals.total_ns,
            not_attributed_ns: totals.not_attributed_ns,
            step_median_ns: totals.step_median_ns,
            step_min_ns: totals.step_min_ns,
            bare_median_ns: totals.bare_median_ns,
            profiler_slowdown: totals.profiler_slowdown.map(|ratio| ratio.median),
            profiler_slowdown_interval: totals.profiler_slowdown.and_then(|ratio| ratio.interval),
        }
    }
}

/// What of a report is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The most rows.
    pub row_limit: usize,
    /// Whether rows have columns of memory.
    pub has_memory: bool,
}
