//! Runs the tasks of conformance cases through TVM with real workers.
//!
//! Cases that pass with the reference are cut into tasks. Each distinct task is built with its default schedule, run
//! once on seeded random inputs instead of the data of the cases, and compared with the reference.

use bench::{Ability, Bench, Build, WorkerLimits, Workers};
use job::space::{self, Schedule};
use job::{Artifact, BuildJob, RunJob, RunReply};
use measure::{Method, Plan, affinity};
use models::fuse::Fuse;
use models::{Graph, Task};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;
use targets::Target;

const PATIENCE: Duration = Duration::from_secs(120);
/// Number of tasks that are built at a time, before they are run.
const BATCH: usize = 64;
const SEED: u64 = 7;

#[derive(Default)]
pub struct Tasks {
    tasks: Vec<Task>,
    index_of: HashMap<String, usize>,
}

impl Tasks {
    pub fn add(&mut self, graph: &Graph) -> Result<Vec<usize>, String> {
        let found = models::fuse::distinct_tasks(graph, Fuse::Epilogue).map_err(|error| error.to_string())?;
        let mut indices = Vec::new();
        for used in found {
            let next = self.tasks.len();
            let index = *self.index_of.entry(used.task.hash()).or_insert(next);
            if index == next {
                self.tasks.push(used.task);
            }
            indices.push(index);
        }
        Ok(indices)
    }

    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the error of each task, if any, from code for the CPU `mcpu` or for this CPU; `program` is the worker.
    pub fn run(&self, program: &Path, mcpu: Option<&str>) -> Result<Vec<Option<String>>, String> {
        let limits = WorkerLimits {
            builder_cpus: Vec::new(),
            overlap: true,
            wide_runs: BATCH,
            start_deadline: Duration::from_secs(60),
            builders: 2,
            build_deadline: PATIENCE,
            build_memory_bytes: 4 << 30,
            run_memory_bytes: 8 << 30,
            runner_jobs: 200,
            spin_count: 0,
        };
        let mut workers = Workers::new(program, &limits);
        let versions = workers.capability(Ability::Build).map_err(|fault| format!("no builder starts: {fault:?}"))?;
        let native = versions.get("cpu").map_or("", String::as_str);
        let target = targets::llvm_target(mcpu.unwrap_or(native), &["avx2".to_owned()], 1);
        let allowed = affinity::allowed_cpus().map_err(|error| error.to_string())?;
        let cpus = allowed.get(..1).ok_or("no CPU is allowed")?;
        let mut results = Vec::with_capacity(self.tasks.len());
        for tasks in self.tasks.chunks(BATCH) {
            let jobs: Vec<BuildJob> = tasks.iter().map(|task| build_job(task, &target)).collect();
            let built = workers.build_jobs(&jobs, &mut || {});
            for (task, build) in tasks.iter().zip(built) {
                let wrong = match build {
                    Build::Built(artifact) => run(&mut workers, task, *artifact, cpus),
                    Build::Failed(why) => Some(format!("not built: {why}")),
                    other => Some(format!("not built: {other:?}")),
                };
                results.push(wrong.map(|why| format!("{}: {why}", task.describe())));
            }
        }
        Ok(results)
    }
}

fn build_job(task: &Task, target: &Target) -> BuildJob {
    let knobs = space::task_space(task, &target.machine).default;
    BuildJob {
        task: serde_json::to_string(task).expect("a task holds only JSON values"),
        target: target.text.clone(),
        schedule: Schedule::Template { knobs }.to_json(),
        wants_trace: false,
        wants_listing: false,
    }
}

fn run(workers: &mut Workers, task: &Task, artifact: Artifact, cpus: &[usize]) -> Option<String> {
    // A single timed run is enough to check the result.
    let plan = Plan {
        warm_up_time_ns: 0,
        warm_up_runs: 0,
        batch_precisions: 1,
        batch_runs_max: 1,
        samples_min: 1,
        samples_max: 1,
        sampling_time_min_ns: 0,
        time_budget_ns: 0,
        ..Plan::default()
    };
    let text = serde_json::to_string(task).expect("a task holds only JSON values");
    let job = RunJob::library_run(text, cpus.to_vec(), Method::Sample(plan)).with_artifact(&artifact);
    let job = RunJob { seed: SEED, ..job };
    match workers.run_job(&job, PATIENCE) {
        Ok(RunReply::Measured(_)) => None,
        Ok(RunReply::WrongResult(check)) => Some(format!("wrong by {}", check.max_abs_error)),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Some(format!("not run: {why}")),
        Ok(RunReply::Profiled(_) | RunReply::Together(_)) => unreachable!("one operator alone was asked for"),
        Ok(RunReply::Simulated(_)) => unreachable!("workers measure"),
        Err(fault) => Some(format!("not run: {fault:?}")),
    }
}
