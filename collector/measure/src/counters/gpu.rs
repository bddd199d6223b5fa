//! Stable names of GPU counters, which records contain, and their sources. Chips have different names for hardware
//! metrics, so range-profiler counters list equivalent metrics, best first; a test compares them with NVIDIA's library.

use super::Step;

#[derive(Debug)]
pub struct GpuCounter {
    pub name: &'static str,
    pub unit: &'static str,
    pub description: &'static str,
    pub step: Step,
    /// Whether the counter must be requested by name, because it needs additional runs.
    pub is_on_demand: bool,
    /// Equivalent metrics of the range profiler, best first; empty for other sources.
    pub metrics: &'static [&'static str],
}

const fn default_counter(name: &'static str, unit: &'static str, step: Step, description: &'static str) -> GpuCounter {
    GpuCounter { name, unit, description, step, is_on_demand: false, metrics: &[] }
}

const fn on_demand(name: &'static str, unit: &'static str, step: Step, description: &'static str) -> GpuCounter {
    GpuCounter { is_on_demand: true, ..default_counter(name, unit, step, description) }
}

const fn profiler_metric(
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    metrics: &'static [&'static str],
) -> GpuCounter {
    GpuCounter { metrics, ..on_demand(name, unit, Step::Cupti, description) }
}

pub const KERNEL_TIME: &str = "gpu_kernel_ns";
pub const ENERGY: &str = "gpu_energy_millijoules";

pub const GPU_NAMES: &[GpuCounter] = &[
    default_counter("gpu_sm_clock_mhz", "MHz", Step::Nvml, "clock of the multiprocessors: the median over the batches"),
    default_counter(
        "gpu_sm_clock_min_mhz",
        "MHz",
        Step::Nvml,
        "clock of the multiprocessors: the minimum over the batches",
    ),
    default_counter("gpu_memory_clock_mhz", "MHz", Step::Nvml, "clock of the memory: the median over the batches"),
    default_counter("gpu_power_watts", "W", Step::Nvml, "power of the board: the median over the batches"),
    default_counter(
        "gpu_temperature_celsius",
        "°C",
        Step::Nvml,
        "temperature of the chip: the highest over the batches",
    ),
    default_counter(
        "gpu_throttle_reasons",
        "bits",
        Step::Nvml,
        "throttle reasons of all batches as NVML's bit mask, without the idle bit",
    ),
    default_counter("gpu_launch_ns", "ns", Step::Device, "device time from one empty kernel to the next"),
    default_counter("gpu_launch_host_ns", "ns", Step::Device, "host time to launch an empty kernel"),
    default_counter(
        "gpu_graph_launch_ns",
        "ns",
        Step::Device,
        "device time from one empty kernel to the next in a CUDA graph",
    ),
    default_counter("gpu_graph_ns", "ns", Step::Device, "time of a run in a CUDA graph, for short runs"),
    default_counter(
        "gpu_rotated_ns",
        "ns",
        Step::Device,
        "time of a run on data that is not in the second-level cache",
    ),
    default_counter("gpu_memory_bytes", "byte", Step::Device, "device memory of the task"),
    on_demand(KERNEL_TIME, "ns", Step::Cupti, "time of the kernels of a run without the gaps between them"),
    on_demand(ENERGY, "mJ", Step::Nvml, "energy of the board per run, from consecutive runs"),
    profiler_metric(
        "gpu_dram_read_bytes",
        "byte",
        "bytes read from the device's memory",
        &["dram__bytes_read.sum", "dram__bytes_op_read.sum"],
    ),
    profiler_metric(
        "gpu_dram_write_bytes",
        "byte",
        "bytes written to the device's memory",
        &["dram__bytes_write.sum", "dram__bytes_op_write.sum"],
    ),
    profiler_metric(
        "gpu_dram_percent",
        "%",
        "share of the memory's maximum throughput",
        &["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"],
    ),
    profiler_metric(
        "gpu_l2_hit_percent",
        "%",
        "share of second-level cache accesses that hit",
        &["lts__t_sector_hit_rate.pct"],
    ),
    profiler_metric(
        "gpu_l1_hit_percent",
        "%",
        "share of first-level cache accesses that hit",
        &["l1tex__t_sector_hit_rate.pct"],
    ),
    profiler_metric(
        "gpu_sm_percent",
        "%",
        "share of the maximum throughput of the multiprocessors' busiest unit",
        &["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
    ),
    profiler_metric(
        "gpu_tensor_percent",
        "%",
        "share of time with active tensor cores",
        &[
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    profiler_metric(
        "gpu_occupancy_percent",
        "%",
        "resident warps as a share of the maximum, while a multiprocessor is active",
        &["sm__warps_active.avg.pct_of_peak_sustained_active"],
    ),
    profiler_metric("gpu_instructions", "count", "instructions of warps", &["sm__inst_executed.sum"]),
    profiler_metric(
        "gpu_stall_memory_percent",
        "%",
        "share of a warp's time that it waits for data from memory or the caches",
        &["smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"],
    ),
    profiler_metric(
        "gpu_stall_shared_percent",
        "%",
        "share of a warp's time that it waits for shared memory or special functions",
        &["smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct"],
    ),
    profiler_metric(
        "gpu_stall_barrier_percent",
        "%",
        "share of a warp's time that it waits at a barrier of its block",
        &["smsp__warp_issue_stalled_barrier_per_warp_active.pct"],
    ),
    profiler_metric(
        "gpu_stall_math_percent",
        "%",
        "share of a warp's time that it waits for a busy arithmetic unit",
        &["smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct"],
    ),
    profiler_metric(
        "gpu_stall_wait_percent",
        "%",
        "share of a warp's time that it waits for a result of fixed latency",
        &["smsp__warp_issue_stalled_wait_per_warp_active.pct"],
    ),
];

pub fn find_counter(name: &str) -> Option<&'static GpuCounter> {
    GPU_NAMES.iter().find(|counter| counter.name == name)
}

pub fn has_gpu_prefix(name: &str) -> bool {
    name.starts_with("gpu_") || name.starts_with(METRIC_PREFIX)
}

pub const METRIC_PREFIX: &str = "cupti:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMetric {
    pub name: String,
    pub unit: &'static str,
    pub candidates: Vec<String>,
}

impl WantedMetric {
    /// Returns the range-profiler metrics among `events`, without duplicates.
    pub fn requested_metrics(events: &[String]) -> Vec<WantedMetric> {
        let mut wanted: Vec<WantedMetric> = Vec::new();
        for name in events.iter().filter(|name| !name.is_empty()) {
            let found = match (name.strip_prefix(METRIC_PREFIX), find_counter(name)) {
                (Some(own), _) => WantedMetric { name: name.clone(), unit: "native", candidates: vec![own.to_owned()] },
                (None, Some(counter)) if !counter.metrics.is_empty() => WantedMetric {
                    name: name.clone(),
                    unit: counter.unit,
                    candidates: counter.metrics.iter().map(ToString::to_string).collect(),
                },
                _ => continue,
            };
            if !wanted.contains(&found) {
                wanted.push(found);
            }
        }
        wanted
    }

    pub fn choose_metric(&self, known: &std::collections::BTreeSet<String>) -> Option<&str> {
        let is_known = |metric: &&String| known.contains(metric.split('.').next().unwrap_or_default());
        self.candidates.iter().find(is_known).map(String::as_str)
    }
}

/// Returns whether a metric is a sum, which grows with the work, unlike a ratio or a rate.
pub fn is_sum(metric: &str) -> bool {
    metric.split('.').skip(1).eq(["sum"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn wanted(names: &[&str]) -> Vec<WantedMetric> {
        WantedMetric::requested_metrics(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_unique_and_say_that_they_are_of_a_gpu() {
        for (place, counter) in GPU_NAMES.iter().enumerate() {
            assert!(has_gpu_prefix(counter.name), "{}", counter.name);
            assert!(GPU_NAMES[..place].iter().all(|other| other.name != counter.name), "{} twice", counter.name);
            assert!(super::super::names::find_counter(counter.name).is_none(), "{}", counter.name);
            let is_part = counter.name.ends_with("_percent");
            assert_eq!(is_part, counter.unit == "%", "{}", counter.name);
            assert!(counter.metrics.iter().all(|metric| is_sum(metric) != is_part), "{}", counter.name);
        }
    }

    #[test]
    fn every_counter_is_described_in_the_documentation() {
        let page = include_str!("../../../../docs/guide/cuda.md");
        for counter in GPU_NAMES {
            assert!(page.contains(&format!("`{}`", counter.name)), "{}", counter.name);
            assert!(!counter.description.is_empty());
        }
    }

    #[test]
    fn metrics_are_asked_for_by_stable_names_or_their_own_and_once() {
        let found =
            wanted(&["gpu_dram_read_bytes", "cycles", "gpu_kernel_ns", "cupti:a__b.sum", "gpu_dram_read_bytes"]);
        let names: Vec<&str> = found.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["gpu_dram_read_bytes", "cupti:a__b.sum"]);
        assert_eq!((found[0].unit, found[1].unit), ("byte", "native"));
        assert_eq!(found[1].candidates, ["a__b.sum"]);
    }

    #[test]
    fn the_first_metric_that_a_chip_has_is_chosen() {
        let metric = &wanted(&["gpu_dram_read_bytes"])[0];
        let chosen =
            |known: &[&str]| metric.choose_metric(&known.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
        assert_eq!(chosen(&["dram__bytes_op_read", "dram__bytes_read"]), Some("dram__bytes_read.sum"));
        assert_eq!(chosen(&["dram__bytes_op_read"]), Some("dram__bytes_op_read.sum"));
        assert_eq!(chosen(&["dram__bytes"]), None);
    }

    #[test]
    fn sums_grow_with_the_work_and_parts_do_not() {
        assert!(is_sum("sm__inst_executed.sum"));
        assert!(!is_sum("sm__inst_executed.sum.per_second") && !is_sum("lts__t_sector_hit_rate.pct") && !is_sum("a"));
    }
}
