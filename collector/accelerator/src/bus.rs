//! A core as its board reaches it: the registers of four blocks, memory that lies in one piece, and a wait that ends.
//!
//! **Nobody has run this on hardware.** It was tried on a bus that computes what a core would when its registers say so.

use crate::core::Core;

/// A block of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Block {
    Fetch,
    Load,
    Compute,
    Store,
}

impl Block {
    /// All of them, in the order of their addresses.
    pub const ALL: [Block; 4] = [Block::Fetch, Block::Load, Block::Compute, Block::Store];
}

/// Places of registers in their blocks.
pub mod registers {
    /// From the begin of a block to that of the next.
    pub const BLOCK_BYTES: u64 = 0x1000;
    /// What a block does.
    pub const CONTROL: u32 = 0x00;
    /// Of the block that fetches: how many instructions.
    pub const COUNT: u32 = 0x10;
    /// Of the block that fetches: where they are.
    pub const INSTRUCTIONS: u32 = 0x18;
    /// Where elements are counted from: data of the block that loads, results of the one that stores.
    pub const BASE: u32 = 0x10;
    /// The same of weights.
    pub const WEIGHTS: u32 = 0x18;
    /// Of the block that computes: what `DONE` says before a program ends.
    pub const NOT_DONE: u32 = 0x10;
    /// Whether the program ended.
    pub const DONE: u32 = 0x18;
    /// Where micro-operations are counted from.
    pub const MICRO_OPS: u32 = 0x20;
    /// Where sums are counted from.
    pub const SUMS: u32 = 0x28;
    /// Begins once.
    pub const START: u32 = 0x01;
    /// Begins, and again whenever it ended.
    pub const RESTART: u32 = 0x81;
}

/// Registers, memory and a clock of a board, and its fabric.
pub trait Bus {
    /// Writes a register.
    fn write(&mut self, block: Block, register: u32, value: u32);
    /// Reads a register.
    fn read(&mut self, block: Block, register: u32) -> u32;
    /// Bytes of the memory that lies in one piece.
    fn bytes(&self) -> u64;
    /// Where it begins for the core.
    fn address(&self) -> u64;
    /// Puts bytes there, from a place of it on. All of them have to fit.
    fn put(&mut self, at: u64, bytes: &[u8]);
    /// So many bytes from there, all of which have to be in it.
    fn get(&mut self, at: u64, count: u64) -> Vec<u8>;
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&mut self) -> u64;
    /// Brings a core onto the fabric by the file of its bitstream; without one it is there already.
    fn program(&mut self, core: &Core, file: Option<&str>) -> Result<(), String>;
}

/// Why a core did not come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LaunchError {
    #[error("the core says that it is done before it began; program its bitstream again")]
    StaleDone,
    #[error("the core was not done within {0} ns; program its bitstream again")]
    TimedOut(u64),
}

/// Runs so many instructions from this address on; the nanoseconds from the first register to the end.
pub fn launch(bus: &mut dyn Bus, address: u32, count: u32, limit_ns: u64) -> Result<u64, LaunchError> {
    bus.write(Block::Compute, registers::NOT_DONE, 0);
    if is_done(bus) {
        return Err(LaunchError::StaleDone);
    }
    let begin = bus.now_ns();
    for (block, register, value) in [
        (Block::Fetch, registers::COUNT, count),
        (Block::Fetch, registers::INSTRUCTIONS, address),
        (Block::Load, registers::BASE, 0),
        (Block::Load, registers::WEIGHTS, 0),
        (Block::Compute, registers::MICRO_OPS, 0),
        (Block::Compute, registers::SUMS, 0),
        (Block::Store, registers::BASE, 0),
        (Block::Fetch, registers::CONTROL, registers::START),
        (Block::Load, registers::CONTROL, registers::RESTART),
        (Block::Compute, registers::CONTROL, registers::RESTART),
        (Block::Store, registers::CONTROL, registers::RESTART),
    ] {
        bus.write(block, register, value);
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
    bus.read(Block::Compute, registers::DONE) & 1 == 1
}
