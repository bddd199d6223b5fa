//! Instructions of a core; `codec` writes and reads them as 128 bits.

mod codec;

pub use codec::{decode, encode};

use crate::core::Buffer;
use serde::{Deserialize, Serialize};

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Reads from memory.
    Load(Memory),
    /// Writes to memory.
    Store(Memory),
    /// Adds products to sums, or makes sums zero.
    Multiply(Multiply),
    /// Works on sums.
    Alu(Alu),
    /// Ends the program.
    Finish,
}

/// What an instruction waits for and lets go on: the module before its own and the one behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Waits for the module before.
    pub pop_previous: bool,
    /// Waits for the module behind.
    pub pop_next: bool,
    /// Tells the module before.
    pub push_previous: bool,
    /// Tells the module behind.
    pub push_next: bool,
}

/// A rectangle of elements in memory that lies without gaps on the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What it waits for and tells.
    pub tokens: Tokens,
    /// The memory of the core.
    pub buffer: Buffer,
    /// First element on the core.
    pub on_core: u16,
    /// First element in memory.
    pub in_memory: u32,
    /// Rows; none makes it an instruction of tokens alone, as no columns do.
    pub rows: u16,
    /// Elements of a row.
    pub columns: u16,
    /// Elements from one row to the next in memory.
    pub stride: u16,
    /// Zeros around it.
    pub pads: Pads,
}

/// Zeros around a rectangle, at most 15 on each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Pads {
    pub top: u8,
    pub bottom: u8,
    pub left: u8,
    pub right: u8,
}

/// Micro-operations of a range, in two loops around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The first.
    pub begin: u16,
    /// The one behind the last.
    pub end: u16,
    /// Turns of the outer loop.
    pub outer: u16,
    /// Turns of the inner loop.
    pub inner: u16,
}

/// Adds the product of an element of data and one of weights to a sum, many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiply {
    /// What it waits for and tells.
    pub tokens: Tokens,
    /// Whether sums become zero instead.
    pub is_reset: bool,
    /// Its loops.
    pub steps: Steps,
    /// What a turn of the outer and of the inner loop adds to the sum's place.
    pub sum: [u16; 2],
    /// The same of data.
    pub data: [u16; 2],
    /// The same of weights.
    pub weight: [u16; 2],
}

/// Changes a sum by a number or by another sum, many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alu {
    /// What it waits for and tells.
    pub tokens: Tokens,
    /// How.
    pub op: AluOp,
    /// Its loops.
    pub steps: Steps,
    /// What a turn of the outer and of the inner loop adds to the place of what is changed.
    pub sum: [u16; 2],
    /// The same of the other sum.
    pub other: [u16; 2],
    /// The number that stands for the other sum.
    pub immediate: Option<i16>,
}

/// How sums are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AluOp {
    Min,
    Max,
    Add,
    /// Shifted right; the sign stays.
    ShiftRight,
}

impl AluOp {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            AluOp::Min => "min",
            AluOp::Max => "max",
            AluOp::Add => "add",
            AluOp::ShiftRight => "shift_right",
        }
    }
}

/// Places of one step: a sum, and an element of data (of sums, for what works on sums) and of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MicroOp {
    pub sum: u16,
    pub data: u16,
    pub weight: u16,
}

/// Bits that are no instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DecodeError {
    #[error("operation {0} does not exist")]
    Operation(u64),
    #[error("memory {0} does not exist on this core")]
    Memory(u64),
    #[error("operation {0} on sums does not exist on this core")]
    Alu(u64),
    #[error("bits that mean nothing are set")]
    Rest,
}
