//! Translates attempts into jobs for a bench.

use super::config::Config;
use super::planned::{Attempt, Code, PlannedTask};
use bench::BenchWork;
use job::{Artifact, BuildJob, LibraryJob, ModuleJob, RunJob};
use measure::Placement;
use std::time::Duration;
use targets::Target;

/// Returns the job that builds an attempt's schedule, or None if nothing is built.
pub fn build_job(attempt: &Attempt, tasks: &[PlannedTask], target: &Target) -> Option<BuildJob> {
    let Code::Compiled { schedule, .. } = &attempt.code else { return None };
    Some(BuildJob::for_schedule(tasks[attempt.task].compiled_json(), target, schedule))
}

/// Returns the memory placement of repetition `number` (from 1) of an attempt, which differs between repetitions.
pub fn try_placement(attempt: &Attempt, number: i64) -> Placement {
    let seed = u64::from_le_bytes(attempt.key.0[..8].try_into().expect("a key has 16 bytes"));
    attempt.method.placement(seed, u32::try_from(number - 1).unwrap_or(0), attempt.process)
}

/// Returns the job that runs an attempt: its artifact if there is one, otherwise the library that computes the task.
pub fn run_job(
    (attempt, number): (&Attempt, i64),
    artifact: Option<&Artifact>,
    tasks: &[PlannedTask],
    config: &Config,
) -> BenchWork {
    let slack = Duration::from_secs_f64(config.limits.run_seconds);
    if let Code::Module(module) = &attempt.code {
        let job = ModuleJob {
            path: module.path.clone(),
            hash: module.hash.clone(),
            inputs: module.inputs.iter().map(ToString::to_string).collect(),
            seed: config.seed,
            cpus: attempt.cpus.clone(),
            method: attempt.method.of_visit(),
            counters: config.counters.clone(),
        };
        let deadline = job.time_limit(slack);
        return BenchWork::Library(LibraryJob::Module(job), deadline);
    }
    let planned = &tasks[attempt.task];
    let job = RunJob::library_run(planned.json.clone(), attempt.cpus.clone(), attempt.method.of_visit());
    // All visits run the same artifact, so only the first one checks its outputs.
    let is_checked = attempt.is_first;
    let placement = try_placement(attempt, number);
    let job = RunJob { seed: config.seed, placement, counters: config.counters.clone(), is_checked, ..job };
    let deadline = job.time_limit(planned.task.work().map_or(0, |work| work.flops), slack);
    match artifact {
        Some(artifact) => BenchWork::Run(job.with_artifact(artifact), deadline),
        None => BenchWork::Library(LibraryJob::Task(job), deadline),
    }
}
