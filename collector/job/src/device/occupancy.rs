//! Occupancy: the number of blocks of a kernel that fit on a multiprocessor at once, by NVIDIA's occupancy calculator.
//! Registers are allocated to warps in units of 256, warps are distributed over four schedulers, and shared memory is
//! allocated in units of 128 bytes (256 before Ampere).

use serde::{Deserialize, Serialize};
use targets::{Architecture, WARP_THREADS};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    pub blocks: u32,
    /// Resident warps per multiprocessor as a share of the maximum.
    pub part: f64,
    pub limiter: Limiter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    Threads,
    Blocks,
    Registers,
    SharedMemory,
}

pub fn kernel_occupancy(
    architecture: Architecture,
    block_threads: u32,
    registers: u32,
    shared_bytes: u32,
) -> Occupancy {
    const REGISTER_UNIT: u32 = 256;
    const SCHEDULERS: u32 = 4;
    let offered = architecture.multiprocessor();
    let warps = block_threads.div_ceil(WARP_THREADS).max(1);
    let most_warps = offered.threads / WARP_THREADS;
    let warp_registers = (registers * WARP_THREADS).next_multiple_of(REGISTER_UNIT);
    let by_registers = match warp_registers {
        0 => offered.blocks,
        _ => offered.registers / SCHEDULERS / warp_registers * SCHEDULERS / warps,
    };
    let shared_unit = if architecture.number < 80 { 256 } else { 128 };
    let block_shared = (shared_bytes + offered.reserved_shared_bytes).next_multiple_of(shared_unit);
    let by_shared = offered.shared_bytes.checked_div(block_shared).unwrap_or(offered.blocks);
    let bounds = [
        (most_warps / warps, Limiter::Threads),
        (offered.blocks, Limiter::Blocks),
        (by_registers, Limiter::Registers),
        (by_shared, Limiter::SharedMemory),
    ];
    let (blocks, limiter) = bounds.into_iter().min_by_key(|(blocks, _)| *blocks).expect("there are four bounds");
    Occupancy { blocks, part: f64::from(blocks * warps) / f64::from(most_warps), limiter }
}

#[cfg(test)]
mod tests {
    use super::{Architecture, Limiter, kernel_occupancy};

    #[test]
    fn each_resource_limits_in_its_turn() {
        let sm = |name: &str| Architecture::parse_name(name).unwrap();
        let full = kernel_occupancy(sm("sm_80"), 256, 32, 0);
        assert_eq!((full.blocks, full.part, full.limiter), (8, 1.0, Limiter::Threads));
        let registers = kernel_occupancy(sm("sm_90"), 256, 255, 0);
        assert_eq!((registers.blocks, registers.part, registers.limiter), (1, 0.125, Limiter::Registers));
        let shared = kernel_occupancy(sm("sm_75"), 128, 16, 32 << 10);
        assert_eq!((shared.blocks, shared.limiter), (2, Limiter::SharedMemory));
        let small = kernel_occupancy(sm("sm_80"), 32, 16, 0);
        assert_eq!((small.blocks, small.part, small.limiter), (32, 0.5, Limiter::Blocks));
        // 48 KiB and 1 KiB that the system reserves: three blocks in 164 KiB.
        assert_eq!(kernel_occupancy(sm("sm_80"), 128, 32, 48 << 10).blocks, 3);
    }
}
