//! The builder, which compiles a task with a schedule to an object file or device code.

use crate::apply::{ApplyError, SpaceCache, apply_schedule};
use crate::code;
use crate::lower::{Form, Lowered, lower_task};
use crate::tvm::compile::{CompileTarget, Device, Texts, compile_module};
use crate::tvm::expression::Module;
use crate::tvm::{device, features, object, trace};
use anyhow::{Context, Result, bail, ensure};
use cuda::nvrtc::Nvrtc;
use job::device::{DeviceCode, Launches};
use job::listing::Listing;
use job::space::Schedule;
use job::{Artifact, BuildJob, BuildReply};
use models::Task;
use reference::Rounding;
use std::collections::BTreeMap;
use std::time::Instant;

fn is_wrapper(name: &str) -> bool {
    name.starts_with("__")
}

/// Creates device code that consists of OpenCL C, for the device's driver to compile; checks work-group sizes.
fn opencl_code(source: &str, launches: Launches, items: i64) -> Result<DeviceCode> {
    let Launches { launches, workspaces } = launches;
    for launch in &launches {
        let threads = launch.block_threads();
        ensure!(
            threads <= u64::try_from(items).unwrap_or(0),
            "kernel `{}` needs {threads} work-items in a group, but the limit of the device is {items}",
            launch.kernel
        );
    }
    Ok(DeviceCode { source: source.to_owned(), launches, workspaces, cubins: Vec::new(), rounding: Rounding::None })
}

#[derive(Default)]
pub struct Builder {
    target: Option<(String, CompileTarget)>,
    task: Option<(String, Task)>,
    lowered: Option<(Form, Lowered)>,
    spaces: SpaceCache,
    nvrtc: Option<Nvrtc>,
}

impl Builder {
    pub fn answer_job(&mut self, job: &BuildJob) -> BuildReply {
        match self.build_artifact(job) {
            Ok(artifact) => BuildReply::Built(Box::new(artifact)),
            Err(error) => match error.downcast_ref::<ApplyError>() {
                Some(ApplyError::Rejected) => BuildReply::Rejected(error.to_string()),
                _ => BuildReply::Failed(format!("{error:#}")),
            },
        }
    }

    fn build_artifact(&mut self, job: &BuildJob) -> Result<Artifact> {
        let start = Instant::now();
        let schedule = Schedule::from_json(&job.schedule)?;
        let target = self.compile_target(&job.target)?;
        self.lower_task(&job.task, Form::for_schedule(&schedule, &target))?;
        let (_, task) = self.task.as_ref().expect("just read");
        let (_, lowered) = self.lowered.as_ref().expect("just lowered");
        let moves = apply_schedule(lowered, &schedule, &target, &mut self.spaces)?;
        let trace = if job.wants_trace { Some(trace::schedule_moves(&moves)?.as_json().to_string()) } else { None };
        let module = moves.current_module()?;
        let schedule_ms = start.elapsed().as_secs_f64() * 1e3;
        // TVM cannot extract features of some programs, such as those with symbolic sizes; these are built without
        // features.
        let stores = features::store_features(&moves, &target).unwrap_or_default();
        let mut features = features::merge_stores(&stores);
        let packings = lowered.packings.clone();
        if target.is_device() {
            // A sampled schedule without a trace is identified only by its moves.
            let schedule = match schedule {
                Schedule::MetaSchedule { trace: None, .. } => Schedule::Trace { trace: trace::schedule_moves(&moves)? },
                other => other,
            };
            let artifact =
                Artifact { packings, trace, schedule_ms, features, ..self.device_code(&module, &target, &schedule)? };
            return Ok(artifact);
        }
        let object = compile_module(&module, &target, schedule.function_variants(), job.wants_listing)
            .context("cannot compile")?;
        let macs = task.work().map_or(0, |work| work.macs);
        features.insert("object_bytes".to_owned(), object.bytes.len() as f64);
        // Only objects for x86-64 are analysed.
        let mut instruction_sets = Vec::new();
        let mut listed = Vec::new();
        if let Ok(functions) = object::object_functions(&object.bytes) {
            instruction_sets = code::instruction_sets(functions.iter().map(|(_, code)| code.as_slice()));
            let own = functions.iter().filter(|(name, _)| !is_wrapper(name)).map(|(_, code)| code.as_slice());
            let found = code::code_features(own, macs as f64);
            features.extend(found.into_iter().map(|(name, value)| (format!("code_{name}"), value)));
            if job.wants_listing {
                let own = functions.iter().filter(|(name, _)| !is_wrapper(name));
                listed = code::list_functions(own.map(|(name, code)| (name.as_str(), code.as_slice())));
            }
        }
        let listing = object.texts.map(|texts| {
            let Texts { scheduled, lowered, llvm } = texts;
            Box::new(Listing { scheduled, lowered, llvm, functions: listed })
        });
        Ok(Artifact {
            code_bytes: object::code_bytes(&object.bytes).context("cannot read the compiled object file")?,
            object: object.bytes,
            instruction_sets,
            device: None,
            packings,
            trace,
            listing,
            schedule_ms,
            lower_ms: object.lower_ms,
            codegen_ms: object.codegen_ms,
            features,
        })
    }

    /// Compiles kernels for a device. Fields of the result that depend on the schedule are left empty.
    fn device_code(&mut self, module: &Module, target: &CompileTarget, schedule: &Schedule) -> Result<Artifact> {
        let source = device::generate_source(module, target, schedule.has_fragments());
        let source = source.context("cannot generate device code")?;
        let compiling = Instant::now();
        let code = match &target.device {
            Device::Opencl { group_items } => opencl_code(&source.text, source.launches, *group_items)?,
            Device::Cuda(architectures) => {
                cuda::compile_source(self.open_nvrtc()?, &source.text, source.launches, architectures)?
            }
            Device::Cpu => bail!("a CPU has no device code"),
        };
        let code = DeviceCode { rounding: schedule.operand_rounding(), ..code };
        let kernels = code.cubins.first().map_or(&[][..], |first| &first.kernels);
        Ok(Artifact {
            object: Vec::new(),
            instruction_sets: Vec::new(),
            code_bytes: kernels.iter().map(|kernel| kernel.code_bytes).sum(),
            device: Some(code),
            packings: Vec::new(),
            trace: None,
            listing: None,
            schedule_ms: 0.0,
            lower_ms: source.lower_ms,
            codegen_ms: source.codegen_ms + compiling.elapsed().as_secs_f64() * 1e3,
            features: BTreeMap::new(),
        })
    }

    fn open_nvrtc(&mut self) -> Result<&Nvrtc> {
        if self.nvrtc.is_none() {
            self.nvrtc = Some(Nvrtc::open()?);
        }
        Ok(self.nvrtc.as_ref().expect("just opened"))
    }

    pub(crate) fn lowered_task(
        &mut self,
        task: &str,
        target: &str,
        schedule: &Schedule,
    ) -> Result<(&Lowered, CompileTarget)> {
        let target = self.compile_target(target)?;
        self.lower_task(task, Form::for_schedule(schedule, &target))?;
        let (_, lowered) = self.lowered.as_ref().expect("just lowered");
        Ok((lowered, target))
    }

    fn compile_target(&mut self, text: &str) -> Result<CompileTarget> {
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

    fn lower_task(&mut self, text: &str, form: Form) -> Result<()> {
        if self.task.as_ref().is_none_or(|(known, _)| known != text) {
            self.lowered = None;
            let task = serde_json::from_str(text).context("cannot parse the task")?;
            self.task = Some((text.to_owned(), task));
        }
        if self.lowered.as_ref().is_none_or(|(known, _)| *known != form) {
            let (_, task) = self.task.as_ref().expect("just read");
            let lowered = lower_task(task, form).context("cannot lower the task")?;
            self.spaces.clear();
            self.lowered = Some((form, lowered));
        }
        Ok(())
    }
}
