//! Data model of a profile: operators, their spans on threads and devices, counters and memory.
//! Times are whole nanoseconds since the start of the profile, so that rounding never makes children exceed their
//! parent. Unknown values are absent, so a zero is an observed value. Lists refer to each other by index.
//! `Profile::check` validates the indices and must run before a profile from a file is used.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub model: String,
    pub source: Source,
    /// Format of the imported file, such as `torch.profiler`; empty for a profile measured by this program.
    pub format: String,
    pub target: String,
    /// Threads and device queues; in measured profiles, the calling thread comes first.
    pub tracks: Vec<Track>,
    pub operators: Vec<Operator>,
    pub counters: Vec<Counter>,
    pub refusals: Vec<Refusal>,
    pub steps: Vec<Step>,
    /// Spans, each after its parent.
    pub spans: Vec<Span>,
    pub counts: Vec<Count>,
    /// Memory events in chronological order.
    pub memory: Vec<MemoryEvent>,
    /// Durations of unprofiled runs, one next to each step. The difference is the overhead of profiling.
    pub bare_ns: Vec<u64>,
    /// Median self time of each operator in further visits: fresh processes with another memory placement.
    #[serde(default)]
    pub visits: Vec<Vec<u64>>,
    pub notes: Vec<String>,
    #[serde(default)]
    pub energy: Vec<Energy>,
    #[serde(default)]
    pub simulation: Option<Simulation>,
    /// Peak rates of the memory levels for the threads of the profile, the fastest level first.
    #[serde(default)]
    pub memory_roofs: Vec<MemoryRoof>,
    /// Wall-clock time of the start of the profile in nanoseconds since 1970, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_clock_start_ns: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRoof {
    /// Name of the level, such as `L2` or `DRAM`.
    pub level: String,
    pub bytes_per_second: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Domain that the meter covers, such as `gpu`; the energy includes that of an idle device.
    pub domain: String,
    pub source: String,
    pub millijoules: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    pub simulator: String,
    /// Compilation target of the simulated code, which may differ from the measured one.
    pub target: String,
    pub caches: Vec<String>,
    pub tasks: Vec<SimulatedTask>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedTask {
    pub task: String,
    pub text: String,
    pub flops: Option<u64>,
    pub counts: BTreeMap<String, f64>,
}

/// Origin of the times. Times of different origins are never summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    #[default]
    Measured,
    /// Measured on a stand-in for the target device, such as an emulator.
    Emulated,
    Imported,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    pub name: String,
    pub process: u64,
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
    /// Name without sizes, such as `conv2d +bias +relu` or `aten::addmm`.
    pub name: String,
    /// Description with sizes; empty if only the name is known.
    pub text: String,
    pub task: Option<String>,
    pub schedule: Option<String>,
    /// Module names from the outermost to the innermost, separated by `.` or `/`.
    pub scope: String,
    pub input_shapes: Vec<Vec<i64>>,
    /// Element types, one per input shape.
    pub input_dtypes: Vec<String>,
    pub output_shapes: Vec<Vec<i64>>,
    /// Layout of the operands; None for the default layout.
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
    /// Stable name of the counter, or its native name if that was requested.
    pub name: String,
    /// Unit of the counts: `count`, `ns`, `byte` or `microjoule`.
    pub unit: String,
    /// Source of the counts: `papi`, `perf`, `usage`, `powercap` or the imported format.
    pub source: String,
    pub native: String,
    /// Either `thread`, `thread_user`, `descendants`, `descendants_user`, `process`, `machine` or `external`.
    pub coverage: String,
    /// Count between two consecutive readings, if it was measured: the overhead of reading, which is not subtracted.
    #[serde(default)]
    pub alone: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    pub counter: String,
    pub source: String,
    pub errno: Option<i32>,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Number of the run, counting unprofiled runs too.
    pub number: u64,
    pub cycle: u32,
    pub start_ns: u64,
    pub duration_ns: u64,
}

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
    pub cpu_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    #[default]
    Operator,
    /// Part of an operator that a thread of the thread pool executes.
    Task,
    Kernel,
    Copy,
    Runtime,
    Range,
    Overhead,
}

/// Value of one counter during a span or, if counted in a separate run, during the same call of that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    pub span: u32,
    pub counter: u32,
    pub value: u64,
    /// Share of the time in which the counter was active; below 1, the value is extrapolated.
    pub running_ratio: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEvent {
    pub at_ns: u64,
    pub span: Option<u32>,
    pub pool: Pool,
    /// Allocated bytes; negative for a deallocation.
    pub bytes: i64,
    /// Bytes in use in the pool after the event.
    pub live_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    #[default]
    Activations,
    Weights,
    Border,
    Workspace,
    /// Device memory of unknown kind.
    Device,
}

/// Suffix of the names of counters that cover the tasks of a call, on all threads.
pub const IN_TASKS: &str = "_in_tasks";

impl Operator {
    /// Returns the description with sizes, or the name if there is none.
    pub fn title(&self) -> &str {
        if self.text.is_empty() { &self.name } else { &self.text }
    }
}

impl Span {
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl Step {
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}
