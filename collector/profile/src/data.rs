//! Data model of a profile: operators, their spans on threads and devices, counters and memory.
//!
//! Times are whole nanoseconds since the profile's own zero, so that rounding never makes children exceed their parent.
//! Unknown values are absent: a zero has been observed. Lists refer to each other by index. `Profile::check` validates
//! the indices and must run before a profile from a file is used.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Profile of some runs of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub model: String,
    pub source: Source,
    /// Format it was imported from, such as `torch.profiler`; empty if measured here.
    pub format: String,
    /// Compilation target, if known.
    pub target: String,
    /// Threads and device queues. In measured profiles the first one is the calling thread.
    pub tracks: Vec<Track>,
    pub operators: Vec<Operator>,
    /// Counters that were read.
    pub counters: Vec<Counter>,
    /// Counters that were requested but not available.
    pub refusals: Vec<Refusal>,
    /// Whole runs in chronological order.
    pub steps: Vec<Step>,
    /// Spans; children follow their parents.
    pub spans: Vec<Span>,
    /// Counts per span.
    pub counts: Vec<Count>,
    /// Allocations and deallocations in chronological order.
    pub memory: Vec<MemoryEvent>,
    /// Durations of unprofiled runs, interleaved with the steps. Their difference is the overhead of profiling.
    pub bare_ns: Vec<u64>,
    /// Median self time of each operator in further visits: fresh processes with another memory placement.
    #[serde(default)]
    pub visits: Vec<Vec<u64>>,
    /// Remarks that affect the interpretation of the numbers.
    pub notes: Vec<String>,
    /// Energy per run, if requested and reported by a device.
    #[serde(default)]
    pub energy: Vec<Energy>,
    /// Counts from a simulator, kept apart from all measurements.
    #[serde(default)]
    pub simulation: Option<Simulation>,
}

/// Mean energy of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Domain of the meter, such as `gpu`. The energy includes idle consumption of the whole domain.
    pub domain: String,
    pub source: String,
    pub millijoules: f64,
}

/// Counts of single calls on a simulated processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    pub simulator: String,
    /// Compilation target of the simulated code, which may differ from the measured one.
    pub target: String,
    pub caches: Vec<String>,
    /// Simulated tasks, each alone on one thread.
    pub tasks: Vec<SimulatedTask>,
}

/// One simulated call of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedTask {
    pub task: String,
    /// Readable task with sizes.
    pub text: String,
    /// Operations per call.
    pub flops: Option<u64>,
    /// Counts per call, by name.
    pub counts: BTreeMap<String, f64>,
}

/// Source of times. Times of different sources are never combined in a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Measured on the target device.
    #[default]
    Measured,
    /// Measured on a stand-in for the target device.
    Emulated,
    /// Read from another tool's file.
    Imported,
}

/// A thread or a device queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    pub name: String,
    pub process: u64,
    /// Id of the thread or queue.
    pub id: u64,
    pub is_device: bool,
    /// Processor time over all steps, if it was measured.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
}

/// An operator: one call of the program in measured profiles, a name with its shapes in imported ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// Name without sizes: `conv2d +bias +relu`, `aten::addmm`.
    pub name: String,
    /// Readable description with sizes; empty if only the name is known.
    pub text: String,
    pub task: Option<String>,
    pub schedule: Option<String>,
    /// Scope in the model: module names from the outermost to the innermost, separated by `.` or `/`.
    pub scope: String,
    pub input_shapes: Vec<Vec<i64>>,
    /// Element types of the inputs, one per shape.
    pub input_dtypes: Vec<String>,
    pub output_shapes: Vec<Vec<i64>>,
    /// Layout of the operands, unless it is the default.
    pub layout: Option<String>,
    /// Floating-point and integer operations per call.
    pub flops: Option<u64>,
    /// Minimum number of bytes that a call reads and writes.
    pub bytes: Option<u64>,
    /// Lower bound of a call's time from the machine's peak rates.
    pub roofline_ns: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Stable name, or the native name as requested.
    pub name: String,
    /// Unit: `count`, `ns`, `byte` or `microjoule`.
    pub unit: String,
    /// Source: `papi`, `perf`, `usage`, `powercap`, or the imported format.
    pub source: String,
    pub native: String,
    /// Coverage: `thread`, `thread_user`, `descendants`, `descendants_user`, `process`, `machine` or `external`.
    pub coverage: String,
    /// Count between two consecutive readings, if it was measured. The overhead is not subtracted: counts close to it
    /// only show that the true count is small.
    #[serde(default)]
    pub alone: Option<f64>,
}

/// A counter that a source could not provide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub counter: String,
    pub source: String,
    /// Error number of the system or the library, if any.
    pub errno: Option<i32>,
    /// Reason, and the remedy if one is known.
    pub why: String,
}

/// One run of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number among all runs, including unprofiled ones.
    pub number: u64,
    pub cycle: u32,
    pub start_ns: u64,
    /// Duration, including time that belongs to no operator.
    pub duration_ns: u64,
}

/// A time interval on a track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    pub kind: Kind,
    pub operator: u32,
    pub step: Option<u32>,
    pub parent: Option<u32>,
    pub track: u32,
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Processor time of the thread during the span.
    pub cpu_ns: Option<u64>,
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    #[default]
    Operator,
    /// Part of an operator on a thread of the pool.
    Task,
    Kernel,
    /// Copy between devices, or memset.
    Copy,
    /// Call of a device driver or runtime.
    Runtime,
    /// Range annotated by the user.
    Range,
    Overhead,
}

/// Count of one counter during a span, or during the same call of a following run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    pub span: u32,
    pub counter: u32,
    pub value: u64,
    /// Fraction of the time in which the counter was active; below 1 the value is extrapolated.
    pub running_ratio: f64,
}

/// An allocation or deallocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEvent {
    pub at_ns: u64,
    /// Span that caused the event, if known.
    pub span: Option<u32>,
    pub pool: Pool,
    /// Bytes; negative for a deallocation.
    pub bytes: i64,
    /// Bytes in use in this pool after the event.
    pub live_bytes: u64,
}

/// Kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Tensors between operators.
    #[default]
    Activations,
    /// Constants of the model.
    Weights,
    /// Inputs and outputs of the model.
    Border,
    /// Temporary memory of an operator.
    Workspace,
    /// Device memory of unknown kind.
    Device,
}

impl Span {
    /// Returns the end time.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl Step {
    /// Returns the end time.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}
