//! Memory image of a program and its operands, ready to be copied to a board.

use crate::instruction::{DecodeError, Instruction, decode_instruction, encode_instruction};
use crate::layout::{LayoutError, pack_operand, unpack_result};
use crate::program::{ALIGNMENT, Program, Role};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreImage {
    /// Operands and micro-operations with their offsets in the program's memory.
    pub parts: Vec<(u64, Vec<u8>)>,
    /// Encoded instructions with absolute addresses. The instructions themselves may be placed at any address.
    pub instructions: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImageError {
    #[error("the program's memory starts at {0:#x}, but must start at a multiple of 4096 and end below 2^32")]
    Address(u64),
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("the program takes {wanted} operands, got {given}")]
    Operands { wanted: usize, given: usize },
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl CoreImage {
    pub fn new(program: &Program, operands: &[&[u8]], address: u64) -> Result<CoreImage, ImageError> {
        let wanted = program.layer.layer_operands();
        if wanted.len() != operands.len() {
            return Err(ImageError::Operands { wanted: wanted.len(), given: operands.len() });
        }
        let end = address.checked_add(program.memory_bytes());
        if !address.is_multiple_of(ALIGNMENT) || end.is_none_or(|end| end > 1 << 32) {
            return Err(ImageError::Address(address));
        }
        let mut parts = Vec::new();
        parts.extend(program.find_region(Role::MicroOps).map(|region| (region.begin, program.micro_op_bytes())));
        for (place, (operand, bytes)) in wanted.into_iter().zip(operands).enumerate() {
            let packed = pack_operand(&program.core, &program.layer, operand, bytes)?;
            parts.extend(program.find_region(Role::Operand(place)).map(|region| (region.begin, packed)));
        }
        Ok(CoreImage { parts, instructions: relocate_program(program, address)? })
    }
}

pub fn result_place(program: &Program) -> (u64, u64) {
    program.find_region(Role::Result).map_or((0, 0), |region| (region.begin, region.bytes))
}

pub fn external_result(program: &Program, packed: &[u8]) -> Result<Vec<u8>, LayoutError> {
    unpack_result(&program.core, &program.layer, packed)
}

/// Encodes the instructions with absolute addresses, because all base address registers of the core are zero.
fn relocate_program(program: &Program, address: u64) -> Result<Vec<u8>, ImageError> {
    let core = &program.core;
    let mut bytes = Vec::with_capacity(16 * program.instructions.len());
    for (place, bits) in program.instructions.iter().enumerate() {
        let mut instruction = decode_instruction(core, *bits).map_err(|why| ImageError::Decode { place, why })?;
        if let Instruction::Load(memory) | Instruction::Store(memory) = &mut instruction {
            let moved = address / core.element_bytes(memory.buffer) + u64::from(memory.in_memory);
            memory.in_memory = u32::try_from(moved).map_err(|_| ImageError::Address(address))?;
        }
        bytes.extend(encode_instruction(core, &instruction).iter().flat_map(|half| half.to_le_bytes()));
    }
    Ok(bytes)
}
