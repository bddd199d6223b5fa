//! PMU records with their times and commands.

/// Marker of a missing command or missing tags.
pub const NONE: u32 = u32::MAX;

/// Classification of a system record without a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    #[default]
    None,
    Wait,
    Send,
}

/// A PMU record. Times are cycles until `clean::to_ns`, nanoseconds after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: i64,
    pub end: i64,
    /// Cycles from start to end, inclusive.
    pub cycles: i64,
    /// Command number since the last reset.
    pub id: u64,
    /// Index of the raw record in its stream.
    pub row: u32,
    /// Index of the core's command, or `NONE`.
    pub command: u32,
    /// Index of the core's tags, or `NONE`.
    pub tags: u32,
    /// Classification if no command is known.
    pub label: Label,
    /// Core whose command the record executes; ambiguous only for ports.
    pub core: Option<u8>,
}

/// Source of the information about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Dynamic node.
    Tdi,
    /// Node that names a generator instead of registers.
    Rvt,
    /// Descriptor that a node refers to.
    Des,
    /// Command of a compiled model.
    Static,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCommand {
    /// Word of the node; 0 for descriptors without a node.
    pub word: u32,
    /// Command number since the last reset.
    pub id: u32,
    /// Index of the tags, or `NONE`.
    pub tags: u32,
    /// Layout of the descriptor, or `NO_LAYOUT`.
    pub layout: u16,
    /// Source of the information.
    pub origin: Origin,
    /// Offset of the descriptor in the file.
    pub at: u64,
}

/// Marker of a missing descriptor.
pub const NO_LAYOUT: u16 = u16::MAX;

/// Context of a node in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Index of the kernel's name, or `NONE`.
    pub function: u32,
    /// Number of the kernel call, or `NONE`.
    pub scope: u32,
    /// Number of the batch, or `NONE`.
    pub batch: u32,
    /// Source of the information about the command.
    pub mode: Origin,
}

impl Origin {
    /// Returns the name in reports; static commands have none.
    pub fn mode(self) -> Option<&'static str> {
        match self {
            Origin::Tdi => Some("TDI"),
            Origin::Rvt => Some("RVT"),
            Origin::Des => Some("DES"),
            Origin::Static => None,
        }
    }
}

impl RecordedCommand {
    /// Returns the operation code of a node.
    pub fn op(&self) -> u32 {
        self.word >> 10 & 31
    }

    /// Returns the sub-operation code of a node.
    pub fn sub(&self) -> u32 {
        self.word >> 15 & 31
    }

    /// Returns the upper bits of a node.
    pub fn extra(&self) -> u32 {
        self.word >> 20
    }

    /// Returns whether a descriptor is known.
    pub fn is_decoded(&self) -> bool {
        self.layout != NO_LAYOUT
    }
}
