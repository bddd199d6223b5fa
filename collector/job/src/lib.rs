//! Jobs of builders and runners, and their replies. They cross a process boundary in a compact format without
//! self-describing values, so tasks, targets and schedules are JSON text as in records.

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
pub use together::{CoRunJob, Member, MemberReply, MemberWork, RaceJob, RaceLane, TogetherJob, TogetherReply};

use crate::device::DeviceCode;
use crate::listing::{CodeRequests, Listing, Samples};
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildJob {
    pub task: String,
    /// Target as JSON for TVM.
    pub target: String,
    pub schedule: String,
    pub wants_trace: bool,
    pub wants_listing: bool,
}

impl BuildJob {
    /// Creates a build job; requests the trace of a random schedule, because only it contains the moves.
    pub fn for_schedule(task: &str, target: &Target, schedule: &Schedule) -> BuildJob {
        BuildJob {
            task: task.to_owned(),
            target: target.text.clone(),
            schedule: schedule.to_json(),
            wants_trace: matches!(schedule, Schedule::MetaSchedule { .. }),
            wants_listing: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreedJob {
    pub task: String,
    pub target: String,
    /// Measured schedules of TVM's space, as JSON, with their times in nanoseconds.
    pub measured: Vec<(String, f64)>,
    pub count: usize,
    pub seed: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BreedReply {
    /// New schedules as JSON, best predictions first; fewer than requested if the space is exhausted.
    Bred(Vec<String>),
    Failed(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BuildReply {
    Built(Box<Artifact>),
    Failed(String),
    /// The schedule space has no schedule for this seed.
    Rejected(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Artifact {
    /// ELF object file; empty for device code.
    pub object: Vec<u8>,
    /// Instruction set extensions that the object file uses, in the Linux kernel's spelling.
    pub instruction_sets: Vec<String>,
    pub device: Option<DeviceCode>,
    /// Size of the machine code in bytes; if there are several architectures, of the code for the first.
    pub code_bytes: u64,
    /// Storage format of each parameter, followed by that of the result.
    pub packings: Vec<Packing>,
    pub trace: Option<String>,
    pub listing: Option<Box<Listing>>,
    /// Time for lowering the task and for scheduling.
    pub schedule_ms: f64,
    /// Time for TVM's passes.
    pub lower_ms: f64,
    pub codegen_ms: f64,
    pub features: BTreeMap<String, f64>,
}

impl Artifact {
    /// Returns the object file, or for GPUs the kernels with their launches, as bytes.
    pub fn stored_code(&self) -> Cow<'_, [u8]> {
        match &self.device {
            None => Cow::Borrowed(&self.object),
            Some(code) => Cow::Owned(code.to_bytes()),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunJob {
    pub task: String,
    pub seed: u64,
    /// ELF object file; empty if a library runs the task.
    pub object: Vec<u8>,
    pub device: Option<DeviceCode>,
    pub packings: Vec<Packing>,
    pub cpus: Vec<usize>,
    pub method: Method,
    pub placement: Placement,
    pub counters: CounterRequest,
    pub is_checked: bool,
    pub tvm_evaluator: Option<Evaluator>,
}

impl RunJob {
    /// Creates a checked job for a library, without counters and with inputs of seed 0.
    pub fn library_run(task: String, cpus: Vec<usize>, method: Method) -> RunJob {
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

    pub fn with_artifact(self, artifact: &Artifact) -> RunJob {
        let (object, device, packings) = (artifact.object.clone(), artifact.device.clone(), artifact.packings.clone());
        RunJob { object, device, packings, ..self }
    }

    /// Returns the time for measuring, for a reference computation of `flops` on a slow machine, and `slack`, summed.
    pub fn time_limit(&self, flops: u64, slack: Duration) -> Duration {
        rule_limit(&self.method) + reference_time(flops) + slack
    }
}

fn reference_time(flops: u64) -> Duration {
    /// Lower bound of the reference computation's speed on any machine that can compile models.
    const REFERENCE_FLOPS_PER_SECOND: f64 = 5e7;
    Duration::from_secs_f64(flops as f64 / REFERENCE_FLOPS_PER_SECOND)
}

/// Returns the time limit of a method. TVM's evaluator may take a second per run, plus minimum repeats and cooldowns.
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
    pub fn time_limit(&self, slack: Duration) -> Duration {
        rule_limit(&self.method) + slack
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RunReply {
    Measured(Box<Measured>),
    Simulated(Box<Simulated>),
    WrongResult(Check),
    Failed(String),
    Unsupported(String),
    Profiled(Box<Profiled>),
    Together(TogetherReply),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LibraryJob {
    Task(RunJob),
    Module(ModuleJob),
    Network(NetworkJob),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleJob {
    pub path: PathBuf,
    /// Required BLAKE3 hash of the file's content.
    pub hash: String,
    /// Types of the inputs, such as `f32[1,3,224,224]`, in argument order.
    pub inputs: Vec<String>,
    pub seed: u64,
    pub cpus: Vec<usize>,
    pub method: Method,
    pub counters: CounterRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    Program,
    OnnxRuntime,
    OpenVino,
    /// PyTorch, which runs a program whose code entries are tasks in JSON.
    Torch,
    Cuda,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkJob {
    pub engine: Engine,
    /// Folder of the compiled program, or file of the model.
    pub program: PathBuf,
    pub inputs: PathBuf,
    /// File that receives the concatenated outputs.
    pub outputs: PathBuf,
    pub cpus: Vec<usize>,
    pub method: Method,
    pub placement: Placement,
    pub counters: CounterRequest,
    pub profile: Option<profile::Plan>,
    pub code: CodeRequests,
}

impl NetworkJob {
    pub fn read_inputs(&self) -> anyhow::Result<Vec<u8>> {
        fs::read(&self.inputs).with_context(|| format!("cannot read `{}`", self.inputs.display()))
    }

    pub fn write_outputs(&self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        fs::write(&self.outputs, bytes).with_context(|| format!("cannot write `{}`", self.outputs.display()))
    }

    pub fn time_limit(&self, slack: Duration) -> Duration {
        let limit = match &self.profile {
            Some(plan) => Duration::from_nanos(plan.limit_ns),
            None => rule_limit(&self.method),
        };
        let sampling = self.code.sampling.map_or(Duration::ZERO, |sampling| Duration::from_nanos(sampling.budget_ns));
        limit + sampling + slack
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Profiled {
    pub profile: Profile,
    pub samples: Option<Samples>,
    pub perf_map: Option<PathBuf>,
    pub peak_memory_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub measurement: Measurement,
    pub check: Option<Check>,
    pub peak_memory_bytes: u64,
    /// Seconds per run from TVM's own time evaluator, one value per repeat; empty unless requested.
    pub tvm_seconds: Vec<f64>,
    /// Whether the runner must be replaced before the next job, because an error followed the measurement.
    pub is_runner_spent: bool,
    /// For staged programs: start and end of each group of each stage, relative to the start of the median run.
    pub stages_ns: Vec<Vec<(f64, f64)>>,
}

impl Measured {
    pub fn from_measurement(measurement: Measurement, check: Option<Check>, peak_memory_bytes: u64) -> Measured {
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Simulated time on the device, without the host's part.
    pub time_ns: f64,
    pub counts: BTreeMap<String, f64>,
    pub check: Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub max_abs_error: f64,
    pub max_rel_error: f64,
    pub is_right: bool,
}
