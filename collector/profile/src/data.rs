//! What a profile is: operators, and when each of them ran, on which thread, with which counts and how much memory.
//!
//! Times are whole nanoseconds from the profile's own zero to the very end, so that parts never exceed their whole by rounding.
//! Whatever is not known is absent: a zero is something that was seen. Lists refer to each other by index; `Profile::check`
//! says whether they fit, and is asked before anything that came from a file is used.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All that was seen of some runs of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What ran, as a person calls it.
    pub model: String,
    /// How the times came about.
    pub source: Source,
    /// Whose format it was read from, such as `torch.profiler`; empty where we measured.
    pub format: String,
    /// What it was compiled for, where that is known.
    pub target: String,
    /// What things happened on. Of our own profiles the first is the thread that calls.
    pub tracks: Vec<Track>,
    /// What was called.
    pub operators: Vec<Operator>,
    /// What was counted.
    pub counters: Vec<Counter>,
    /// What was to be counted and was not.
    pub refusals: Vec<Refusal>,
    /// Whole runs, in the order of time.
    pub steps: Vec<Step>,
    /// What happened. A span stands behind the one that it is a part of.
    pub spans: Vec<Span>,
    /// What was counted during spans.
    pub counts: Vec<Count>,
    /// What was taken and given back, in the order of time.
    pub memory: Vec<MemoryEvent>,
    /// Times of runs that nobody looked at, in turns with those that are the steps: what looking costs.
    pub bare_ns: Vec<u64>,
    /// What a reader should know before trusting the numbers.
    pub notes: Vec<String>,
    /// Energy of whole runs, where it was asked for and a device tells it.
    #[serde(default)]
    pub energy: Vec<Energy>,
    /// What a simulator counted, where one was asked: apart from all that was measured.
    #[serde(default)]
    pub simulation: Option<Simulation>,
}

/// Energy of one run, the mean of many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Whose it is, such as `gpu`; all that it used meanwhile, idle or not.
    pub domain: String,
    /// What tells it.
    pub source: String,
    /// The energy of one run.
    pub millijoules: f64,
}

/// What a simulator of a processor counted of single calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    /// The simulator and its version.
    pub simulator: String,
    /// What the code was compiled for, which need not be what was measured.
    pub target: String,
    /// The caches that were simulated, as it describes them.
    pub caches: Vec<String>,
    /// Tasks, each alone on one thread.
    pub tasks: Vec<SimulatedTask>,
}

/// One call of a task in a simulator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedTask {
    /// The hash of the task.
    pub task: String,
    /// What it does, with sizes.
    pub text: String,
    /// Operations of a call.
    pub flops: Option<u64>,
    /// Counts of a call by name.
    pub counts: BTreeMap<String, f64>,
}

/// How times came about; those of one kind never meet those of another in a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// On the device that the target names.
    #[default]
    Measured,
    /// On something that stands in for it.
    Emulated,
    /// By somebody else.
    Imported,
}

/// A thread, or a queue of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Its process, as the system numbers it.
    pub process: u64,
    /// Its thread or queue, as the system numbers it.
    pub id: u64,
    /// Whether it is a queue of a device.
    pub is_device: bool,
    /// Its processor time in all steps together, where that was looked at.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
}

/// Something that is called: in our own profiles one call of the program, in others a name with its shapes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// What it does, without sizes: `conv2d +bias +relu`, `aten::addmm`.
    pub name: String,
    /// What it does, with sizes, as a person reads it; empty where only the name is known.
    pub text: String,
    /// The hash of its task.
    pub task: Option<String>,
    /// The hash of its schedule.
    pub schedule: Option<String>,
    /// Where it stands in the model: names of modules, the outermost first, with `.` or `/` between.
    pub scope: String,
    /// Shapes of its inputs.
    pub input_shapes: Vec<Vec<i64>>,
    /// Element types of its inputs, as many as shapes.
    pub input_dtypes: Vec<String>,
    /// Shapes of its outputs.
    pub output_shapes: Vec<Vec<i64>>,
    /// How its operands are stored, where that is not plain.
    pub layout: Option<String>,
    /// Floating-point and integer operations of one call.
    pub flops: Option<u64>,
    /// Bytes that one call reads and writes at least.
    pub bytes: Option<u64>,
    /// What a call could take at best on this machine, by its peaks.
    pub roofline_ns: Option<f64>,
}

/// One kind of count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// The stable name, or the native one as it was asked for.
    pub name: String,
    /// What is counted: `count`, `ns`, `byte`, `microjoule`.
    pub unit: String,
    /// Where it comes from: `papi`, `perf`, `usage`, `powercap`, or the format it was read from.
    pub source: String,
    /// The name at its source.
    pub native: String,
    /// Whose work it counts: `thread`, `thread_user`, `descendants`, `descendants_user`, `process`, `machine`, `external`.
    pub coverage: String,
    /// What it counts between two readings with nothing between them, where that was looked at. Nothing is subtracted: counts
    /// near this one only say that there was no more.
    #[serde(default)]
    pub alone: Option<f64>,
}

/// A counter that was asked for and not given by one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The counter, by the name it was asked for.
    pub counter: String,
    /// The source that refused.
    pub source: String,
    /// The system's or the library's error number, where there is one.
    pub errno: Option<i32>,
    /// The reason, and the cure where one is known.
    pub why: String,
}

/// One run of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its number among all runs, those that were not looked at among them.
    pub number: u64,
    /// Which of the schedule's cycles it belongs to.
    pub cycle: u32,
    /// When it began.
    pub start_ns: u64,
    /// How long it took, everything that no operator accounts for included.
    pub duration_ns: u64,
}

/// Something that began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// What sort of thing it is.
    pub kind: Kind,
    /// What was called, by its place among the operators.
    pub operator: u32,
    /// The step it belongs to, by its place among the steps.
    pub step: Option<u32>,
    /// The span it is a part of, by its place among the spans.
    pub parent: Option<u32>,
    /// Where it ran, by its place among the tracks.
    pub track: u32,
    /// When it began.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Processor time of its thread meanwhile.
    pub cpu_ns: Option<u64>,
}

/// The sorts of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An operator.
    #[default]
    Operator,
    /// A part of an operator that a thread of the pool does.
    Task,
    /// What a device does.
    Kernel,
    /// A copy between devices, or a filling of their memory.
    Copy,
    /// A call of a device's driver or runtime.
    Runtime,
    /// What a person marked.
    Range,
    /// What profiling itself takes.
    Overhead,
}

/// What one counter counted during one span, or during the same call of a run right after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// The span, by its place.
    pub span: u32,
    /// The counter, by its place.
    pub counter: u32,
    /// The count.
    pub value: u64,
    /// Part of the time it really counted; below 1 the value is an estimate.
    pub running_ratio: f64,
}

/// Memory that was taken or given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryEvent {
    /// When.
    pub at_ns: u64,
    /// What took it or gave it back, where that is known.
    pub span: Option<u32>,
    /// What kind of memory.
    pub pool: Pool,
    /// How much; negative where it was given back.
    pub bytes: i64,
    /// What of this pool is taken from then on.
    pub live_bytes: u64,
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Tensors between operators.
    #[default]
    Activations,
    /// What is the same at every run.
    Weights,
    /// What the model is given and answers.
    Border,
    /// What an operator needs for itself.
    Workspace,
    /// A device's memory, where nothing more is known.
    Device,
}

impl Span {
    /// When it ended.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl Step {
    /// When it ended.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}
