//! The builder: task and schedule in, object out.

use crate::apply::{ApplyError, SpaceCache, apply};
use crate::code;
use crate::lower::{Lowered, Sums, lower};
use crate::tvm::compile::{CompileTarget, compile};
use crate::tvm::expression::Module;
use crate::tvm::{device, features, object, trace};
use anyhow::{Context, Result};
use cuda::nvrtc::Nvrtc;
use job::device::DeviceCode;
use job::flat::flat;
use job::space::{Layout, Schedule};
use job::{Artifact, BuildJob, BuildReply, Packing};
use models::{Task, TensorType};
use std::collections::BTreeMap;
use std::time::Instant;

/// How the parameters of a task and, last, its result are stored, which was written down like this.
fn packings(task: &Task, written: &Task, lowered: &Lowered) -> Vec<Packing> {
    let places = task.steps[0].output.rank().saturating_sub(2);
    let packing = |own: &TensorType, written: &TensorType, wanted: Packing| match own == written {
        true => wanted,
        false => Packing::Row { dimensions: places },
    };
    let stored = lowered.packings.iter();
    let parameters = task.parameters.iter().zip(&written.parameters).zip(stored);
    let parameters = parameters.map(|((own, written), wanted)| packing(&own.ty, &written.ty, *wanted));
    let results = [task, written].map(|task| &task.steps[task.steps.len() - 1].output);
    parameters.chain([packing(results[0], results[1], Packing::Plain)]).collect()
}

/// Whether a function only checks arguments, raises errors or converts numbers.
fn is_glue(name: &str) -> bool {
    name.starts_with("__")
}

/// How a task is written down for a schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Form {
    layout: Layout,
    /// Whether all places of an image are one row, where nothing looks at rows.
    is_flat: bool,
}

impl Form {
    /// Our own schedules for CPUs are declared for flat tasks; TVM's moves are for tasks as its operators define them.
    fn of(schedule: &Schedule, target: &CompileTarget) -> Form {
        let is_own = matches!(schedule, Schedule::Template { .. });
        Form { layout: schedule.layout(), is_flat: is_own && target.architectures.is_empty() }
    }
}

/// Answers build jobs; keeps what the next job of the same task can use.
#[derive(Default)]
pub struct Builder {
    target: Option<(String, CompileTarget)>,
    task: Option<(String, Task)>,
    /// The task as it was written down, and its blocks.
    lowered: Option<(Form, Task, Lowered)>,
    spaces: SpaceCache,
    nvrtc: Option<Nvrtc>,
}

impl Builder {
    /// Does one job.
    pub fn answer(&mut self, job: &BuildJob) -> BuildReply {
        match self.build(job) {
            Ok(artifact) => BuildReply::Built(Box::new(artifact)),
            Err(error) => match error.downcast_ref::<ApplyError>() {
                Some(ApplyError::Rejected) => BuildReply::Rejected(error.to_string()),
                _ => BuildReply::Failed(format!("{error:#}")),
            },
        }
    }

    fn build(&mut self, job: &BuildJob) -> Result<Artifact> {
        let start = Instant::now();
        let schedule = Schedule::from_json(&job.schedule)?;
        let target = self.target(&job.target)?;
        let sums = if target.architectures.is_empty() { Sums::Own } else { Sums::Wide };
        self.lower(&job.task, Form::of(&schedule, &target), sums)?;
        let (_, task) = self.task.as_ref().expect("just read");
        let (_, written, lowered) = self.lowered.as_ref().expect("just lowered");
        let moves = apply(written, lowered, &schedule, &target, &mut self.spaces)?;
        let trace = if job.wants_trace { Some(trace::to_json(&moves)?.to_string()) } else { None };
        let module = moves.module()?;
        let schedule_ms = start.elapsed().as_secs_f64() * 1e3;
        // Programs that TVM cannot describe, such as those of symbolic sizes, are built all the same.
        let stores = features::per_store(&moves, &target).unwrap_or_default();
        let mut features = features::of_stores(&stores);
        let packings = packings(task, written, lowered);
        if !target.architectures.is_empty() {
            // What was drawn is known by its moves alone.
            let schedule = match schedule {
                Schedule::MetaSchedule { trace: None, .. } => Schedule::Trace { trace: trace::to_json(&moves)? },
                other => other,
            };
            let artifact =
                Artifact { packings, trace, schedule_ms, features, ..self.device_code(&module, &target, &schedule)? };
            return Ok(artifact);
        }
        let object = compile(&module, &target, schedule.functions()).context("cannot compile")?;
        let macs = task.work().map_or(0, |work| work.macs);
        features.insert("object_bytes".to_owned(), object.bytes.len() as f64);
        // Objects for other processors are not read.
        let mut instruction_sets = Vec::new();
        if let Ok(functions) = object::functions(&object.bytes) {
            instruction_sets = code::instruction_sets(functions.iter().map(|(_, code)| code.as_slice()));
            let own = functions.iter().filter(|(name, _)| !is_glue(name)).map(|(_, code)| code.as_slice());
            let found = code::features(own, macs as f64);
            features.extend(found.into_iter().map(|(name, value)| (format!("code_{name}"), value)));
        }
        Ok(Artifact {
            code_bytes: object::code_bytes(&object.bytes).context("the compiler made an unreadable object")?,
            object: object.bytes,
            instruction_sets,
            device: None,
            packings,
            trace,
            schedule_ms,
            lower_ms: object.lower_ms,
            codegen_ms: object.codegen_ms,
            features,
        })
    }

    /// Kernels for a device; what the schedule says of the artifact is left empty.
    fn device_code(&mut self, module: &Module, target: &CompileTarget, schedule: &Schedule) -> Result<Artifact> {
        let source = device::generate(module, target, schedule.has_fragments());
        let source = source.context("cannot generate device code")?;
        if self.nvrtc.is_none() {
            self.nvrtc = Some(Nvrtc::open()?);
        }
        let nvrtc = self.nvrtc.as_ref().expect("just opened");
        let compiling = Instant::now();
        let code = cuda::compile(nvrtc, &source.text, source.launches, &target.architectures)?;
        let code = DeviceCode { rounding: schedule.rounding(), ..code };
        let first = code.cubins.first().context("a device has at least one architecture")?;
        Ok(Artifact {
            object: Vec::new(),
            instruction_sets: Vec::new(),
            code_bytes: first.kernels.iter().map(|kernel| kernel.code_bytes).sum(),
            device: Some(code),
            packings: Vec::new(),
            trace: None,
            schedule_ms: 0.0,
            lower_ms: source.lower_ms,
            codegen_ms: source.codegen_ms + compiling.elapsed().as_secs_f64() * 1e3,
            features: BTreeMap::new(),
        })
    }

    fn target(&mut self, text: &str) -> Result<CompileTarget> {
        if let Some((known, target)) = &self.target
            && known == text
        {
            return Ok(target.clone());
        }
        let target = CompileTarget::from_json(text).with_context(|| format!("cannot use the target {text}"))?;
        self.spaces.clear();
        self.lowered = None;
        self.target = Some((text.to_owned(), target.clone()));
        Ok(target)
    }

    /// What products are summed in follows from the target, and a new target forgets what was lowered.
    fn lower(&mut self, text: &str, form: Form, sums: Sums) -> Result<()> {
        if self.task.as_ref().is_none_or(|(known, _)| known != text) {
            self.lowered = None;
            let task = serde_json::from_str(text).context("cannot read the task")?;
            self.task = Some((text.to_owned(), task));
        }
        if self.lowered.as_ref().is_none_or(|(known, ..)| *known != form) {
            let (_, task) = self.task.as_ref().expect("just read");
            let flat = if form.is_flat { flat(task) } else { None };
            let written = flat.unwrap_or_else(|| task.clone());
            let lowered = lower(&written, form.layout, sums).context("cannot lower the task")?;
            self.spaces.clear();
            self.lowered = Some((form, written, lowered));
        }
        Ok(())
    }
}
