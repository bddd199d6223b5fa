//! Properties of machines on which schedule spaces depend.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub block_threads: i64,
    /// Shared memory per block, in bytes.
    pub shared_bytes: i64,
    pub warp_threads: i64,
    /// Ten times the minimum compute capability of the generated code; 0 without tensor cores.
    pub capability: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Number of 32-bit floats in a vector.
    pub vector_lanes: i64,
    pub vector_registers: i64,
    pub cores: i64,
    /// Whether a core executes a vector instruction in two halves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_halved: bool,
    /// Whether the CPU is made by Intel and has 512-bit vectors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_intel: bool,
}

#[cfg(test)]
impl Cpu {
    pub(crate) fn test(vector_lanes: i64, cores: i64) -> Cpu {
        Cpu { vector_lanes, vector_registers: 2 * vector_lanes, cores, is_halved: false, is_intel: false }
    }
}
