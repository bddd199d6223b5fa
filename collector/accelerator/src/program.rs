//! Compiled programs: instructions, micro-operations and memory regions.

use crate::core::{Buffer, Core};
use crate::layer::Layer;
use serde::{Deserialize, Serialize};

/// Alignment of memory regions in bytes: a multiple of all element sizes and of the page size.
pub(crate) const ALIGNMENT: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub core: Core,
    pub layer: Layer,
    pub instructions: Vec<[u64; 2]>,
    pub micro_ops: Vec<u32>,
    /// Memory regions of the program. Addresses in instructions are relative to the start of the memory.
    pub regions: Vec<Region>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    pub role: Role,
    pub buffer: Buffer,
    pub begin: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Operand(usize),
    MicroOps,
    Result,
}

impl Program {
    pub fn find_region(&self, role: Role) -> Option<&Region> {
        self.regions.iter().find(|region| region.role == role)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.begin.saturating_add(region.bytes)).max().unwrap_or(0)
    }

    pub fn micro_op_bytes(&self) -> Vec<u8> {
        self.micro_ops.iter().flat_map(|bits| bits.to_le_bytes()).collect()
    }
}

#[derive(Default)]
pub(crate) struct Regions(pub Vec<Region>);

impl Regions {
    /// Appends an aligned region. Returns the index of its first element.
    pub fn append_region(&mut self, core: &Core, role: Role, buffer: Buffer, bytes: u64) -> u32 {
        let end = self.0.last().map_or(0, |last| last.begin + last.bytes);
        let begin = end.next_multiple_of(ALIGNMENT);
        self.0.push(Region { role, buffer, begin, bytes });
        u32::try_from(begin / core.element_bytes(buffer)).expect("layers that fit have 32-bit addresses")
    }
}
