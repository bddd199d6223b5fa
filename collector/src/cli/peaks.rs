//! What this host can do at best: measured beside its campaigns, a few times in all, and kept in the store.

use super::Result;
use super::dataset::failed;
use super::settings::allowed_cpus;
use crate::campaign::Config;
use crate::campaign::record::now_us;
use bench::{Bench, Build};
use datasets::peaks::{ComputePeak, ComputeRate, MemoryRate};
use datasets::{Peaks, PeaksMeasured, Reached, Record, Store};
use job::space::{Schedule, space};
use job::target::{Kind, Target};
use job::{BuildJob, RunJob, RunReply};
use measure::host::{Facts, Streaming, bandwidth};
use measure::{Method, Plan};
use models::Task;
use report::{number, or_unknown};
use std::time::Duration;

/// Measurements of a host that are enough.
const ENOUGH: usize = 5;
/// They are so far apart, in microseconds: a busy neighbour stays for minutes.
const APART_US: i64 = 120_000_000;

/// The peaks of the host of a campaign, by all measurements in its store, one more where they are few, and what operators
/// reached.
pub fn of_host(
    store: &Store,
    base: &Record,
    (config, target): (&Config, &Target),
    (facts, reached): (&Facts, &Reached),
    bench: &mut dyn Bench,
) -> Result<Peaks> {
    let known = measurements(store, base)?;
    let missing: Vec<usize> = config.threads.iter().copied().filter(|threads| is_due(&known, *threads)).collect();
    if target.kind == Kind::Llvm && !missing.is_empty() {
        let mut measured = PeaksMeasured::new(&base.host, &base.host_class, &base.program_version, now_us());
        measure(&missing, target, facts, bench, &mut measured);
        store.keep_peaks(&measured).map_err(failed)?;
    }
    // Read again: another campaign on this host may have measured meanwhile.
    let mut peaks = Peaks::of(&measurements(store, base)?);
    peaks.raise(reached);
    Ok(peaks)
}

/// The peaks of one number of threads, measured here and now; none of devices.
pub fn now(threads: usize, target: &Target, bench: &mut dyn Bench) -> Peaks {
    let facts = Facts::read();
    let mut measured = PeaksMeasured::new("", &facts.host_class(), env!("CARGO_PKG_VERSION"), now_us());
    if target.kind == Kind::Llvm {
        measure(&[threads], target, &facts, bench, &mut measured);
    }
    Peaks::of([&measured])
}

/// All measurements of this host that a store has.
fn measurements(store: &Store, base: &Record) -> Result<Vec<PeaksMeasured>> {
    let mut known = store.peaks().map_err(failed)?;
    known.retain(|measured| measured.host == base.host && measured.host_class == base.host_class);
    Ok(known)
}

/// Whether the peaks of some threads are to be measured once more.
fn is_due(known: &[PeaksMeasured], threads: usize) -> bool {
    let has = |measured: &&PeaksMeasured| measured.compute.iter().any(|rate| rate.threads as usize == threads);
    let mut taken: Vec<i64> = known.iter().filter(has).map(|measured| measured.taken_at_us).collect();
    taken.sort_unstable();
    taken.len() < ENOUGH && taken.last().is_none_or(|last| now_us().saturating_sub(*last) >= APART_US)
}

/// Measures the peaks of some thread counts. What cannot be measured is left out.
fn measure(counts: &[usize], target: &Target, facts: &Facts, bench: &mut dyn Bench, measured: &mut PeaksMeasured) {
    /// Passes over each working set; the best counts.
    const PASSES: u32 = 20;
    let Ok(cpus) = allowed_cpus() else { return };
    for &count in counts {
        let cpus = cpus[..count.min(cpus.len())].to_vec();
        let threads = u32::try_from(count).unwrap_or(u32::MAX);
        let compute = multiply_adds(target, &cpus, bench);
        measured.compute.extend(compute.map(|flops_per_second| ComputeRate { threads, flops_per_second }));
        for working_set_bytes in working_sets(facts, count) {
            let streaming = Streaming { bytes: working_set_bytes, passes: PASSES, cpus: cpus.clone() };
            let best = bandwidth(&streaming).ok().and_then(|measured| measured.last().cloned());
            measured.memory.extend(best.map(|best| MemoryRate {
                threads,
                working_set_bytes,
                bytes_per_second: best.read_bytes_per_second.max(best.triad_bytes_per_second),
            }));
        }
    }
}

/// Powers of two from half of the threads' first-level caches to a size that their second level does not hold; no larger than
/// needed, because it is most of the memory of this process.
fn working_sets(facts: &Facts, threads: usize) -> impl Iterator<Item = u64> {
    let level = |level: u32, other: u64| {
        let data = facts.caches.iter().find(|cache| cache.level == level && cache.kind != "Instruction");
        data.map_or(other, |cache| cache.size_bytes) * threads as u64
    };
    let (first, second) = (level(1, 32 << 10), level(2, 1 << 20));
    let (least, most) = ((first / 2).max(1).ilog2(), (2 * second).max(16 << 20).ilog2());
    (least..=most).map(|power| 1 << power)
}

/// The fastest of two operators, so large that waking the threads is a small part of their time: a product whose right
/// operand stays in the first-level cache, cut so that each thread has its own rows, and a convolution with an image for each
/// thread, which does more arithmetic for each byte. Its windows are such that no way to compute it saves products.
fn multiply_adds(target: &Target, cpus: &[usize], bench: &mut dyn Bench) -> Option<f64> {
    operators(cpus.len()).iter().filter_map(|text| flops_per_second(text, target, cpus, bench)).reduce(f64::max)
}

fn operators(threads: usize) -> [String; 2] {
    const ROWS_PER_THREAD: usize = 16 * 224;
    [
        format!("matmul:m={},n=64,k=128", ROWS_PER_THREAD * threads),
        format!("conv2d:n={threads},ci=64,hw=56,co=64,k=5,p=2"),
    ]
}

/// The only task of an operator, and how it is computed when nothing was searched.
fn task_and_schedule(text: &str, target: &Target) -> Option<(Task, Schedule)> {
    let graph = zoo::simple::build(text).ok()?;
    let task: Task = models::fuse::tasks(&graph, models::fuse::Fuse::None).ok()?.into_iter().next()?.task;
    let schedule = Schedule::Template { knobs: space(&task, &target.machine).default };
    Some((task, schedule))
}

fn flops_per_second(text: &str, target: &Target, cpus: &[usize], bench: &mut dyn Bench) -> Option<f64> {
    const SLACK: Duration = Duration::from_secs(20);
    let (task, schedule) = task_and_schedule(text, target)?;
    let task_json = serde_json::to_string(&task).ok()?;
    let job = BuildJob::new(&task_json, target, &schedule);
    let Some(Build::Built(artifact)) = bench.build(&[job], &mut || ()).into_iter().next() else { return None };
    let job = RunJob::new(task_json, cpus.to_vec(), Method::Sample(Plan::default())).of(&artifact);
    match bench.run(&job, job.deadline(task.work().ok()?.flops, SLACK)) {
        // The least disturbed batch: a peak is what is possible.
        Ok(RunReply::Measured(measured)) => Some(task.work().ok()?.flops as f64 / measured.measurement.min_ns * 1e9),
        Ok(
            RunReply::WrongResult(_)
            | RunReply::Failed(_)
            | RunReply::Unsupported(_)
            | RunReply::Profiled(_)
            | RunReply::Together(_)
            | RunReply::Simulated(_),
        )
        | Err(_) => None,
    }
}

/// The peaks of arithmetic in lines: what rooflines are shares of.
pub fn describe(peaks: &Peaks) -> Vec<String> {
    let one = |peak: &ComputePeak| {
        let (rate, certainty) = (number(peak.flops_per_second * 1e-9), peak.certainty);
        let how = match (certainty.is_reached, certainty.measurements) {
            (true, _) => "reached by an operator".to_owned(),
            (false, 1) => "measured once".to_owned(),
            (false, times) => {
                let spread = or_unknown(certainty.spread, |spread| format!("{:.0} %", 100.0 * spread));
                format!("measured {times} times, ± {spread}")
            }
        };
        let threads = if peak.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", peak.threads) };
        format!("peak on {threads}: {rate} GFLOP/s ({how})")
    };
    peaks.compute.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::{operators, task_and_schedule};
    use datasets::Record;

    #[test]
    fn a_peak_is_measured_by_all_the_products_that_are_counted() {
        for features in [vec![], vec!["avx2".to_owned()], vec!["avx512f".to_owned()]] {
            let target = job::target::llvm("x86-64", &features, 4);
            for text in operators(4) {
                let (_, schedule) = task_and_schedule(&text, &target).expect("the zoo has it");
                let record = Record { schedule: datasets::Json::parse(&schedule.to_json()).ok(), ..Record::default() };
                assert!(!record.saves_products(), "{text}: {}", schedule.describe());
            }
        }
    }
}
