//! Decoding and validation of untrusted instructions in a board's memory.

use crate::check::is_empty;
use crate::core::{Buffer, Core};
use crate::instruction::{DecodeError, Instruction, Memory, decode_instruction};
use std::ops::Range;

pub const INSTRUCTION_BYTES: u64 = 16;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum StreamError {
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("instruction {place} moves {what} in the wrong direction")]
    Direction { place: usize, what: &'static str },
    #[error(
        "instruction {place} accesses memory bytes {begin:#x} to {end:#x}, which are outside of the session's blocks"
    )]
    Elsewhere { place: usize, begin: u64, end: u64 },
    #[error("the instructions must end with the only `finish` instruction")]
    End,
}

pub fn read_stream(core: &Core, bytes: &[u8]) -> Result<Vec<Instruction>, StreamError> {
    let (halves, _) = bytes.as_chunks::<8>();
    let (pairs, _) = halves.as_chunks::<2>();
    let decoded = pairs.iter().enumerate().map(|(place, pair)| {
        decode_instruction(core, pair.map(u64::from_le_bytes)).map_err(|why| StreamError::Decode { place, why })
    });
    decoded.collect()
}

/// Rejects instructions that access memory outside of the session's blocks, since the core itself performs no checks.
pub fn check_places(
    core: &Core,
    instructions: &[Instruction],
    is_own: impl Fn(Range<u64>) -> bool,
) -> Result<(), StreamError> {
    let is_end = |instruction: &Instruction| matches!(instruction, Instruction::Finish);
    if instructions.iter().position(is_end).is_none_or(|end| end + 1 != instructions.len()) {
        return Err(StreamError::End);
    }
    for (place, instruction) in instructions.iter().enumerate() {
        let (memory, is_load) = match instruction {
            Instruction::Load(memory) => (memory, true),
            Instruction::Store(memory) => (memory, false),
            Instruction::Multiply(_) | Instruction::Alu(_) | Instruction::Finish => continue,
        };
        if is_load == (memory.buffer == Buffer::Results) {
            return Err(StreamError::Direction { place, what: memory.buffer.name() });
        }
        let touched = touched_bytes(core, memory);
        if !is_empty(memory) && !is_own(touched.clone()) {
            return Err(StreamError::Elsewhere { place, begin: touched.start, end: touched.end });
        }
    }
    Ok(())
}

fn touched_bytes(core: &Core, memory: &Memory) -> Range<u64> {
    let element = core.element_bytes(memory.buffer);
    let begin = u64::from(memory.in_memory);
    let rows = u64::from(memory.rows).saturating_sub(1) * u64::from(memory.stride);
    begin * element..(begin + rows + u64::from(memory.columns)) * element
}
