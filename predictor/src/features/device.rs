//! What runs an operator, in the few numbers that bound it.

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
}

impl Device {
    /// Operations in one nanosecond on all units.
    pub fn flops_per_ns(&self) -> f64 {
        self.units * self.flops_per_cycle * self.clock_ghz
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
    }
}
