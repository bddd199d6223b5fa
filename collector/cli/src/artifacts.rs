//! `build` and `run`: compile here, measure there.
//!
//! A folder of artifacts holds `plan.json` and the machine code of each schedule: one object file, or one file per
//! architecture of a GPU, or OpenCL C for a Mali GPU, whose driver makes the machine code. It appears whole or not at all, and
//! holds everything a runner needs, so that the measuring machine does without the compiler. An object file is
//! machine code that `run` executes: run only folders you trust.

use super::collect::{Shown, collect};
use super::pace::Pace;
use super::plan::{Built, BuiltCubin, BuiltDevice, FORMAT, PLAN, Plan};
use super::progress::terminal;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, print, program, settings};
use crate::options::{Measuring, Models, Sweep};
use crate::program::ProgramRun;
use bench::{Bench, Build, Prebuilt, Versions};
use datasets::{Record, ScheduleSource};
use engine::appearing::Appearing;
use engine::boards::Standing;
use engine::campaign::graphs::LoadedModels;
use engine::campaign::jobs::build_job;
use engine::campaign::settings::Resolved;
use engine::campaign::{Attempt, Bases, Campaign, Code, Config, Event, PlannedTask, planned_tasks, record};
use engine::collection::Collection;
use engine::failure::{Failure, chain};
use engine::machine;
use engine::repeat::Repeat;
use engine::stores::open_store;
use job::device::{Cubin, DeviceCode};
use job::revision::Revisions;
use job::space::Schedule;
use job::target::{Kind, Target};
use job::{Artifact, BuildJob};
use measure::host::Facts;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Compiles a model's tasks into a folder.
pub fn build(models: &Models, sweep: &Sweep, out: &Path) -> Result<u8> {
    let Resolved { config, loaded } = settings::config(models, sweep)?;
    let tasks = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(chain(&error)))?;
    machine::refuse_library(&tasks)?;
    let folder = Folder(Appearing::begin(out)?);
    let mut workers = machine::workers(&config.limits)?;
    let target = machine::compiled_target(&config.target, &mut workers)?;
    let jobs = jobs(&config, &tasks, &target)?;
    let mut progress = terminal(Pace::default()).begin(jobs.len(), None);
    let mut plan = Plan {
        format: FORMAT,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        versions: machine::versions(&mut workers)?,
        target,
        config,
        revisions: Revisions::own().clone(),
        tasks,
        builds: Vec::new(),
    };
    for batch in jobs.chunks(plan.config.limits.build_batch) {
        let only: Vec<BuildJob> = batch.iter().map(|(_, job)| job.clone()).collect();
        let builds = workers.build(&only, &mut || progress.hear(&Event::Built));
        for ((task, job), build) in batch.iter().zip(builds) {
            plan.builds.push(folder.keep(*task, job, build)?);
        }
    }
    progress.finish();
    let lost = plan.builds.iter().filter(|built| !built.is_built()).count();
    let total = plan.builds.len();
    folder.finish(&plan, out)?;
    print(&format!(
        "{} artifacts of {} tasks in `{}`, {lost} not built",
        total - lost,
        plan.tasks.len(),
        out.display()
    ))?;
    Ok(if lost > 0 { DONE_WITH_LOSSES } else { DONE })
}

/// One job per task and schedule.
fn jobs(config: &Config, tasks: &[PlannedTask], target: &Target) -> Result<Vec<(usize, BuildJob)>> {
    let base = record::of_machine(target, &Facts::read(), &Versions::new(), "build");
    let base = Record { seed: i64::try_from(config.seed).ok(), ..base };
    let bases = Bases { library: base.clone(), compiled: base, revisions: Revisions::own().clone() };
    // Threads and cache states share a build.
    let one = Config { threads: vec![1], cache: config.cache[..1].to_vec(), ..config.clone() };
    let cpus = machine::allowed_cpus()?;
    let attempts = engine::campaign::attempts(tasks, &[], target, &one, &bases, &cpus, 0);
    let mut attempts = attempts.map_err(|error| Failure::usage(chain(&error)))?;
    let is_drawn = |attempt: &Attempt| !matches!(&attempt.code, Code::Compiled { source, .. } if *source == ScheduleSource::Default);
    attempts.sort_by_key(|attempt| (attempt.task, is_drawn(attempt)));
    // The sizes of one task share a build too.
    let attempts = attempts.iter().filter(|attempt| attempt.task == attempt.family);
    Ok(attempts.filter_map(|attempt| Some((attempt.task, build_job(attempt, tasks, target)?))).collect())
}

/// A folder of artifacts being written.
struct Folder(Appearing);

impl Folder {
    /// Writes what was built.
    fn keep(&self, task: usize, job: &BuildJob, build: Build) -> Result<Built> {
        let schedule = job.schedule.clone();
        let empty = Built {
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
                let device = artifact.device.as_ref().map(|code| self.keep_device(code)).transpose()?;
                let object = match device {
                    None => Some(self.write(&artifact.object, "o")?),
                    Some(_) => None,
                };
                Built {
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
            Build::Failed(why) | Build::Rejected(why) => Built { failure: Some(why), ..empty },
            Build::Fault(fault) => Built { failure: Some(fault.to_string()), ..empty },
        })
    }

    /// Writes the machine code of every architecture.
    fn keep_device(&self, code: &DeviceCode) -> Result<BuiltDevice> {
        let keep = |cubin: &Cubin| -> Result<BuiltCubin> {
            let file = self.write(&cubin.bytes, "cubin")?;
            let (architecture, compiler) = (cubin.architecture, cubin.compiler.clone());
            Ok(BuiltCubin { architecture, compiler, file, kernels: cubin.kernels.clone() })
        };
        let cubins = code.cubins.iter().map(keep).collect::<Result<_>>()?;
        let source = self.write(code.source.as_bytes(), if code.cubins.is_empty() { "cl" } else { "cu" })?;
        Ok(BuiltDevice { source, launches: code.launches.clone(), workspaces: code.workspaces.clone(), cubins })
    }

    /// Writes a file whose name is the hash of its content.
    fn write(&self, bytes: &[u8], suffix: &str) -> Result<String> {
        let name = format!("{}.{suffix}", &blake3::hash(bytes).to_hex()[..32]);
        fs::write(self.0.path().join(&name), bytes).map_err(Failure::environment)?;
        Ok(name)
    }

    /// Writes the plan and moves the folder into place.
    fn finish(self, plan: &Plan, out: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(plan).map_err(Failure::environment)?;
        fs::write(self.0.path().join(PLAN), text).map_err(Failure::environment)?;
        self.0.finish(out)
    }
}

/// Measures a folder of artifacts.
pub fn run(dir: &Path, store: Option<&Path>, measuring: &Measuring, asked: &ProgramRun, as_json: bool) -> Result<u8> {
    program::refuse(dir, asked)?;
    let start = Instant::now();
    let repeat = Repeat::new(&measuring.repeat())?;
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
    let mut workers = machine::workers(&plan.config.limits)?;
    let versions = if plan.target.kind == Kind::Cuda {
        let device = machine::device_versions(&mut workers)?;
        // The runner of a GPU has no TVM to ask.
        plan.versions.clone().into_iter().chain(device).collect()
    } else {
        let mut versions = machine::runner_versions(&mut workers)?;
        versions.extend(plan.versions.get("llvm").map(|llvm| ("llvm".to_owned(), llvm.clone())));
        versions
    };
    let campaign = Campaign { tasks: &plan.tasks, modules: &[], target: &plan.target, config: &plan.config };
    let revisions = plan.revisions.clone();
    let _exclusive = crate::exclusive(measuring.wait)?;
    let store = open_store(store)?;
    let collection = Collection {
        campaign,
        versions,
        revisions,
        store,
        shard: None,
        repeat,
        night: measuring.night.as_deref(),
        loaded: &LoadedModels::default(),
        on: Standing::here()?,
        start,
        signal: watch_signals()?,
        observer: terminal(measuring.progress),
    };
    let shown = Shown { compares: false, sink: None, as_json, curves: None };
    collect(&collection, &mut Prebuilt::new(&mut workers, |wanted| known(&builds, wanted)), shown)
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

/// What was built, by task and schedule.
type Builds = HashMap<(String, String), Build>;

fn read_builds(dir: &Path, plan: &Plan) -> Result<Builds> {
    let mut builds = HashMap::new();
    for built in &plan.builds {
        let planned = &plan.tasks[built.task];
        let build = match (&built.object, &built.device) {
            (None, None) => Build::Failed(built.failure.clone().unwrap_or_default()),
            (object, device) => Build::Built(Box::new(Artifact {
                listing: None,
                object: object.as_ref().map(|name| read_code(dir, name, "o")).transpose()?.unwrap_or_default(),
                // What a loader does not ask for.
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

/// Device code that was built for a task.
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

/// A file of machine code whose content has the hash that is its name.
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

/// What a folder has of a build; nothing of those that are not the plan's, such as what the peaks of this machine are
/// measured by.
fn known(builds: &Builds, job: &BuildJob) -> Option<Build> {
    let built = builds.get(&(job.task.clone(), job.schedule.clone())).cloned();
    let is_planned = || builds.keys().any(|(task, _)| *task == job.task);
    built.or_else(|| is_planned().then(|| Build::Failed("the folder of artifacts has no such schedule".to_owned())))
}
