//! Facts of machines that spaces of schedules depend on.

use serde::{Deserialize, Serialize};

/// Facts of a GPU that a space depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub block_threads: i64,
    /// Bytes of shared memory of one block.
    pub shared_bytes: i64,
    /// Threads that go in step.
    pub warp_threads: i64,
    /// Ten times the least compute capability that code is made for; 0 where nothing multiplies blocks at once.
    pub capability: u32,
}

/// Facts of a CPU that a space depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// 32-bit floats in one vector.
    pub vector_lanes: i64,
    pub vector_registers: i64,
    /// Cores that may work at once.
    pub cores: i64,
    /// Whether a core computes vectors in two steps, half at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_halved: bool,
    /// Whether it is Intel's, with vectors of 512 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_intel: bool,
}

#[cfg(test)]
impl Cpu {
    /// Vectors of 256 or 512 bits.
    pub(crate) fn test(vector_lanes: i64, cores: i64) -> Cpu {
        Cpu { vector_lanes, vector_registers: 2 * vector_lanes, cores, is_halved: false, is_intel: false }
    }
}
