//! Instruction set of an accelerator core; `codec` defines the 128-bit encoding.

mod codec;

pub use codec::{decode_instruction, encode_instruction};

use crate::core::Buffer;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Load(Memory),
    Store(Memory),
    Multiply(Multiply),
    Alu(Alu),
    Finish,
}

/// Synchronisation with the previous and the next module in the data flow. A pop waits for a token, a push sends one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub pop_previous: bool,
    pub pop_next: bool,
    pub push_previous: bool,
    pub push_next: bool,
}

/// Transfer of a strided rectangle in memory from or to contiguous elements on the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub tokens: Tokens,
    pub buffer: Buffer,
    pub on_core: u16,
    pub in_memory: u32,
    /// Number of rows. With zero rows or columns, the instruction only synchronises.
    pub rows: u16,
    pub columns: u16,
    /// Distance between rows in memory, in elements.
    pub stride: u16,
    pub pads: Pads,
}

/// Padding of a transfer, at most 15 elements on each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Pads {
    pub top: u8,
    pub bottom: u8,
    pub left: u8,
    pub right: u8,
}

/// Range of micro-operations, executed in two nested loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub begin: u16,
    /// End of the range, exclusive.
    pub end: u16,
    pub outer: u16,
    pub inner: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiply {
    pub tokens: Tokens,
    pub is_reset: bool,
    pub steps: Steps,
    /// Increments of the index of the sum, per outer and per inner iteration.
    pub sum: [u16; 2],
    pub data: [u16; 2],
    pub weight: [u16; 2],
}

/// Repeated ALU operation whose operands are a sum and either an immediate or another sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alu {
    pub tokens: Tokens,
    pub op: AluOp,
    pub steps: Steps,
    pub sum: [u16; 2],
    /// Increments of the index of the source sum, per outer and per inner iteration.
    pub other: [u16; 2],
    /// Operand that is used instead of the source sum.
    pub immediate: Option<i16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum AluOp {
    Min,
    Max,
    Add,
    ShiftRight,
}

impl AluOp {
    pub fn name(self) -> &'static str {
        match self {
            AluOp::Min => "min",
            AluOp::Max => "max",
            AluOp::Add => "add",
            AluOp::ShiftRight => "shift_right",
        }
    }
}

/// Indices that one step uses: a sum, an element of data (the source sum for ALU instructions), an element of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MicroOp {
    pub sum: u16,
    pub data: u16,
    pub weight: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DecodeError {
    #[error("the operation code {0} does not exist")]
    Operation(u64),
    #[error("the buffer code {0} does not exist on this core")]
    Memory(u64),
    #[error("the ALU operation code {0} does not exist on this core")]
    Alu(u64),
    #[error("unused bits are set")]
    Rest,
}
