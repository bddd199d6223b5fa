//! What is known about a column.

use super::cell::Storage;
use super::table::{COLUMNS, ColumnId};

/// One column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its place in the table.
    pub id: ColumnId,
    /// Its name in every file and engine.
    pub name: &'static str,
    /// The group it is documented under.
    pub group: &'static str,
    /// How it is stored.
    pub kind: Kind,
    /// Unit of its numbers, or the form of its texts.
    pub unit: &'static str,
    /// Whether a row may lack it.
    pub nullable: bool,
    /// What it means; may begin with a space, see `text`.
    pub doc: &'static str,
    /// First schema version that has it.
    pub since: i64,
    /// Whether a predictor that answers before the run may see it.
    pub known: Known,
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A 64-bit integer.
    Integer,
    /// A 64-bit float; never NaN or infinite.
    Float,
    /// Text with many different values.
    Text,
    /// Text with few different values, stored once each where the format can.
    Label,
    /// A list of floats.
    List,
    /// JSON, kept as text where the format has no JSON.
    Json,
    /// A 128-bit key.
    Key,
    /// Microseconds since 1970-01-01 UTC.
    Time,
}

/// When a value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Before the artifact runs.
    Before,
    /// Only after it ran.
    After,
}

impl Column {
    /// What the column means, trimmed.
    pub fn text(&self) -> &'static str {
        self.doc.trim()
    }
}

impl Kind {
    /// Whether a value of this storage fits the kind.
    pub(crate) const fn stores(self, storage: Storage) -> bool {
        matches!(
            (self, storage),
            (Kind::Bool, Storage::Bool)
                | (Kind::Integer | Kind::Time, Storage::Integer)
                | (Kind::Float, Storage::Float)
                | (Kind::Text | Kind::Label, Storage::Text)
                | (Kind::Json, Storage::Json)
                | (Kind::List, Storage::List)
                | (Kind::Key, Storage::Key)
        )
    }

    /// The name used in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Integer => "i64",
            Kind::Float => "f64",
            Kind::Text => "string",
            Kind::Label => "string, few values",
            Kind::List => "list of f64",
            Kind::Json => "JSON",
            Kind::Key => "128-bit key",
            Kind::Time => "i64 time",
        }
    }
}

impl Known {
    /// The word used in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Known::Before => "before",
            Known::After => "after",
        }
    }
}

impl ColumnId {
    /// What is known about the column.
    pub fn column(self) -> &'static Column {
        &COLUMNS[self as usize]
    }

    /// The column's name.
    pub fn name(self) -> &'static str {
        self.column().name
    }
}
