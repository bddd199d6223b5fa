//! What builders and runners are asked, and what they answer.
//!
//! These types cross a process boundary in a compact form that cannot carry self-describing values, so tasks,
//! targets and schedules travel as the JSON text a record keeps.

pub mod device;
pub mod kept;
pub mod listing;
pub mod prepared;
pub mod revision;
pub mod serving;
pub mod space;
pub mod symbols;
pub mod together;

pub use schedules::Packing;
pub use together::{CoRunJob, Lane, Member, MemberReply, RaceJob, TogetherJob, TogetherReply, What};

use crate::device::DeviceCode;
use crate::listing::{CodeWishes, Listing, Samples};
use crate::space::Schedule;
use anyhow::Context;
use measure::counters::{Backend, CounterRequest};
use measure::{Evaluator, Measurement, Method, Placement};
use profile::Profile;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use targets::Target;

/// Compile one schedule of one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildJob {
    /// The task, as JSON.
    pub task: String,
    /// TVM's JSON description of the target.
    pub target: String,
    /// The schedule, as JSON.
    pub schedule: String,
    /// Whether the answer should hold the schedule's trace.
    pub wants_trace: bool,
    /// Whether the answer should tell what became of the schedule at every station.
    pub wants_listing: bool,
}

impl BuildJob {
    /// A task, as JSON, by a schedule. What is drawn is only known by its trace.
    pub fn new(task: &str, target: &Target, schedule: &Schedule) -> BuildJob {
        BuildJob {
            task: task.to_owned(),
            target: target.text.clone(),
            schedule: schedule.to_json(),
            wants_trace: matches!(schedule, Schedule::MetaSchedule { .. }),
            wants_listing: false,
        }
    }
}

/// Breed schedules of one task from those that were measured, by TVM's evolutionary search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreedJob {
    /// The task, as JSON.
    pub task: String,
    /// TVM's JSON description of the target.
    pub target: String,
    /// Schedules of TVM's own space that were measured, as JSON, with their times in nanoseconds.
    pub measured: Vec<(String, f64)>,
    /// How many are wanted.
    pub count: usize,
    /// Seed of every draw, mutation and tree.
    pub seed: i64,
}

/// What came of breeding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BreedReply {
    /// Schedules, as JSON, the most promising first; fewer than wanted where the space has no more.
    Bred(Vec<String>),
    /// TVM refused, or nothing can be learned here; the text says which step and why.
    Failed(String),
}

/// What became of a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BuildReply {
    /// Built code.
    Built(Box<Artifact>),
    /// TVM refused; the text says which step and why.
    Failed(String),
    /// The space has no schedule at this draw.
    Rejected(String),
}

/// Built code with everything a runner needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Artifact {
    /// An ELF object file; empty where the code is a device's.
    pub object: Vec<u8>,
    /// Extensions of the processor's instruction set that the object file uses, in the kernel's spelling.
    pub instruction_sets: Vec<String>,
    /// Kernels and their launches, where the target is a device.
    pub device: Option<DeviceCode>,
    /// Bytes of machine code, of the first architecture where there are several.
    pub code_bytes: u64,
    /// How each parameter must be stored and, last, how the result is.
    pub packings: Vec<Packing>,
    /// The schedule's moves, when asked for.
    pub trace: Option<String>,
    /// What became of the schedule at every station, when asked for.
    pub listing: Option<Box<Listing>>,
    /// Time of lowering and scheduling, in milliseconds.
    pub schedule_ms: f64,
    /// Time of TVM's passes, in milliseconds.
    pub lower_ms: f64,
    /// Time of code generation, in milliseconds.
    pub codegen_ms: f64,
    /// What the scheduled program and its code say of their time, by name.
    pub features: BTreeMap<String, f64>,
}

impl Artifact {
    /// The code as a program's folder holds it: the object file, or the device's kernels with their launches.
    pub fn code(&self) -> Cow<'_, [u8]> {
        match &self.device {
            None => Cow::Borrowed(&self.object),
            Some(code) => Cow::Owned(code.to_bytes()),
        }
    }
}

/// Run one artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunJob {
    /// The task, as JSON.
    pub task: String,
    /// Seed of the input values.
    pub seed: u64,
    /// The artifact's object file; empty where a library computes the task.
    pub object: Vec<u8>,
    /// The artifact's kernels, where it is for a device.
    pub device: Option<DeviceCode>,
    /// How each parameter must be stored and, last, how the result is.
    pub packings: Vec<Packing>,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
    /// How to measure.
    pub method: Method,
    /// Where in memory to measure.
    pub placement: Placement,
    /// What to count.
    pub counters: CounterRequest,
    /// Whether the result is compared with the reference computation.
    pub is_checked: bool,
    /// Whether TVM's own evaluator measures the same artifact too, by this rule.
    pub tvm_evaluator: Option<Evaluator>,
}

impl RunJob {
    /// A checked run without counters of what a library computes, its inputs drawn with the seed 0.
    pub fn new(task: String, cpus: Vec<usize>, method: Method) -> RunJob {
        RunJob {
            task,
            seed: 0,
            object: Vec::new(),
            device: None,
            packings: Vec::new(),
            cpus,
            method,
            placement: Placement::default(),
            counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
            is_checked: true,
            tvm_evaluator: None,
        }
    }

    /// The same run of built code.
    pub fn of(self, artifact: &Artifact) -> RunJob {
        let (object, device, packings) = (artifact.object.clone(), artifact.device.clone(), artifact.packings.clone());
        RunJob { object, device, packings, ..self }
    }

    /// How long it may take: what its rule says, what a slow reference computation of so many operations needs, and slack.
    pub fn deadline(&self, flops: u64, slack: Duration) -> Duration {
        rule_limit(&self.method) + reference_time(flops) + slack
    }
}

/// What a slow reference computation of so many operations may take.
fn reference_time(flops: u64) -> Duration {
    /// A plain computation does far more than this on any machine that compiles models.
    const REFERENCE_FLOPS_PER_SECOND: f64 = 5e7;
    Duration::from_secs_f64(flops as f64 / REFERENCE_FLOPS_PER_SECOND)
}

/// How long measuring may go on. The evaluator's rule has no end of its own: naive candidates of a large operator take a
/// second a run.
fn rule_limit(method: &Method) -> Duration {
    match method {
        Method::Sample(plan) => Duration::from_nanos(plan.time_limit_ns),
        Method::Evaluate(rule) => {
            let runs = u64::from(rule.number) * u64::from(rule.repeat);
            let repeats_ms =
                u64::from(rule.repeat) * (2 * u64::from(rule.min_repeat_ms) + u64::from(rule.cooldown_interval_ms));
            Duration::from_secs(runs) + Duration::from_millis(repeats_ms)
        }
    }
}

impl ModuleJob {
    /// How long it may take.
    pub fn deadline(&self, slack: Duration) -> Duration {
        rule_limit(&self.method) + slack
    }
}

/// What became of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RunReply {
    /// Times, with the comparison when one was asked for.
    Measured(Box<Measured>),
    /// What a simulator says; nothing was measured.
    Simulated(Box<Simulated>),
    /// The artifact computes something else than the task says; no time is given.
    WrongResult(Check),
    /// The artifact could not be loaded or called; the text says why.
    Failed(String),
    /// The library has no form of an operator of the task; the text says of which, and why.
    Unsupported(String),
    /// What was seen of the operators of a whole model.
    Profiled(Box<Profiled>),
    /// What was seen of things that ran at once.
    Together(TogetherReply),
}

/// Run something through a library that compiles nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LibraryJob {
    /// A task; the job has no code.
    Task(RunJob),
    /// A whole TorchScript file.
    Module(ModuleJob),
    /// A whole model, as calls of tasks.
    Network(NetworkJob),
}

/// Run a TorchScript file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleJob {
    /// The file.
    pub path: PathBuf,
    /// The BLAKE3 hash of its content: nothing else is run.
    pub hash: String,
    /// Types of its inputs, such as `f32[1,3,224,224]`, in the order of its arguments.
    pub inputs: Vec<String>,
    /// Seed of the input values.
    pub seed: u64,
    /// One thread for each of these CPUs.
    pub cpus: Vec<usize>,
    /// How to measure.
    pub method: Method,
    /// What to count.
    pub counters: CounterRequest,
}

/// What runs a whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// The program that was made of it.
    Program,
    /// ONNX Runtime, from the model's file.
    OnnxRuntime,
    /// OpenVINO, from the model's file.
    OpenVino,
    /// PyTorch's library, from a program whose codes are tasks as JSON.
    Torch,
    /// The program that was made of it, on a GPU.
    Cuda,
}

/// Run a whole model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkJob {
    /// By what.
    pub engine: Engine,
    /// The folder of its program, or of its file.
    pub program: PathBuf,
    /// A file of its inputs, one after the other.
    pub inputs: PathBuf,
    /// The file that its outputs are written to, one after the other.
    pub outputs: PathBuf,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
    /// How to measure.
    pub method: Method,
    /// Where in memory to measure.
    pub placement: Placement,
    /// What to count.
    pub counters: CounterRequest,
    /// How to look at its operators, where that is wanted instead of the times of the whole.
    pub profile: Option<profile::Plan>,
    /// What is wanted of its code beside that.
    pub code: CodeWishes,
}

impl NetworkJob {
    /// The bytes of its inputs.
    pub fn read_inputs(&self) -> anyhow::Result<Vec<u8>> {
        fs::read(&self.inputs).with_context(|| format!("cannot read `{}`", self.inputs.display()))
    }

    /// Puts the bytes of its outputs where they are wanted.
    pub fn write_outputs(&self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        fs::write(&self.outputs, bytes).with_context(|| format!("cannot write `{}`", self.outputs.display()))
    }

    /// How long it may take.
    pub fn deadline(&self, slack: Duration) -> Duration {
        let limit = match &self.profile {
            Some(plan) => Duration::from_nanos(plan.limit_ns),
            None => rule_limit(&self.method),
        };
        let sampling = self.code.sampling.map_or(Duration::ZERO, |sampling| Duration::from_nanos(sampling.budget_ns));
        limit + sampling + slack
    }
}

/// Operators of a whole model that somebody looked at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profiled {
    /// What was seen; that spans speak of calls, and what those are, whoever asked knows.
    pub profile: Profile,
    /// Where code was, when somebody looked.
    pub samples: Option<Samples>,
    /// The file with names of functions for `perf`, where that was wanted.
    pub perf_map: Option<PathBuf>,
    /// Largest resident memory of the runner so far.
    pub peak_memory_bytes: u64,
}

/// A measured artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Times and counters.
    pub measurement: Measurement,
    /// The comparison with the reference.
    pub check: Option<Check>,
    /// Largest resident memory of the runner so far.
    pub peak_memory_bytes: u64,
    /// What TVM's own evaluator measured, when asked for: seconds per run, one number per repeat.
    pub tvm_seconds: Vec<f64>,
    /// Whether something failed after measuring, so that the next job needs a runner of its own.
    pub is_runner_spent: bool,
    /// When each group of each stage begins and ends after the beginning of a run, in the middle run, where calls run in stages.
    pub stages_ns: Vec<Vec<(f64, f64)>>,
}

impl Measured {
    /// What was measured by our own rule, in a runner that can go on.
    pub fn new(measurement: Measurement, check: Option<Check>, peak_memory_bytes: u64) -> Measured {
        Measured {
            measurement,
            check,
            peak_memory_bytes,
            tvm_seconds: Vec::new(),
            is_runner_spent: false,
            stages_ns: Vec::new(),
        }
    }
}

/// A simulated run. It is no measurement, and nothing makes one of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// The time on the device, without the host's part.
    pub time_ns: f64,
    /// What the simulator counted, by name.
    pub counts: BTreeMap<String, f64>,
    /// The comparison with the reference.
    pub check: Check,
}

/// How far a result is from the reference computation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Largest absolute difference.
    pub max_abs_error: f64,
    /// Largest relative difference.
    pub max_rel_error: f64,
    /// Whether every element is within the tolerance.
    pub is_right: bool,
}
