//! PMU records with their times and commands.

/// Index that stands for a missing command or for missing tags.
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    #[default]
    None,
    Wait,
    Send,
}

/// A PMU record. Its times are in cycles before `clean::to_ns` and in nanoseconds afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: i64,
    pub end: i64,
    /// Number of cycles from start to end, both included.
    pub cycles: i64,
    /// Command number, counted from the last reset.
    pub id: u64,
    /// Index of the raw record in its stream.
    pub row: u32,
    /// Index of the command, or `NONE`.
    pub command: u32,
    pub tags: u32,
    pub label: Label,
    /// Core that issued the record's command. For ports, this is not known in advance.
    pub core: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Dynamic node of a command with registers, which are stored elsewhere and only if they were recorded.
    Tdi,
    /// Node that names a generator instead of registers.
    Rvt,
    /// Descriptor to which a node refers.
    Des,
    Static,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCommand {
    /// Word of the node that describes the command; 0 for descriptors that no node refers to.
    pub word: u32,
    pub id: u32,
    pub tags: u32,
    /// Layout of the descriptor, or `NO_LAYOUT`.
    pub layout: u16,
    pub origin: Origin,
    pub at: u64,
}

pub const NO_LAYOUT: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Index of the kernel's name, or `NONE`.
    pub function: u32,
    /// Number of the kernel call, or `NONE`.
    pub scope: u32,
    pub batch: u32,
    pub mode: Origin,
}

impl Origin {
    /// Returns the name in reports. Static commands have none.
    pub fn report_name(self) -> Option<&'static str> {
        match self {
            Origin::Tdi => Some("TDI"),
            Origin::Rvt => Some("RVT"),
            Origin::Des => Some("DES"),
            Origin::Static => None,
        }
    }
}

impl RecordedCommand {
    pub fn op_code(&self) -> u32 {
        self.word >> 10 & 31
    }

    pub fn sub_code(&self) -> u32 {
        self.word >> 15 & 31
    }

    pub fn upper_bits(&self) -> u32 {
        self.word >> 20
    }

    pub fn is_decoded(&self) -> bool {
        self.layout != NO_LAYOUT
    }
}
