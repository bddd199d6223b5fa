//! One PMU record, placed in time and paired with its command.

/// No command, no tags.
pub const NONE: u32 = u32::MAX;

/// What a system command without a known command is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// Nothing is known.
    #[default]
    None,
    /// It waited for a message.
    Wait,
    /// It sent one.
    Send,
}

/// One record. Times are cycles until `clean::to_ns`, nanoseconds after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Begin.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Cycles from begin to end, both counted.
    pub cycles: i64,
    /// Number of the command since the last reset of numbers.
    pub id: u64,
    /// Index of the raw record among those of its stream.
    pub row: u32,
    /// Index of its command among those of its core, or `NONE`.
    pub command: u32,
    /// Index of its tags among those of its core, or `NONE`.
    pub tags: u32,
    /// What it is when no command is known.
    pub label: Label,
    /// The core whose command it is; only ports have several to choose from.
    pub core: Option<u8>,
}

/// How a command became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A dynamic node.
    Tdi,
    /// A node that names a generator instead of registers.
    Rvt,
    /// A descriptor that a node refers to.
    Des,
    /// A command of a compiled model.
    Static,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The node's word; 0 for descriptors without one.
    pub word: u32,
    /// Its number since the last reset of numbers.
    pub id: u32,
    /// Its tags, or `NONE`.
    pub tags: u32,
    /// Layout of its descriptor, or `NO_LAYOUT`.
    pub layout: u16,
    /// How it became known.
    pub origin: Origin,
    /// Offset of its descriptor in the file.
    pub at: u64,
}

/// No descriptor is known.
pub const NO_LAYOUT: u16 = u16::MAX;

/// What a node's place in the stream says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Index of the kernel's name, or `NONE`.
    pub function: u32,
    /// Number of the call of that kernel, or `NONE`.
    pub scope: u32,
    /// Number of the batch, or `NONE`.
    pub batch: u32,
    /// How the command became known.
    pub mode: Origin,
}

impl Origin {
    /// Its name in reports; static commands have none.
    pub fn mode(self) -> Option<&'static str> {
        match self {
            Origin::Tdi => Some("TDI"),
            Origin::Rvt => Some("RVT"),
            Origin::Des => Some("DES"),
            Origin::Static => None,
        }
    }
}

impl Command {
    /// Operation of a node.
    pub fn op(&self) -> u32 {
        self.word >> 10 & 31
    }

    /// Sub-operation of a node.
    pub fn sub(&self) -> u32 {
        self.word >> 15 & 31
    }

    /// The rest of a node.
    pub fn extra(&self) -> u32 {
        self.word >> 20
    }

    /// Whether a descriptor is known.
    pub fn is_decoded(&self) -> bool {
        self.layout != NO_LAYOUT
    }
}
