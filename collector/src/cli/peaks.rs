//! What this machine can do at best, measured beside the campaign for the roofline of its table.

use super::settings::allowed_cpus;
use crate::campaign::{Config, Workers, builders::Build};
use crate::counters::{Backend, CounterRequest};
use crate::host::{Facts, Streaming, bandwidth};
use crate::job::{BuildJob, RunJob, RunReply};
use crate::measure::{Method, Plan};
use crate::report::operators::{ComputePeak, MemoryPeak, Peaks};
use crate::space::{Schedule, space};
use crate::target::Target;
use models::Task;
use std::time::Duration;

/// Measures the peaks for the thread counts of a campaign. What cannot be measured is left out.
pub fn measure(config: &Config, target: &Target, facts: &Facts, workers: &mut Workers) -> Peaks {
    let Ok(cpus) = allowed_cpus() else { return Peaks::default() };
    let mut peaks = Peaks::default();
    for &threads in &config.threads {
        let cpus = cpus[..threads.min(cpus.len())].to_vec();
        if let Some(flops_per_second) = multiply_adds(target, &cpus, workers) {
            peaks.compute.push(ComputePeak { threads, flops_per_second });
        }
        for working_set_bytes in working_sets(facts, threads) {
            let streaming = Streaming { bytes: working_set_bytes, passes: 20, cpus: cpus.clone() };
            let best = bandwidth(&streaming).ok().and_then(|measured| measured.last().cloned());
            peaks.memory.extend(best.map(|best| MemoryPeak {
                threads,
                working_set_bytes,
                bytes_per_second: best.read_bytes_per_second.max(best.triad_bytes_per_second),
            }));
        }
    }
    peaks
}

/// Half of the threads' second-level caches, and a size that they do not hold; no larger than needed, because it is
/// most of the memory of this process.
fn working_sets(facts: &Facts, threads: usize) -> Vec<u64> {
    let second = facts.caches.iter().find(|cache| cache.level == 2).map_or(1 << 20, |cache| cache.size_bytes);
    let all = second * threads as u64;
    vec![all / 2, (2 * all).max(16 << 20)]
}

/// The fastest of two operators, so large that waking the threads is a small part of their time: a product whose right
/// operand stays in the first-level cache, cut so that each thread has its own rows, and a convolution with an image for each
/// thread, which does more arithmetic for each byte.
fn multiply_adds(target: &Target, cpus: &[usize], workers: &mut Workers) -> Option<f64> {
    const ROWS_PER_THREAD: usize = 16 * 224;
    let threads = cpus.len();
    let texts = [
        format!("matmul:m={},n=64,k=128", ROWS_PER_THREAD * threads),
        format!("conv2d:n={threads},ci=64,hw=56,co=64,k=3,p=1"),
    ];
    texts.iter().filter_map(|text| flops_per_second(text, target, cpus, workers)).reduce(f64::max)
}

fn flops_per_second(text: &str, target: &Target, cpus: &[usize], workers: &mut Workers) -> Option<f64> {
    const RUN_DEADLINE: Duration = Duration::from_secs(30);
    let graph = models::simple::build(text).ok()?;
    let task: Task = models::fuse::tasks(&graph, models::fuse::Fuse::None).ok()?.into_iter().next()?.task;
    let schedule = Schedule::Template { knobs: space(&task, &target.machine).default };
    let task_json = serde_json::to_string(&task).ok()?;
    let job = BuildJob {
        task: task_json.clone(),
        target: target.text.clone(),
        schedule: schedule.to_json(),
        wants_trace: false,
    };
    let Some(Build::Built(artifact)) = workers.build(&[job], &mut || ()).into_iter().next() else { return None };
    let job = RunJob {
        task: task_json,
        seed: 0,
        object: artifact.object,
        device: None,
        packings: artifact.packings,
        cpus: cpus.to_vec(),
        method: Method::Sample(Plan::default()),
        counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
        is_checked: true,
        tvm_evaluator: None,
    };
    match workers.run(&job, RUN_DEADLINE) {
        // The least disturbed batch: a peak is what is possible.
        Ok(RunReply::Measured(measured)) => Some(task.work().ok()?.flops as f64 / measured.measurement.min_ns * 1e9),
        Ok(RunReply::WrongResult(_) | RunReply::Failed(_) | RunReply::Unsupported(_)) | Err(_) => None,
    }
}
