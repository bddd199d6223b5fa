//! The stable names of what is told of a GPU, and where each comes from.
//!
//! Records carry these names, so they do not change. What the hardware counts has other names on other chips, so those
//! of the range profiler come with all names that mean the same, best first. A test asks NVIDIA's library, which knows
//! the metrics of every chip, for each of them.

use super::Step;

/// One counter of a GPU.
#[derive(Debug)]
pub struct GpuCounter {
    /// The name in requests and records.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What it means.
    pub description: &'static str,
    /// Where it comes from.
    pub step: Step,
    /// Whether it is read only where it is asked for by its name, because reading it takes runs of its own.
    pub is_on_demand: bool,
    /// Metrics of the range profiler that mean this, best first; empty where it comes from elsewhere.
    pub metrics: &'static [&'static str],
}

const fn told(name: &'static str, unit: &'static str, step: Step, description: &'static str) -> GpuCounter {
    GpuCounter { name, unit, description, step, is_on_demand: false, metrics: &[] }
}

const fn on_demand(name: &'static str, unit: &'static str, step: Step, description: &'static str) -> GpuCounter {
    GpuCounter { is_on_demand: true, ..told(name, unit, step, description) }
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    metrics: &'static [&'static str],
) -> GpuCounter {
    GpuCounter { metrics, ..on_demand(name, unit, Step::Cupti, description) }
}

/// The counter of the time of kernels.
pub const KERNEL_TIME: &str = "gpu_kernel_ns";
/// The counter of the energy of a run.
pub const ENERGY: &str = "gpu_energy_millijoules";

/// Every counter of a GPU with a stable name.
pub const GPU_NAMES: &[GpuCounter] = &[
    told("gpu_sm_clock_mhz", "MHz", Step::Nvml, "clock of the multiprocessors: the median over the batches"),
    told("gpu_sm_clock_min_mhz", "MHz", Step::Nvml, "the least of it"),
    told("gpu_memory_clock_mhz", "MHz", Step::Nvml, "clock of the memory: the median over the batches"),
    told("gpu_power_watts", "W", Step::Nvml, "power of the board: the median over the batches"),
    told("gpu_temperature_celsius", "°C", Step::Nvml, "temperature of the chip: the highest over the batches"),
    told(
        "gpu_throttle_reasons",
        "bits",
        Step::Nvml,
        "what held clocks back in any batch, as NVML numbers it, without being idle",
    ),
    told("gpu_launch_ns", "ns", Step::Device, "the device's time from one empty kernel to the next"),
    told("gpu_launch_host_ns", "ns", Step::Device, "the host's time to ask for an empty kernel"),
    told("gpu_graph_launch_ns", "ns", Step::Device, "from one empty kernel to the next in a CUDA graph"),
    told("gpu_graph_ns", "ns", Step::Device, "time of a short run in a CUDA graph"),
    told("gpu_rotated_ns", "ns", Step::Device, "time of a run on data that is not in the second-level cache"),
    told("gpu_memory_bytes", "byte", Step::Device, "memory of the device that the task takes"),
    on_demand(KERNEL_TIME, "ns", Step::Cupti, "time of the kernels of a run without the gaps between them"),
    on_demand(ENERGY, "mJ", Step::Nvml, "energy of the board over a run, one after the other"),
    metric(
        "gpu_dram_read_bytes",
        "byte",
        "bytes read from the device's memory",
        &["dram__bytes_read.sum", "dram__bytes_op_read.sum"],
    ),
    metric(
        "gpu_dram_write_bytes",
        "byte",
        "bytes written to the device's memory",
        &["dram__bytes_write.sum", "dram__bytes_op_write.sum"],
    ),
    metric(
        "gpu_dram_percent",
        "%",
        "part of the memory's greatest throughput",
        &["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"],
    ),
    metric(
        "gpu_l2_hit_percent",
        "%",
        "part of the accesses to the second-level cache that found their data there",
        &["lts__t_sector_hit_rate.pct"],
    ),
    metric(
        "gpu_l1_hit_percent",
        "%",
        "part of the accesses to the first-level cache that found their data there",
        &["l1tex__t_sector_hit_rate.pct"],
    ),
    metric(
        "gpu_sm_percent",
        "%",
        "part of the multiprocessors' greatest throughput, of whichever of their units is busiest",
        &["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
    ),
    metric(
        "gpu_tensor_percent",
        "%",
        "part of the time in which tensor cores work",
        &[
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        ],
    ),
    metric(
        "gpu_occupancy_percent",
        "%",
        "part of the warps a multiprocessor can hold that it held while it worked",
        &["sm__warps_active.avg.pct_of_peak_sustained_active"],
    ),
    metric("gpu_instructions", "count", "instructions of warps", &["sm__inst_executed.sum"]),
    metric(
        "gpu_stall_memory_percent",
        "%",
        "part of a warp's time that it waits for data from memory or the caches",
        &["smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"],
    ),
    metric(
        "gpu_stall_shared_percent",
        "%",
        "part of a warp's time that it waits for shared memory or for special functions",
        &["smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct"],
    ),
    metric(
        "gpu_stall_barrier_percent",
        "%",
        "part of a warp's time that it waits for others of its block",
        &["smsp__warp_issue_stalled_barrier_per_warp_active.pct"],
    ),
    metric(
        "gpu_stall_math_percent",
        "%",
        "part of a warp's time that it waits for a busy arithmetic unit",
        &["smsp__warp_issue_stalled_math_pipe_throttle_per_warp_active.pct"],
    ),
    metric(
        "gpu_stall_wait_percent",
        "%",
        "part of a warp's time that it waits for a result of fixed delay",
        &["smsp__warp_issue_stalled_wait_per_warp_active.pct"],
    ),
];

/// Finds a counter by its stable name.
pub fn find(name: &str) -> Option<&'static GpuCounter> {
    GPU_NAMES.iter().find(|counter| counter.name == name)
}

/// Whether a name is one of a GPU's, known or not.
pub fn is_of_gpu(name: &str) -> bool {
    name.starts_with("gpu_") || name.starts_with(METRIC_PREFIX)
}

/// What stands in front of a metric by its own name.
pub const METRIC_PREFIX: &str = "cupti:";

/// A counter of the range profiler that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedMetric {
    /// The name it was asked for by.
    pub name: String,
    /// What is counted.
    pub unit: &'static str,
    /// Metrics that mean it, best first.
    pub candidates: Vec<String>,
}

impl WantedMetric {
    /// The metrics among the names that were asked for, each once.
    pub fn among(events: &[String]) -> Vec<WantedMetric> {
        let mut wanted: Vec<WantedMetric> = Vec::new();
        for name in events.iter().filter(|name| !name.is_empty()) {
            let found = match (name.strip_prefix(METRIC_PREFIX), find(name)) {
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

    /// The first metric that a chip with these base metrics has.
    pub fn choose(&self, known: &std::collections::BTreeSet<String>) -> Option<&str> {
        let is_known = |metric: &&String| known.contains(metric.split('.').next().unwrap_or_default());
        self.candidates.iter().find(is_known).map(String::as_str)
    }
}

/// Whether a metric grows with the work: a plain sum, as opposed to a part or a rate.
pub fn is_sum(metric: &str) -> bool {
    metric.split('.').skip(1).eq(["sum"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn wanted(names: &[&str]) -> Vec<WantedMetric> {
        WantedMetric::among(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_unique_and_say_that_they_are_of_a_gpu() {
        for (place, counter) in GPU_NAMES.iter().enumerate() {
            assert!(is_of_gpu(counter.name), "{}", counter.name);
            assert!(GPU_NAMES[..place].iter().all(|other| other.name != counter.name), "{} twice", counter.name);
            assert!(super::super::names::find(counter.name).is_none(), "{}", counter.name);
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
        let chosen = |known: &[&str]| metric.choose(&known.iter().map(ToString::to_string).collect::<BTreeSet<_>>());
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
