//! Hardware figures of a device that bound the time of an operator.

use super::Peaks;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Multiprocessors of a GPU, cores of a CPU.
    pub units: f64,
    /// Floating-point operations per unit and cycle; a multiply-add counts as two.
    pub flops_per_cycle: f64,
    pub clock_ghz: f64,
    pub bandwidth_gb_per_s: f64,
    pub cache_bytes: f64,
    /// Size of the cache or scratchpad of one unit in bytes; 0 if unknown.
    #[serde(default)]
    pub near_bytes: f64,
    /// Memory capacity in bytes; 0 if unknown.
    #[serde(default)]
    pub memory_bytes: f64,
    /// Number that increases with the architecture generation, such as a compute capability; 0 if unknown.
    #[serde(default)]
    pub generation: f64,
    /// Measured peaks by thread count and working set. They replace the other figures in the roofline bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peaks: Option<Peaks>,
}

impl Device {
    /// Returns whether this GPU is at least as new as `other`, with at least its peak rate, cache and bandwidth. For a
    /// newer one 90 % of the bandwidth suffice.
    pub fn is_successor_of(&self, other: &Device) -> bool {
        let is_gpu = self.generation > 0.0 && other.generation > 0.0;
        let share = if self.generation > other.generation { 0.9 } else { 1.0 };
        is_gpu
            && self.generation >= other.generation
            && self.flops_per_ns() >= other.flops_per_ns()
            && self.bandwidth_gb_per_s >= share * other.bandwidth_gb_per_s
            && self.cache_bytes >= other.cache_bytes
    }

    pub fn flops_per_ns(&self) -> f64 {
        self.flops_per_ns_on(self.units)
    }

    pub fn flops_per_ns_on(&self, threads: f64) -> f64 {
        let measured = self.peaks.as_ref().and_then(|peaks| peaks.flops_per_second(threads));
        let by_figures = || self.units * self.flops_per_cycle * self.clock_ghz * (threads / self.units).min(1.0);
        measured.map_or_else(by_figures, |rate| rate / 1e9)
    }

    /// Returns the bandwidth for repeated transfers of a working set of `bytes`.
    pub fn bytes_per_ns_on(&self, threads: f64, bytes: f64) -> f64 {
        let measured = self.peaks.as_ref().and_then(|peaks| peaks.bytes_per_second(threads, bytes));
        measured.map_or(self.bandwidth_gb_per_s, |rate| rate / 1e9)
    }

    pub fn bytes_per_ns(&self) -> f64 {
        self.bandwidth_gb_per_s
    }

    pub fn is_sound(&self) -> bool {
        let needed = [self.units, self.flops_per_cycle, self.clock_ghz, self.bandwidth_gb_per_s, self.cache_bytes];
        let known = [self.near_bytes, self.memory_bytes, self.generation];
        needed.iter().all(|number| number.is_finite() && *number > 0.0)
            && known.iter().all(|number| number.is_finite() && *number >= 0.0)
            && self.peaks.as_ref().is_none_or(Peaks::is_sound)
    }
}
