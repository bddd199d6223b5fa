//! Compiles the tasks of a configuration into a folder of artifacts.

use super::plan::{BuildEntry, BuiltCubin, BuiltDevice, FORMAT, PLAN, Plan};
use crate::atomic_folder::AtomicFolder;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::jobs::build_job;
use crate::campaign::{Bases, CampaignEvent, Code, Config, PlannedTask, plan_attempts, planned_tasks, record};
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::{Result, machine};
use bench::{Bench, Build, Versions};
use datasets::{Record, ScheduleSource};
use executor::sealed;
use job::BuildJob;
use job::device::{Cubin, DeviceCode};
use job::revision::Revisions;
use measure::host::Facts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use targets::Target;

/// Numbers of tasks, and of schedules with and without code, in a new folder of artifacts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BuildCounts {
    /// Number of schedules with code.
    pub built: usize,
    /// Number of schedules that could not be built.
    pub lost: usize,
    /// Number of tasks in the folder.
    pub tasks: usize,
}

/// Compiles the tasks of a configuration into a folder, which must not exist or be empty.
pub fn build_artifacts(
    config: Config,
    loaded: &LoadedModels,
    out: &Path,
    observer: &dyn Observer,
) -> Result<BuildCounts> {
    let tasks = planned_tasks(&config, loaded).map_err(|error| Failure::usage(format_chain(&error)))?;
    machine::refuse_library(&tasks)?;
    let folder = NewFolder(AtomicFolder::create_temporary(out)?);
    let mut workers = machine::create_workers(&config.limits)?;
    let target = machine::compiled_target(&config.target, &mut workers)?;
    let jobs = build_jobs(&config, &tasks, &target)?;
    let mut progress = observer.begin_progress(jobs.len(), None);
    let mut plan = Plan {
        format: FORMAT,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        versions: machine::builder_versions(&mut workers)?,
        target,
        config,
        revisions: Revisions::embedded_table().clone(),
        tasks,
        builds: Vec::new(),
    };
    for batch in jobs.chunks(plan.config.limits.build_batch) {
        let only: Vec<BuildJob> = batch.iter().map(|(_, job)| job.clone()).collect();
        let builds = workers.build_jobs(&only, &mut || progress.observe_event(&CampaignEvent::Built));
        for ((task, job), build) in batch.iter().zip(builds) {
            plan.builds.push(folder.write_build(*task, job, build)?);
        }
    }
    progress.finish();
    let built = plan.builds.iter().filter(|built| built.is_built()).count();
    let counts = BuildCounts { built, lost: plan.builds.len() - built, tasks: plan.tasks.len() };
    folder.finish(&plan, out)?;
    Ok(counts)
}

fn build_jobs(config: &Config, tasks: &[PlannedTask], target: &Target) -> Result<Vec<(usize, BuildJob)>> {
    let base =
        record::machine_record(target, &Facts::read_facts(), &Versions::new(), "build").map_err(Failure::usage)?;
    let base = Record { seed: i64::try_from(config.seed).ok(), ..base };
    let bases = Bases { library: base.clone(), compiled: base, revisions: Revisions::embedded_table().clone() };
    // A build is the same for all thread counts and cache states.
    let one = Config { threads: vec![1], cache: config.cache[..1].to_vec(), ..config.clone() };
    let cpus = machine::allowed_cpus()?;
    let attempts = plan_attempts(tasks, &[], target, &one, &bases, &cpus, 0);
    let mut attempts = attempts.map_err(|error| Failure::usage(format_chain(&error)))?;
    let is_default = |code: &Code| matches!(code, Code::Compiled { source: ScheduleSource::Default, .. });
    attempts.sort_by_key(|attempt| (attempt.task, !is_default(&attempt.code)));
    // All sizes of a symbolic task share a build.
    let attempts = attempts.iter().filter(|attempt| attempt.task == attempt.family);
    Ok(attempts.filter_map(|attempt| Some((attempt.task, build_job(attempt, tasks, target)?))).collect())
}

struct NewFolder(AtomicFolder);

impl NewFolder {
    fn write_build(&self, task: usize, job: &BuildJob, build: Build) -> Result<BuildEntry> {
        let schedule = job.schedule.clone();
        let empty = BuildEntry {
            task,
            schedule,
            object: None,
            device: None,
            failure: None,
            packings: Vec::new(),
            trace: None,
            code_bytes: 0,
            schedule_ms: 0.0,
            lower_ms: 0.0,
            codegen_ms: 0.0,
            features: BTreeMap::new(),
        };
        Ok(match build {
            Build::Built(artifact) => {
                let device = artifact.device.as_ref().map(|code| self.write_device(code)).transpose()?;
                let object = match device {
                    None => Some(self.write_hashed(&artifact.object, "o")?),
                    Some(_) => None,
                };
                BuildEntry {
                    object,
                    device,
                    packings: artifact.packings,
                    trace: artifact.trace,
                    code_bytes: artifact.code_bytes,
                    schedule_ms: artifact.schedule_ms,
                    lower_ms: artifact.lower_ms,
                    codegen_ms: artifact.codegen_ms,
                    features: artifact.features,
                    ..empty
                }
            }
            Build::Failed(why) | Build::Rejected(why) => BuildEntry { failure: Some(why), ..empty },
            Build::Fault(fault) => BuildEntry { failure: Some(fault.to_string()), ..empty },
        })
    }

    fn write_device(&self, code: &DeviceCode) -> Result<BuiltDevice> {
        let keep = |cubin: &Cubin| -> Result<BuiltCubin> {
            let file = self.write_hashed(&cubin.bytes, "cubin")?;
            let (architecture, compiler) = (cubin.architecture, cubin.compiler.clone());
            Ok(BuiltCubin { architecture, compiler, file, kernels: cubin.kernels.clone() })
        };
        let cubins = code.cubins.iter().map(keep).collect::<Result<_>>()?;
        let source = self.write_hashed(code.source.as_bytes(), if code.cubins.is_empty() { "cl" } else { "cu" })?;
        Ok(BuiltDevice { source, launches: code.launches.clone(), workspaces: code.workspaces.clone(), cubins })
    }

    fn write_hashed(&self, bytes: &[u8], suffix: &str) -> Result<String> {
        let name = format!("{}.{suffix}", &blake3::hash(bytes).to_hex()[..32]);
        let path = self.0.path().join(&name);
        fs::write(&path, bytes).map_err(Failure::of_file("write", &path))?;
        Ok(name)
    }

    fn finish(self, plan: &Plan, out: &Path) -> Result<()> {
        let text = sealed::seal_json(plan).map_err(Failure::environment)?;
        let path = self.0.path().join(PLAN);
        fs::write(&path, text).map_err(Failure::of_file("write", &path))?;
        self.0.finish(out)
    }
}
