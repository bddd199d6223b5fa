//! The device figures of records: measured peaks of its hosts, raised to the rates that its operators reached.
//!
//! Figures that were not measured are assumed, in the same way for training and queries. No peaks are measured on a
//! GPU: the best rates of its operators are used, or nominal figures if reached rates must not be used.

use crate::features::Device;
use datasets::{Peaks, PeaksMeasured, Reached, Record};
use std::collections::BTreeSet;

/// Operations per second and bytes per second.
type Rates = (f64, f64);

/// Returns the figures of at least one record; `has_reached` raises the peaks to the rates that the records reached.
pub(super) fn device_of_records(records: &[&Record], hosts: &[PeaksMeasured], has_reached: bool) -> Device {
    let is_gpu = targets::kind_of_record(records[0]).is_some_and(|kind| kind.runs_on_gpu());
    let figures = if is_gpu { whole_gpu() } else { assumed_cpu(records[0]) };
    let mut reached = Reached::default();
    records.iter().filter(|_| has_reached).for_each(|record| reached.add_record(record));
    let is_here = |measured: &&PeaksMeasured| {
        !is_gpu && records.iter().any(|record| record.host == measured.host && record.host_class == measured.host_class)
    };
    let mut peaks = Peaks::from_measurements(hosts.iter().filter(is_here));
    let is_measured = !peaks.compute.is_empty();
    let counts: BTreeSet<u32> =
        records.iter().filter_map(|record| u32::try_from(record.threads.unwrap_or(1)).ok()).collect();
    for threads in counts.into_iter().chain([figures.units as u32]) {
        let assumed = if is_gpu && has_reached { reached_rates(&reached) } else { nominal_rates(&figures, threads) };
        peaks.assume_peaks(threads, assumed, &reached);
    }
    peaks.raise_peaks(&reached);
    described_device(figures, peaks, is_measured || is_gpu)
}

fn described_device(figures: Device, peaks: Peaks, is_measured: bool) -> Device {
    let alone = peaks.flops_per_second(1.0).map(|rate| rate * 1e-9 / figures.flops_per_cycle);
    let memory = peaks.bytes_per_second(figures.units, f64::INFINITY).map(|rate| rate * 1e-9);
    let (clock_ghz, bandwidth_gb_per_s) = match is_measured {
        true => (alone.unwrap_or(figures.clock_ghz), memory.unwrap_or(figures.bandwidth_gb_per_s)),
        false => (figures.clock_ghz, figures.bandwidth_gb_per_s),
    };
    Device { clock_ghz, bandwidth_gb_per_s, peaks: Some(peaks), ..figures }
}

fn assumed_cpu(record: &Record) -> Device {
    /// Clock of a typical server under vector load.
    const CLOCK_GHZ: f64 = 2.5;
    const BYTES_PER_NS: f64 = 10.0;
    let target = record.target_text.as_deref().unwrap_or_default();
    let is_wide = ["avx512", "rapids", "icelake", "skylake-avx512", "cascadelake", "znver4", "znver5"];
    let arch = record.cpu_arch.as_deref().unwrap_or_default();
    let flops_per_cycle = match () {
        () if is_wide.iter().any(|word| target.contains(word)) => 64.0,
        () if arch.starts_with("arm") || arch.starts_with("aarch") => 16.0,
        () => 32.0,
    };
    let count = |value: Option<i64>, other: f64| value.filter(|value| *value > 0).map_or(other, |value| value as f64);
    let units = count(record.logical_cpus, 1.0);
    Device {
        units,
        flops_per_cycle,
        clock_ghz: CLOCK_GHZ,
        bandwidth_gb_per_s: BYTES_PER_NS * units,
        cache_bytes: count(record.l2_bytes, 1048576.0),
        near_bytes: count(record.l1d_bytes, 32768.0),
        memory_bytes: count(record.memory_bytes, 0.0),
        generation: 0.0,
        peaks: None,
    }
}

/// Describes a GPU as a single unit with nominal figures, because records do not describe the units of a GPU.
fn whole_gpu() -> Device {
    Device {
        units: 1.0,
        flops_per_cycle: 256.0,
        clock_ghz: 1.0,
        bandwidth_gb_per_s: 100.0,
        cache_bytes: 4194304.0,
        near_bytes: 0.0,
        memory_bytes: 0.0,
        generation: 0.0,
        peaks: None,
    }
}

fn nominal_rates(figures: &Device, threads: u32) -> Rates {
    let used = (f64::from(threads) / figures.units).min(1.0);
    (figures.units * figures.flops_per_cycle * figures.clock_ghz * used * 1e9, figures.bandwidth_gb_per_s * 1e9)
}

fn reached_rates(reached: &Reached) -> Rates {
    /// Typical ratio of peak operations to bytes.
    const BALANCE: f64 = 10.0;
    // Rates of cached data do not represent memory, so the rates of the largest transfers are used.
    match (reached.best_flops_per_second(), reached.best_bytes_per_second()) {
        (Some(compute), Some(memory)) => (compute, memory),
        (Some(compute), None) => (compute, compute / BALANCE),
        (None, Some(memory)) => (memory * BALANCE, memory),
        (None, None) => (1e12, 1e11),
    }
}
