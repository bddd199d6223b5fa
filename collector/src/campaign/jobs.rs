//! Attempts → what a bench is asked to do.

use super::config::Config;
use super::planned::{Attempt, Code, PlannedTask};
use bench::Work;
use job::target::Target;
use job::{Artifact, BuildJob, LibraryJob, ModuleJob, RunJob};
use std::time::Duration;

/// The job that builds an attempt's schedule; nothing where a library computes its task.
pub fn build_job(attempt: &Attempt, tasks: &[PlannedTask], target: &Target) -> Option<BuildJob> {
    let Code::Compiled { schedule, .. } = &attempt.code else { return None };
    Some(BuildJob::new(tasks[attempt.task].compiled_json(), target, schedule))
}

/// The run of an attempt: of what was built for it, or of the library that computes it.
pub fn run(attempt: &Attempt, artifact: Option<&Artifact>, tasks: &[PlannedTask], config: &Config) -> Work {
    let slack = Duration::from_secs_f64(config.limits.run_seconds);
    if let Code::Module(module) = &attempt.code {
        let job = ModuleJob {
            path: module.path.clone(),
            hash: module.hash.clone(),
            inputs: module.inputs.iter().map(ToString::to_string).collect(),
            seed: config.seed,
            cpus: attempt.cpus.clone(),
            method: attempt.method.clone(),
            counters: config.counters.clone(),
        };
        let deadline = job.deadline(slack);
        return Work::Library(LibraryJob::Module(job), deadline);
    }
    let planned = &tasks[attempt.task];
    let job = RunJob::new(planned.json.clone(), attempt.cpus.clone(), attempt.method.clone());
    let job = RunJob { seed: config.seed, counters: config.counters.clone(), ..job };
    let deadline = job.deadline(planned.task.work().map_or(0, |work| work.flops), slack);
    match artifact {
        Some(artifact) => Work::Run(job.of(artifact), deadline),
        None => Work::Library(LibraryJob::Task(job), deadline),
    }
}
