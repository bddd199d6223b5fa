//! Interface between host and accelerator core: registers, contiguous memory, and a wait with a time limit. **Not run
//! on hardware.** It was tested on a bus that simulates the core's response to its registers.

use crate::core::Core;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum BusBlock {
    Fetch,
    Load,
    Compute,
    Store,
}

impl BusBlock {
    /// All blocks of registers, in the order of their addresses.
    pub const ALL: [BusBlock; 4] = [BusBlock::Fetch, BusBlock::Load, BusBlock::Compute, BusBlock::Store];
}

pub mod registers {
    pub const BLOCK_BYTES: u64 = 0x1000;
    pub const CONTROL: u32 = 0x00;
    /// Fetch block: number of instructions.
    pub const COUNT: u32 = 0x10;
    /// Fetch block: address of the instructions.
    pub const INSTRUCTIONS: u32 = 0x18;
    /// Base address of data in the load block and of results in the store block.
    pub const BASE: u32 = 0x10;
    pub const WEIGHTS: u32 = 0x18;
    pub const NOT_DONE: u32 = 0x10;
    pub const DONE: u32 = 0x18;
    pub const MICRO_OPS: u32 = 0x20;
    pub const SUMS: u32 = 0x28;
    pub const START: u32 = 0x01;
    /// Value of `CONTROL` that starts a block and restarts it automatically.
    pub const RESTART: u32 = 0x81;
}

pub trait Bus {
    fn write_register(&mut self, block: BusBlock, register: u32, value: u32);
    fn read_register(&mut self, block: BusBlock, register: u32) -> u32;
    fn memory_bytes(&self) -> u64;
    fn memory_address(&self) -> u64;
    /// Copies bytes to a memory offset. The range must lie within the memory.
    fn write_memory(&mut self, at: u64, bytes: &[u8]);
    fn read_memory(&mut self, at: u64, count: u64) -> Vec<u8>;
    /// Returns the time of a monotonic clock in nanoseconds.
    fn now_ns(&mut self) -> u64;
    /// Loads a bitstream file into the FPGA. Without a file, the core must already be loaded.
    fn load_core(&mut self, core: &Core, file: Option<&str>) -> Result<(), String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LaunchError {
    #[error("the core reports completion before the program was started; load its bitstream again")]
    StaleDone,
    #[error("the core did not finish within {0} ns; load its bitstream again")]
    TimedOut(u64),
}

/// Runs `count` instructions. Returns the nanoseconds from the first register write to the end of the run.
pub fn launch_program(bus: &mut dyn Bus, address: u32, count: u32, limit_ns: u64) -> Result<u64, LaunchError> {
    bus.write_register(BusBlock::Compute, registers::NOT_DONE, 0);
    if is_done(bus) {
        return Err(LaunchError::StaleDone);
    }
    let begin = bus.now_ns();
    for (block, register, value) in [
        (BusBlock::Fetch, registers::COUNT, count),
        (BusBlock::Fetch, registers::INSTRUCTIONS, address),
        (BusBlock::Load, registers::BASE, 0),
        (BusBlock::Load, registers::WEIGHTS, 0),
        (BusBlock::Compute, registers::MICRO_OPS, 0),
        (BusBlock::Compute, registers::SUMS, 0),
        (BusBlock::Store, registers::BASE, 0),
        (BusBlock::Fetch, registers::CONTROL, registers::START),
        (BusBlock::Load, registers::CONTROL, registers::RESTART),
        (BusBlock::Compute, registers::CONTROL, registers::RESTART),
        (BusBlock::Store, registers::CONTROL, registers::RESTART),
    ] {
        bus.write_register(block, register, value);
    }
    loop {
        let is_done = is_done(bus);
        let taken = bus.now_ns().saturating_sub(begin);
        if is_done {
            return Ok(taken);
        }
        if taken > limit_ns {
            return Err(LaunchError::TimedOut(limit_ns));
        }
    }
}

fn is_done(bus: &mut dyn Bus) -> bool {
    bus.read_register(BusBlock::Compute, registers::DONE) & 1 == 1
}
