//! Runs a program on a board: memory that lies in one piece, the registers of four blocks, a wait that ends.
//!
//! **Nobody has run this on hardware.** It was tried on a bus that computes what a core would when its registers say so.

use crate::core::{Buffer, Core};
use crate::instruction::{DecodeError, Instruction, decode, encode};
use crate::layout::{LayoutError, pack, unpack};
use crate::program::{ALIGNMENT, Program, Role};

/// A block of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Block {
    Fetch,
    Load,
    Compute,
    Store,
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

/// Registers, memory and a clock of a board.
pub trait Bus {
    /// Writes a register.
    fn write(&mut self, block: Block, register: u32, value: u32);
    /// Reads a register.
    fn read(&mut self, block: Block, register: u32) -> u32;
    /// Memory that lies in one piece.
    fn memory(&mut self) -> &mut [u8];
    /// Where it begins for the core.
    fn address(&self) -> u64;
    /// Nanoseconds of a clock that never goes back.
    fn now_ns(&mut self) -> u64;
}

/// Why a run gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DriveError {
    #[error("the board has {has} bytes of memory in one piece, and the program needs {needs}")]
    Memory { has: u64, needs: u64 },
    #[error("the board's memory begins at {0:#x}, which is no multiple of 4096 below 2^32")]
    Address(u64),
    #[error("the core says that it is done before it began; program its bitstream again")]
    StaleDone,
    #[error("the core was not done within {0} ns; program its bitstream again")]
    TimedOut(u64),
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("it takes {wanted} operands, got {given}")]
    Operands { wanted: usize, given: usize },
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A board's core.
pub struct Driver<'a> {
    bus: &'a mut dyn Bus,
    limit_ns: u64,
}

impl<'a> Driver<'a> {
    /// On this bus, each run at most so long.
    pub fn new(bus: &'a mut dyn Bus, limit_ns: u64) -> Driver<'a> {
        Driver { bus, limit_ns }
    }

    /// The result of a program, and the nanoseconds from the first register to the end.
    pub fn run(&mut self, program: &Program, operands: &[&[u8]]) -> Result<(Vec<u8>, u64), DriveError> {
        let instructions_at = self.place(program, operands)?;
        let count = u32::try_from(program.instructions.len()).unwrap_or(u32::MAX);
        if self.bus.read(Block::Compute, registers::DONE) & 1 == 1 {
            return Err(DriveError::StaleDone);
        }
        let begin = self.bus.now_ns();
        for (block, register, value) in [
            (Block::Fetch, registers::COUNT, count),
            (Block::Fetch, registers::INSTRUCTIONS, instructions_at),
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
            self.bus.write(block, register, value);
        }
        let taken = loop {
            let is_done = self.bus.read(Block::Compute, registers::DONE) & 1 == 1;
            let taken = self.bus.now_ns().saturating_sub(begin);
            if is_done {
                break taken;
            }
            if taken > self.limit_ns {
                return Err(DriveError::TimedOut(self.limit_ns));
            }
        };
        let region = program.region(Role::Result).map_or(0..0, |region| range(region.begin, region.bytes));
        let packed = self.bus.memory().get(region).unwrap_or_default();
        Ok((unpack(&program.core, &program.layer, packed)?, taken))
    }

    /// Writes everything into memory; says where the instructions are.
    fn place(&mut self, program: &Program, operands: &[&[u8]]) -> Result<u32, DriveError> {
        let (address, wanted) = (self.bus.address(), program.layer.operands());
        if wanted.len() != operands.len() {
            return Err(DriveError::Operands { wanted: wanted.len(), given: operands.len() });
        }
        if !address.is_multiple_of(ALIGNMENT) || u32::try_from(address + program.memory_bytes()).is_err() {
            return Err(DriveError::Address(address));
        }
        let instructions = relocated(program, address)?;
        let begin = program.memory_bytes().next_multiple_of(ALIGNMENT);
        let (has, needs) = (self.bus.memory().len() as u64, begin + instructions.len() as u64);
        if has < needs {
            return Err(DriveError::Memory { has, needs });
        }
        let mut parts = vec![(begin, instructions)];
        let micro_ops = program.region(Role::MicroOps).map(|region| (region.begin, program.micro_op_bytes()));
        parts.extend(micro_ops);
        for (place, (operand, bytes)) in wanted.into_iter().zip(operands).enumerate() {
            let packed = pack(&program.core, &program.layer, operand, bytes)?;
            parts.extend(program.region(Role::Operand(place)).map(|region| (region.begin, packed)));
        }
        let memory = self.bus.memory();
        for (begin, bytes) in parts {
            memory[range(begin, bytes.len() as u64)].copy_from_slice(&bytes);
        }
        u32::try_from(address + begin).map_err(|_| DriveError::Address(address))
    }
}

fn range(begin: u64, bytes: u64) -> std::ops::Range<usize> {
    let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    place(begin)..place(begin.saturating_add(bytes))
}

/// The instructions with places in the memory that begins at an address. All base registers are zero, so places count from
/// the begin of all memory.
fn relocated(program: &Program, address: u64) -> Result<Vec<u8>, DriveError> {
    let core: &Core = &program.core;
    let mut bytes = Vec::new();
    for (place, bits) in program.instructions.iter().enumerate() {
        let mut instruction = decode(core, *bits).map_err(|why| DriveError::Decode { place, why })?;
        if let Instruction::Load(memory) | Instruction::Store(memory) = &mut instruction {
            let buffer: Buffer = memory.buffer;
            let moved = address / core.element_bytes(buffer) + u64::from(memory.in_memory);
            memory.in_memory = u32::try_from(moved).map_err(|_| DriveError::Address(address))?;
        }
        bytes.extend(encode(core, &instruction).iter().flat_map(|half| half.to_le_bytes()));
    }
    Ok(bytes)
}
