//! How columns are stored, and when their values are known.

use super::cell::Storage;

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
