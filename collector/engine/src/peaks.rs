//! Peak rates of this host, measured a few times during campaigns and stored with the records.

use crate::Result;
use crate::campaign::Config;
use crate::campaign::record::now_us;
use crate::machine::allowed_cpus;
use crate::stores::store_failure;
use bench::{Bench, Build};
use datasets::peaks::{Certainty, ComputePeak, ComputeRate, MemoryPeak, MemoryRate};
use datasets::{Peaks, PeaksMeasured, Reached, Record, Store};
use job::space::{Schedule, task_space};
use job::{BuildJob, RunJob, RunReply};
use measure::host::{Facts, Streaming, memory, stream_rates};
use measure::{Method, Plan};
use models::Task;
use profile::data::MemoryRoof;
use report::{format_number, or_unknown};
use std::time::Duration;
use targets::Target;

/// Number of measurements per host and thread count after which peaks are not measured again.
const MAX_MEASUREMENTS: usize = 5;
/// Shortest interval between two measurements, in microseconds; load by other processes often lasts for minutes.
const MIN_INTERVAL_US: i64 = 120_000_000;

/// Returns the host's peak rates: measured now if the store has too few, and raised to rates that operators reached.
pub fn host_peaks(
    store: &Store,
    base: &Record,
    (config, target): (&Config, &Target),
    (facts, reached): (&Facts, &Reached),
    bench: &mut dyn Bench,
) -> Result<Peaks> {
    let known = read_measurements(store, base)?;
    let is_missing = |threads: &usize| config.limits.measure_peaks && is_due(&known, *threads);
    let missing: Vec<usize> = config.threads.iter().copied().filter(is_missing).collect();
    if target.kind.runs_on_cpus() && !missing.is_empty() {
        let mut measured = PeaksMeasured::new(&base.host, &base.host_class, &base.program_version, now_us());
        measure_peaks(&missing, target, facts, bench, &mut measured);
        store.keep_peaks(&measured).map_err(store_failure)?;
    }
    // The store is read again, because another campaign on this host may have measured in the
    // meantime.
    let mut peaks = Peaks::from_measurements(&read_measurements(store, base)?);
    peaks.raise_peaks(reached);
    Ok(peaks)
}

/// Measures the peak rates for one number of threads. Returns no rates if the target is not a CPU or
/// `limits.measure_peaks` is off.
pub fn measure_peak_rates(threads: usize, (config, target): (&Config, &Target), bench: &mut dyn Bench) -> Peaks {
    let facts = Facts::read_facts();
    let mut measured = PeaksMeasured::new("", &facts.host_class(), env!("CARGO_PKG_VERSION"), now_us());
    if config.limits.measure_peaks && target.kind.runs_on_cpus() {
        measure_peaks(&[threads], target, &facts, bench, &mut measured);
    }
    Peaks::from_measurements([&measured])
}

fn read_measurements(store: &Store, base: &Record) -> Result<Vec<PeaksMeasured>> {
    let mut known = store.peaks().map_err(store_failure)?;
    known.retain(|measured| measured.host == base.host && measured.host_class == base.host_class);
    Ok(known)
}

fn is_due(known: &[PeaksMeasured], threads: usize) -> bool {
    let has = |measured: &&PeaksMeasured| {
        measured.is_current() && measured.compute.iter().any(|rate| rate.threads as usize == threads)
    };
    let mut taken: Vec<i64> = known.iter().filter(has).map(|measured| measured.taken_at_us).collect();
    taken.sort_unstable();
    taken.len() < MAX_MEASUREMENTS && taken.last().is_none_or(|last| now_us().saturating_sub(*last) >= MIN_INTERVAL_US)
}

/// Measures the peak rates for some thread counts. Rates that cannot be measured are omitted.
fn measure_peaks(
    counts: &[usize],
    target: &Target,
    facts: &Facts,
    bench: &mut dyn Bench,
    measured: &mut PeaksMeasured,
) {
    let Ok(cpus) = allowed_cpus() else { return };
    let limit = memory::memory_limit().map_or(u64::MAX, |(bytes, _)| bytes);
    let memory_bytes = facts.memory_bytes.unwrap_or(1 << 30).min(limit);
    for &count in counts {
        let cpus = cpus[..count.min(cpus.len())].to_vec();
        let threads = u32::try_from(count).unwrap_or(u32::MAX);
        let compute = multiply_adds(target, &cpus, bench);
        measured.compute.extend(compute.map(|flops_per_second| ComputeRate { threads, flops_per_second }));
        let streams = stream_rates(&Streaming::for_cpus(&cpus, memory_bytes)).unwrap_or_default();
        measured.memory.extend(streams.into_iter().map(|rate| MemoryRate {
            threads,
            working_set_bytes: rate.working_set_bytes,
            level: Some(rate.level),
            kind: Some(rate.kind.to_owned()),
            bytes_per_second: rate.bytes_per_second,
        }));
    }
}

/// Returns the higher rate of two long operators: a matrix product, split by rows, whose right operand stays in the
/// first-level cache, and a convolution with one image per thread and a window for which no algorithm saves products.
fn multiply_adds(target: &Target, cpus: &[usize], bench: &mut dyn Bench) -> Option<f64> {
    peak_operators(cpus.len()).iter().filter_map(|text| flops_per_second(text, target, cpus, bench)).reduce(f64::max)
}

fn peak_operators(threads: usize) -> [String; 2] {
    const ROWS_PER_THREAD: usize = 16 * 224;
    [
        format!("matmul:m={},n=64,k=128", ROWS_PER_THREAD * threads),
        format!("conv2d:n={threads},ci=64,hw=56,co=64,k=5,p=2"),
    ]
}

fn task_and_schedule(text: &str, target: &Target) -> Option<(Task, Schedule)> {
    let graph = zoo::simple::build_operator(text).ok()?;
    let task: Task = models::fuse::distinct_tasks(&graph, models::fuse::Fuse::None).ok()?.into_iter().next()?.task;
    let schedule = Schedule::Template { knobs: task_space(&task, &target.machine).default };
    Some((task, schedule))
}

fn flops_per_second(text: &str, target: &Target, cpus: &[usize], bench: &mut dyn Bench) -> Option<f64> {
    const SLACK: Duration = Duration::from_secs(20);
    let (task, schedule) = task_and_schedule(text, target)?;
    let task_json = serde_json::to_string(&task).ok()?;
    let job = BuildJob::for_schedule(&task_json, target, &schedule);
    let Some(Build::Built(artifact)) = bench.build_jobs(&[job], &mut || ()).into_iter().next() else { return None };
    let job = RunJob::library_run(task_json, cpus.to_vec(), Method::Sample(Plan::default())).with_artifact(&artifact);
    match bench.run_job(&job, job.time_limit(task.work().ok()?.flops, SLACK)) {
        // A peak is the rate of the least disturbed batch.
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

/// Formats the peak rates of the roofline model, in lines of text.
pub fn describe_peaks(peaks: &Peaks) -> Vec<String> {
    let on = |threads: u32| if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
    let one = |peak: &ComputePeak| {
        let rate = format_number(peak.flops_per_second * 1e-9);
        format!("peak on {}: {rate} GFLOP/s ({})", on(peak.threads), describe_certainty(&peak.certainty))
    };
    let levels = |of_threads: &[MemoryPeak]| {
        let largest = level_peaks(of_threads);
        let rate = |peak: &&MemoryPeak| {
            Some(format!("{} {}", peak.level.as_ref()?, format_number(peak.bytes_per_second * 1e-9)))
        };
        let rates: Vec<String> = largest.iter().filter_map(rate).collect();
        let last = largest.last().filter(|_| !rates.is_empty())?;
        Some(format!(
            "memory on {}: {} GB/s ({})",
            on(last.threads),
            rates.join(", "),
            describe_certainty(&last.certainty)
        ))
    };
    let memory = peaks.memory.chunk_by(|one, other| one.threads == other.threads).filter_map(levels);
    peaks.compute.iter().map(one).chain(memory).collect()
}

/// Returns the peak of each memory level, given the peaks for one number of threads. The largest working set of a level
/// is least affected by the previous level.
fn level_peaks(of_threads: &[MemoryPeak]) -> Vec<&MemoryPeak> {
    of_threads.chunk_by(|one, other| one.level == other.level).filter_map(<[MemoryPeak]>::last).collect()
}

/// Returns the peak rates of the named memory levels on a number of threads, the fastest level first.
pub fn memory_roofs(peaks: &Peaks, threads: usize) -> Vec<MemoryRoof> {
    let of_threads: Vec<MemoryPeak> =
        peaks.memory.iter().filter(|peak| peak.threads as usize == threads).cloned().collect();
    let roof =
        |peak: &MemoryPeak| Some(MemoryRoof { level: peak.level.clone()?, bytes_per_second: peak.bytes_per_second });
    level_peaks(&of_threads).into_iter().filter_map(roof).collect()
}

fn describe_certainty(certainty: &Certainty) -> String {
    match (certainty.is_reached, certainty.measurements) {
        (true, _) => "reached by an operator".to_owned(),
        (false, 1) => "measured once".to_owned(),
        (false, times) => {
            let spread = or_unknown(certainty.spread, |spread| format!("{:.0} %", 100.0 * spread));
            format!("measured {times} times, ± {spread}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{describe_peaks, peak_operators, task_and_schedule};
    use datasets::peaks::{ComputeRate, MemoryRate};
    use datasets::{Peaks, PeaksMeasured, Record};

    #[test]
    fn peaks_are_listed_by_memory_level() {
        let memory = [("L1", 1 << 14, 200e9), ("L1", 1 << 15, 180e9), ("L3", 1 << 24, 60e9), ("DRAM", 1 << 27, 28e9)];
        let rate = |(level, working_set_bytes, bytes_per_second): (&str, u64, f64)| MemoryRate {
            threads: 2,
            working_set_bytes,
            level: Some(level.to_owned()),
            kind: Some("read".to_owned()),
            bytes_per_second,
        };
        let measured = PeaksMeasured {
            compute: vec![ComputeRate { threads: 2, flops_per_second: 230e9 }],
            memory: memory.map(rate).to_vec(),
            ..PeaksMeasured::new("host", "class", "0.1.0", 0)
        };
        let wanted = [
            "peak on 2 threads: 230 GFLOP/s (measured once)",
            "memory on 2 threads: L1 180, L3 60.0, DRAM 28.0 GB/s (measured once)",
        ];
        assert_eq!(describe_peaks(&Peaks::from_measurements([&measured])), wanted);
        // Earlier versions recorded only working sets, without levels.
        let old = PeaksMeasured { memory: vec![MemoryRate { level: None, ..rate(memory[0]) }], ..measured };
        assert_eq!(describe_peaks(&Peaks::from_measurements([&old])), wanted[..1]);
    }

    #[test]
    fn peak_operators_compute_all_counted_products() {
        for features in [vec![], vec!["avx2".to_owned()], vec!["avx512f".to_owned()]] {
            let target = targets::llvm_target("x86-64", &features, 4);
            for text in peak_operators(4) {
                let (_, schedule) = task_and_schedule(&text, &target).expect("the zoo has it");
                let record = Record { schedule: datasets::Json::parse(&schedule.to_json()).ok(), ..Record::default() };
                assert!(!record.saves_products(), "{text}: {}", schedule.describe_knobs());
            }
        }
    }
}
