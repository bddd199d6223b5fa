//! What runs: instructions, micro-operations, and where in memory everything lies.

use crate::core::{Buffer, Core};
use crate::layer::Layer;
use serde::{Deserialize, Serialize};

/// Buffers begin at multiples of this: of all sizes of elements, and of pages.
pub(crate) const ALIGNMENT: u64 = 4096;

/// Everything that a run needs but the values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it runs on.
    pub core: Core,
    /// What it computes.
    pub layer: Layer,
    /// Its instructions as the core reads them.
    pub instructions: Vec<[u64; 2]>,
    /// Its micro-operations as the core reads them.
    pub micro_ops: Vec<u32>,
    /// What lies where in memory; places of instructions are from the begin of it.
    pub regions: Vec<Region>,
}

/// A part of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// What is in it.
    pub role: Role,
    /// The memory of the core that it is read into, or written from.
    pub buffer: Buffer,
    /// Its first byte.
    pub begin: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What is in a part of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The operand of this place.
    Operand(usize),
    /// Micro-operations.
    MicroOps,
    /// The result.
    Result,
}

impl Program {
    /// The part of memory with this role.
    pub fn region(&self, role: Role) -> Option<&Region> {
        self.regions.iter().find(|region| region.role == role)
    }

    /// Bytes of memory of all its parts.
    pub fn memory_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.begin.saturating_add(region.bytes)).max().unwrap_or(0)
    }

    /// Its micro-operations as bytes.
    pub fn micro_op_bytes(&self) -> Vec<u8> {
        self.micro_ops.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }

    /// Its instructions as bytes.
    pub fn instruction_bytes(&self) -> Vec<u8> {
        self.instructions.iter().flatten().flat_map(|half| half.to_le_bytes()).collect()
    }
}

/// Parts of memory one after the other.
#[derive(Default)]
pub(crate) struct Regions(pub Vec<Region>);

impl Regions {
    /// Adds one; says the place of its first element.
    pub fn add(&mut self, core: &Core, role: Role, buffer: Buffer, bytes: u64) -> u32 {
        let end = self.0.last().map_or(0, |last| last.begin + last.bytes);
        let begin = end.next_multiple_of(ALIGNMENT);
        self.0.push(Region { role, buffer, begin, bytes });
        u32::try_from(begin / core.element_bytes(buffer))
            .expect("places of 32 bits, which layers that fit do not exceed")
    }
}
