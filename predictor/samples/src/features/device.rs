//! What runs an operator, in the few numbers that bound it.

use datasets::Peaks;
use serde::{Deserialize, Serialize};

/// A device as a predictor sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Multiprocessors of a GPU, cores of a CPU.
    pub units: f64,
    /// Floating-point operations a unit does in one cycle, a multiply-add counting as two.
    pub flops_per_cycle: f64,
    /// Clock under load, in GHz.
    pub clock_ghz: f64,
    /// Main memory bandwidth in GB/s.
    pub bandwidth_gb_per_s: f64,
    /// The cache all units share, in bytes.
    pub cache_bytes: f64,
    /// Memory of one unit that software or hardware keeps close, in bytes; 0 if unknown.
    #[serde(default)]
    pub near_bytes: f64,
    /// Memory in bytes; 0 if unknown.
    #[serde(default)]
    pub memory_bytes: f64,
    /// Architecture generation as a number that grows, such as a compute capability; 0 if unknown.
    #[serde(default)]
    pub generation: f64,
    /// What it can do at best by threads and by how much is moved, where that was measured. It then bounds times; the figures
    /// above still tell devices apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peaks: Option<Peaks>,
}

impl Device {
    /// Returns whether this GPU is newer than another one and reaches its rates and caches. Slightly less bandwidth is no
    /// loss next to a larger cache.
    pub fn exceeds(&self, other: &Device) -> bool {
        let is_gpu = self.generation > 0.0 && other.generation > 0.0;
        is_gpu
            && self.generation > other.generation
            && self.flops_per_ns() >= other.flops_per_ns()
            && self.bandwidth_gb_per_s >= 0.9 * other.bandwidth_gb_per_s
            && self.cache_bytes >= other.cache_bytes
    }

    /// Operations in one nanosecond on all units.
    pub fn flops_per_ns(&self) -> f64 {
        self.flops_per_ns_on(self.units)
    }

    /// Operations in one nanosecond on some threads.
    pub fn flops_per_ns_on(&self, threads: f64) -> f64 {
        let measured = self.peaks.as_ref().and_then(|peaks| peaks.flops_per_second(threads));
        let by_figures = || self.units * self.flops_per_cycle * self.clock_ghz * (threads / self.units).min(1.0);
        measured.map_or_else(by_figures, |rate| rate / 1e9)
    }

    /// Bytes in one nanosecond on some threads, when so many are moved again and again.
    pub fn bytes_per_ns_on(&self, threads: f64, bytes: f64) -> f64 {
        let measured = self.peaks.as_ref().and_then(|peaks| peaks.bytes_per_second(threads, bytes));
        measured.map_or(self.bandwidth_gb_per_s, |rate| rate / 1e9)
    }

    /// Bytes in one nanosecond.
    pub fn bytes_per_ns(&self) -> f64 {
        self.bandwidth_gb_per_s
    }

    /// Whether every number is usable.
    pub fn is_sound(&self) -> bool {
        let needed = [self.units, self.flops_per_cycle, self.clock_ghz, self.bandwidth_gb_per_s, self.cache_bytes];
        let known = [self.near_bytes, self.memory_bytes, self.generation];
        needed.iter().all(|number| number.is_finite() && *number > 0.0)
            && known.iter().all(|number| number.is_finite() && *number >= 0.0)
            && self.peaks.as_ref().is_none_or(Peaks::is_sound)
    }
}
