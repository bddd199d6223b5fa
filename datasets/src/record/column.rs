//! Storage kinds of columns, and when values are known.

use super::cell::Storage;

/// The storage kind of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Boolean.
    Bool,
    /// A 64-bit integer.
    Integer,
    /// A 64-bit float; never NaN or infinite.
    Float,
    /// Text with many distinct values.
    Text,
    /// Text with few distinct values, dictionary-encoded if the format allows it.
    Label,
    /// A list of floats.
    List,
    /// JSON, stored as text if the format has no JSON type.
    Json,
    /// A 128-bit key.
    Key,
    /// Microseconds since 1970-01-01 UTC.
    Time,
}

/// Whether a value is known before or only after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownWhen {
    /// Before the artifact runs.
    Before,
    /// Only after the run.
    After,
}

impl Kind {
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

    /// Returns the name used in the documentation.
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

impl KnownWhen {
    /// Returns the word used in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            KnownWhen::Before => "before",
            KnownWhen::After => "after",
        }
    }
}
