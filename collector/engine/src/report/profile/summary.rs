//! Machine-readable summary of a profile, for scripts.

use crate::network::Comparison;
use crate::network::annotation::Annotation;
use profile::data::{Counter, Energy, Refusal, Simulation};
use profile::summary::threads::Thread;
use profile::summary::{Row, Totals, TypicalStep};
use serde::Serialize;
use std::path::PathBuf;

/// Summary of a profile, serialised as JSON.
#[derive(Serialize)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Batch size, if the model has one.
    pub batch: Option<i64>,
    /// Target of the compiled code.
    pub target: String,
    /// Number of threads.
    pub threads: usize,
    /// Seed of the input values.
    pub seed: u64,
    /// Profiling schedule, which selects the profiled runs, if one was given.
    pub schedule: Option<String>,
    /// Number of calls per run.
    pub calls: usize,
    /// Number of distinct tasks.
    pub tasks: usize,
    /// Total times and statistics over all profiled runs.
    #[serde(flatten)]
    pub totals: TotalTimes,
    /// Memory for the tensors between operators, in bytes.
    pub activation_bytes: u64,
    /// Lower bound of the memory for tensors between operators, for any placement of the tensors, in bytes.
    pub least_activation_bytes: u64,
    /// Memory for constants, in bytes.
    pub constant_bytes: u64,
    /// Largest resident memory of the process, in bytes.
    pub peak_memory_bytes: u64,
    /// Comparison of the outputs with the reference, if it was requested.
    pub check: Option<Comparison>,
    /// Location of the stored records of operators, if a store was given.
    pub records: Option<OperatorRecords>,
    /// Grouping of calls into rows.
    pub group_by: &'static str,
    /// Times of each thread of the thread pool.
    pub threads_of_pool: Vec<Thread>,
    /// Annotated operator, if one was requested.
    pub annotation: Option<Annotation>,
    /// File with the symbols of the compiled code, for `perf`, if it was requested.
    pub perf_map: Option<PathBuf>,
    /// All rows of the table, in the requested order.
    pub rows: Vec<Row>,
    /// Counters of the profile, each with its unit, source and coverage.
    pub counters: Vec<Counter>,
    /// Reasons why counters could not be read.
    pub refusals: Vec<Refusal>,
    /// Energy of the profiled runs, by domain of the meter.
    pub energy: Vec<Energy>,
    /// Counts of a simulator, if they were requested.
    pub simulated: Option<Simulation>,
    /// Notes on the profile.
    pub notes: Vec<String>,
}

/// Store and keys of the records of operators.
#[derive(Serialize)]
pub struct OperatorRecords {
    /// The folder of the store.
    pub store: String,
    /// Keys of the records.
    pub keys: Vec<String>,
}

/// Total times and statistics over all profiled runs. The slowdown by profiling is given as a ratio and its interval.
#[derive(Serialize)]
pub struct TotalTimes {
    pub(super) steps: usize,
    pub(super) sum_ns: u64,
    pub(super) total_ns: u64,
    pub(super) not_attributed_ns: u64,
    pub(super) step_median_ns: f64,
    pub(super) step_min_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) typical: Option<TypicalStep>,
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
            typical: totals.typical,
            bare_median_ns: totals.bare_median_ns,
            profiler_slowdown: totals.profiler_slowdown.map(|ratio| ratio.median),
            profiler_slowdown_interval: totals.profiler_slowdown.and_then(|ratio| ratio.interval),
        }
    }
}

/// The part of a summary that is shown.
#[derive(Clone, Copy, Debug)]
pub struct ProfileView {
    /// Largest number of rows.
    pub row_limit: usize,
    /// Whether the table has columns for memory.
    pub has_memory: bool,
}
