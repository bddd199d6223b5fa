//! Reads a folder of artifacts for a run on this machine.

use super::plan::{BuildEntry, BuiltCubin, BuiltDevice, FORMAT, PLAN, Plan};
use crate::campaign::{Campaign, Config, PlannedTask};
use crate::failure::Failure;
use crate::{Result, machine};
use bench::{Bench, Build, Versions};
use executor::sealed;
use job::device::{Cubin, DeviceCode};
use job::revision::Revisions;
use job::space::Schedule;
use job::{Artifact, BuildJob};
use models::files;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use targets::Target;

/// The content of a folder of artifacts.
pub struct Artifacts {
    folder: PathBuf,
    plan: Plan,
    /// Number that identifies each distinct compiled task, by the task's JSON.
    tasks: HashMap<String, usize>,
    /// Indices of the builds in the plan, by the number of the compiled task and by schedule.
    builds: HashMap<(usize, String), usize>,
}

impl Artifacts {
    /// Reads a folder of artifacts. Drops the configured thread counts that exceed the CPUs of this machine.
    pub fn read(dir: &Path) -> Result<Artifacts> {
        let mut plan = read_plan(dir)?;
        if let Some(refusal) = plan.target.kind.run_refusal() {
            return Err(Failure::from_refusal(refusal));
        }
        check_architecture(dir, &plan.target)?;
        check_builds(dir, &plan)?;
        let cpus = machine::allowed_cpus()?.len();
        plan.config.threads.retain(|&threads| threads <= cpus);
        if plan.config.threads.is_empty() {
            return Err(Failure::environment(format!("the plan needs more threads than this machine's {cpus} CPUs")));
        }
        let (mut tasks, mut builds) = (HashMap::new(), HashMap::new());
        for (place, built) in plan.builds.iter().enumerate() {
            let number = tasks.len();
            let task = *tasks.entry(plan.tasks[built.task].compiled_json().to_owned()).or_insert(number);
            builds.insert((task, built.schedule.clone()), place);
        }
        Ok(Artifacts { folder: dir.to_owned(), plan, tasks, builds })
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

    /// Returns the versions of the libraries that built the folder's code, and of the libraries that run it here.
    pub fn query_versions(&self, bench: &mut dyn Bench) -> Result<Versions> {
        if self.plan.target.kind.runs_on_gpu() {
            let device = machine::device_versions(bench)?;
            // A GPU runner does not use TVM.
            return Ok(self.plan.versions.clone().into_iter().chain(device).collect());
        }
        let mut versions = machine::runner_versions(bench)?;
        versions.extend(self.plan.versions.get("llvm").map(|llvm| ("llvm".to_owned(), llvm.clone())));
        Ok(versions)
    }

    /// Reads the build of a job; None for tasks that are not in the folder, such as those that measure peak rates.
    pub fn read_build(&self, job: &BuildJob) -> Option<Build> {
        let task = *self.tasks.get(&job.task)?;
        let Some(&place) = self.builds.get(&(task, job.schedule.clone())) else {
            return Some(Build::Failed("the folder of artifacts has no build of this schedule".to_owned()));
        };
        let build = read_build(&self.folder, &self.plan, &self.plan.builds[place]);
        // All files were valid when the run began, so a failure here is the failure of one build.
        Some(build.unwrap_or_else(|failure| Build::Failed(failure.to_string())))
    }
}

fn read_plan(dir: &Path) -> Result<Plan> {
    const MAX_PLAN_BYTES: u64 = 256 << 20;
    let path = dir.join(PLAN);
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use `{}`: {error}", path.display()))
            .with_hint("create the folder with `opcollect build --out`, and copy all of it")
    };
    let text = files::read_regular_text(&path, MAX_PLAN_BYTES).map_err(|error| wrong(&error))?;
    let text = sealed::open_sealed(text, FORMAT).map_err(|error| wrong(&error))?;
    Plan::parse(&text).map_err(|error| wrong(&error))
}

/// Checks that code for CPUs is for this machine's architecture, because each schedule would fail otherwise.
fn check_architecture(dir: &Path, target: &Target) -> Result<()> {
    let (wanted, here) = (targets::target_architecture(&target.text), std::env::consts::ARCH);
    if !target.kind.runs_on_cpus() || wanted == here {
        return Ok(());
    }
    let message = format!("`{}` cannot run here: the code is for {wanted}, and this machine is {here}", dir.display());
    Err(Failure::environment(message)
        .with_hint("build it on this machine, or with `--target` for this one's processor"))
}

/// Checks the files of all builds without keeping their content, since a plan may name the same file many times.
fn check_builds(dir: &Path, plan: &Plan) -> Result<()> {
    let mut objects = HashSet::new();
    for built in &plan.builds {
        if let Some(name) = built.object.as_ref().filter(|name| objects.insert(name.as_str())) {
            read_code(dir, name, "o")?;
        }
        if let Some(device) = &built.device {
            read_device(dir, device, built, &plan.tasks[built.task])?;
        }
    }
    Ok(())
}

fn read_build(dir: &Path, plan: &Plan, built: &BuildEntry) -> Result<Build> {
    let (object, device) = (&built.object, &built.device);
    if object.is_none() && device.is_none() {
        return Ok(Build::Failed(built.failure.clone().unwrap_or_default()));
    }
    Ok(Build::Built(Box::new(Artifact {
        listing: None,
        object: object.as_ref().map(|name| read_code(dir, name, "o")).transpose()?.unwrap_or_default(),
        // The instruction sets are not needed to load an object file.
        instruction_sets: Vec::new(),
        device: device.as_ref().map(|device| read_device(dir, device, built, &plan.tasks[built.task])).transpose()?,
        code_bytes: built.code_bytes,
        packings: built.packings.clone(),
        trace: built.trace.clone(),
        schedule_ms: built.schedule_ms,
        lower_ms: built.lower_ms,
        codegen_ms: built.codegen_ms,
        features: built.features.clone(),
    })))
}

fn read_device(dir: &Path, device: &BuiltDevice, built: &BuildEntry, planned: &PlannedTask) -> Result<DeviceCode> {
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
    let rounding = Schedule::from_json(&built.schedule).map_err(|error| wrong(error.to_string()))?.operand_rounding();
    let code = DeviceCode { source, launches, workspaces, cubins, rounding };
    code.check_launches(planned.task.parameters.len() + 1).map_err(wrong)?;
    Ok(code)
}

/// Reads a file of machine code and checks that its name is the hash of its content.
fn read_code(dir: &Path, name: &str, suffix: &str) -> Result<Vec<u8>> {
    const MAX_CODE_BYTES: u64 = 256 << 20;
    let hash = name.strip_suffix(suffix).and_then(|name| name.strip_suffix('.'));
    let is_name = hash.is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let path = dir.join(name);
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use `{}`: {why}", path.display()))
            .with_hint("create the folder with `opcollect build --out`, and copy all of it")
    };
    if !is_name {
        return Err(Failure::usage(format!("the plan names `{name}`, which is not a file of this folder")));
    }
    let bytes = files::read_regular(&path, MAX_CODE_BYTES).map_err(|error| wrong(&error))?;
    if blake3::hash(&bytes).to_hex()[..32] != name[..32] {
        return Err(wrong(&sealed::CHANGED));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::memory::{alone, peak_bytes};
    use super::super::plan::tests::plan;
    use super::*;
    use std::fs;

    #[test]
    fn a_file_with_many_builds_is_read_into_memory_once() {
        alone(one_file_for_all_builds);
    }

    fn one_file_for_all_builds() {
        const FILE_BYTES: usize = 1 << 20;
        const BUILDS: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let code = vec![7; FILE_BYTES];
        let name = format!("{}.o", &blake3::hash(&code).to_hex()[..32]);
        fs::write(dir.path().join(&name), &code).unwrap();
        let plan = plan();
        let mut document = serde_json::to_value(&plan).unwrap();
        document["builds"][0]["object"] = name.into();
        document["builds"] = vec![document["builds"][0].clone(); BUILDS].into();
        fs::write(dir.path().join(PLAN), sealed::seal_json(&document).unwrap()).unwrap();
        let before = peak_bytes();
        let artifacts = Artifacts::read(dir.path()).unwrap();
        let schedule = Schedule::from_json(&plan.builds[0].schedule).unwrap();
        let job = BuildJob::for_schedule(plan.tasks[0].compiled_json(), &plan.target, &schedule);
        let Some(Build::Built(artifact)) = artifacts.read_build(&job) else { panic!("the folder has the build") };
        let taken = peak_bytes() - before;
        assert!(taken < 64 * FILE_BYTES, "{taken} bytes for {BUILDS} builds by one file");
        assert_eq!(artifact.object, code);
        // A file that changed after the folder was read counts as a failed build.
        fs::write(dir.path().join(format!("{}.o", &blake3::hash(&code).to_hex()[..32])), "other").unwrap();
        assert!(matches!(artifacts.read_build(&job), Some(Build::Failed(why)) if why.contains(sealed::CHANGED)));
    }
}
