//! Runs the tasks of cases through TVM, by the workers a campaign uses.
//!
//! Cases that pass by the reference are cut into tasks; each distinct one is built with its default schedule and run once,
//! on inputs drawn from a seed, and its result is compared with the reference. Case by case data does not go through TVM:
//! the reference computes it, and TVM must compute what the reference does.

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

/// No build or run of a case's small tasks takes this long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Builds between two rounds of runs.
const BATCH: usize = 64;
const SEED: u64 = 7;

/// The distinct tasks of many cases, and what became of each.
#[derive(Default)]
pub struct Tasks {
    tasks: Vec<Task>,
    index_of: HashMap<String, usize>,
}

impl Tasks {
    /// Adds the tasks of a graph; the answer names them.
    pub fn add(&mut self, graph: &Graph) -> Result<Vec<usize>, String> {
        let found = models::fuse::tasks(graph, Fuse::Epilogue).map_err(|error| error.to_string())?;
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

    /// How many there are.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// What is wrong with each, or nothing. `program` is `opcollect-worker`.
    pub fn run(&self, program: &Path) -> Result<Vec<Option<String>>, String> {
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
        let cpu = versions.get("cpu").cloned().unwrap_or_default();
        let target = targets::llvm(&cpu, &["avx2".to_owned()], 1);
        let allowed = affinity::allowed().map_err(|error| error.to_string())?;
        let cpus = allowed.get(..1).ok_or("no CPU is allowed")?;
        let mut results = Vec::with_capacity(self.tasks.len());
        for tasks in self.tasks.chunks(BATCH) {
            let jobs: Vec<BuildJob> = tasks.iter().map(|task| build_job(task, &target)).collect();
            let built = workers.build(&jobs, &mut || {});
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
    let knobs = space::space(task, &target.machine).default;
    BuildJob {
        task: serde_json::to_string(task).expect("a task holds only JSON values"),
        target: target.text.clone(),
        schedule: Schedule::Template { knobs }.to_json(),
        wants_trace: false,
        wants_listing: false,
    }
}

fn run(workers: &mut Workers, task: &Task, artifact: Artifact, cpus: &[usize]) -> Option<String> {
    // One timed run: enough to see whether the result is right.
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
    let job = RunJob::new(text, cpus.to_vec(), Method::Sample(plan)).of(&artifact);
    let job = RunJob { seed: SEED, ..job };
    match workers.run(&job, PATIENCE) {
        Ok(RunReply::Measured(_)) => None,
        Ok(RunReply::WrongResult(check)) => Some(format!("wrong by {}", check.max_abs_error)),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Some(format!("not run: {why}")),
        Ok(RunReply::Profiled(_) | RunReply::Together(_)) => unreachable!("one operator alone was asked for"),
        Ok(RunReply::Simulated(_)) => unreachable!("workers measure"),
        Err(fault) => Some(format!("not run: {fault:?}")),
    }
}
