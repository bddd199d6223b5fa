//! Reads a folder of artifacts for a run on this machine.

use super::plan::{Built, BuiltCubin, BuiltDevice, PLAN, Plan};
use crate::campaign::{Campaign, Config, PlannedTask};
use crate::failure::Failure;
use crate::{Result, machine};
use bench::{Bench, Build, Versions};
use job::device::{Cubin, DeviceCode};
use job::revision::Revisions;
use job::space::Schedule;
use job::target::Kind;
use job::{Artifact, BuildJob};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The content of a folder of artifacts.
pub struct Artifacts {
    plan: Plan,
    /// The builds by task and schedule.
    builds: HashMap<(String, String), Build>,
}

impl Artifacts {
    /// Reads a folder. Thread counts that this machine does not have are dropped.
    pub fn read(dir: &Path) -> Result<Artifacts> {
        let mut plan = read_plan(dir)?;
        if plan.target.kind == Kind::Opencl {
            return Err(machine::refuse_mali());
        }
        let builds = read_builds(dir, &plan)?;
        let cpus = machine::allowed_cpus()?.len();
        plan.config.threads.retain(|&threads| threads <= cpus);
        if plan.config.threads.is_empty() {
            return Err(Failure::environment(format!("the plan wants more threads than this machine's {cpus} CPUs")));
        }
        Ok(Artifacts { plan, builds })
    }

    /// Returns the configuration that the folder was built with.
    pub fn config(&self) -> &Config {
        &self.plan.config
    }

    /// Returns the campaign over all tasks of the folder.
    pub fn campaign(&self) -> Campaign<'_> {
        let Plan { tasks, target, config, .. } = &self.plan;
        Campaign { tasks, modules: &[], target, config }
    }

    /// Returns the revisions of the code generators of the building program.
    pub fn revisions(&self) -> &Revisions {
        &self.plan.revisions
    }

    /// Returns the versions of the libraries that built the folder and of those that run here.
    pub fn versions(&self, bench: &mut dyn Bench) -> Result<Versions> {
        if self.plan.target.kind == Kind::Cuda {
            let device = machine::device_versions(bench)?;
            // The runner of a GPU has no TVM to ask.
            return Ok(self.plan.versions.clone().into_iter().chain(device).collect());
        }
        let mut versions = machine::runner_versions(bench)?;
        versions.extend(self.plan.versions.get("llvm").map(|llvm| ("llvm".to_owned(), llvm.clone())));
        Ok(versions)
    }

    /// Returns the build of a job, or None for tasks that are not of the folder, such as those that measure peaks.
    pub fn find(&self, job: &BuildJob) -> Option<Build> {
        let built = self.builds.get(&(job.task.clone(), job.schedule.clone())).cloned();
        let is_planned = || self.builds.keys().any(|(task, _)| *task == job.task);
        built.or_else(|| is_planned().then(|| Build::Failed("the folder of artifacts has no such schedule".to_owned())))
    }
}

fn read_plan(dir: &Path) -> Result<Plan> {
    const MOST_BYTES: u64 = 256 << 20;
    let path = dir.join(PLAN);
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use `{}`: {error}", path.display()))
            .with_hint("make it with `opcollect build --out`")
    };
    let size = fs::metadata(&path).map_err(|error| wrong(&error))?.len();
    if size > MOST_BYTES {
        return Err(wrong(&"it is larger than 256 MiB"));
    }
    let text = fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    Plan::parse(&text).map_err(|error| wrong(&error))
}

fn read_builds(dir: &Path, plan: &Plan) -> Result<HashMap<(String, String), Build>> {
    let mut builds = HashMap::new();
    for built in &plan.builds {
        let planned = &plan.tasks[built.task];
        let build = match (&built.object, &built.device) {
            (None, None) => Build::Failed(built.failure.clone().unwrap_or_default()),
            (object, device) => Build::Built(Box::new(Artifact {
                listing: None,
                object: object.as_ref().map(|name| read_code(dir, name, "o")).transpose()?.unwrap_or_default(),
                // A loader does not ask for them.
                instruction_sets: Vec::new(),
                device: device.as_ref().map(|device| read_device(dir, device, built, planned)).transpose()?,
                code_bytes: built.code_bytes,
                packings: built.packings.clone(),
                trace: built.trace.clone(),
                schedule_ms: built.schedule_ms,
                lower_ms: built.lower_ms,
                codegen_ms: built.codegen_ms,
                features: built.features.clone(),
            })),
        };
        builds.insert((planned.compiled_json().to_owned(), built.schedule.clone()), build);
    }
    Ok(builds)
}

/// Reads device code that was built for a task.
fn read_device(dir: &Path, device: &BuiltDevice, built: &Built, planned: &PlannedTask) -> Result<DeviceCode> {
    let read = |cubin: &BuiltCubin| -> Result<Cubin> {
        let bytes = read_code(dir, &cubin.file, "cubin")?;
        let (architecture, compiler) = (cubin.architecture, cubin.compiler.clone());
        Ok(Cubin { architecture, compiler, bytes, kernels: cubin.kernels.clone() })
    };
    let cubins = device.cubins.iter().map(read).collect::<Result<_>>()?;
    let source = String::from_utf8_lossy(&read_code(dir, &device.source, "cu")?).into_owned();
    let (launches, workspaces) = (device.launches.clone(), device.workspaces.clone());
    let wrong =
        |why: String| Failure::usage(format!("the plan's code of `{}` is unusable: {why}", planned.task.describe()));
    let rounding = Schedule::from_json(&built.schedule).map_err(|error| wrong(error.to_string()))?.rounding();
    let code = DeviceCode { source, launches, workspaces, cubins, rounding };
    code.check(planned.task.parameters.len() + 1).map_err(wrong)?;
    Ok(code)
}

/// Reads a file of machine code, whose content must have the hash that is its name.
fn read_code(dir: &Path, name: &str, suffix: &str) -> Result<Vec<u8>> {
    let hash = name.strip_suffix(suffix).and_then(|name| name.strip_suffix('.'));
    let is_name = hash.is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let path = dir.join(name);
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("cannot use `{}`: {why}", path.display()));
    if !is_name {
        return Err(Failure::usage(format!("the plan names `{name}`, which is not a file of this folder")));
    }
    let bytes = fs::read(&path).map_err(|error| wrong(&error))?;
    if blake3::hash(&bytes).to_hex()[..32] != name[..32] {
        return Err(wrong(&"its content is not what was built"));
    }
    Ok(bytes)
}
