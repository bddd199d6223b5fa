//! Values of one row and column, and the Rust types of columns.

use super::json::Json;
use super::key::Key;
use crate::error::RowError;
use std::cmp::Ordering;

/// The value of one column in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Absent value.
    Null,
    /// Boolean.
    Bool(bool),
    /// Integer or time.
    Integer(i64),
    /// Float.
    Float(f64),
    /// Text, label, or JSON text.
    Text(&'a str),
    /// List of floats.
    List(&'a [f64]),
    /// Key of an experiment.
    Key(Key),
}

/// The cell variant that a Rust type uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A boolean, stored as [`Cell::Bool`].
    Bool,
    /// An integer or a time, stored as [`Cell::Integer`].
    Integer,
    /// A float, stored as [`Cell::Float`].
    Float,
    /// A text or label, stored as [`Cell::Text`].
    Text,
    /// JSON, stored as its text in [`Cell::Text`].
    Json,
    /// A list of floats, stored as [`Cell::List`].
    List,
    /// A key of an experiment, stored as [`Cell::Key`].
    Key,
}

/// A Rust type that a column of the record table can have.
pub trait Field: Sized {
    /// Cell variant of the type.
    const STORAGE: Storage;
    /// Whether the value may be absent.
    const NULLABLE: bool = false;
    /// Returns the value of the column in a new record.
    fn empty() -> Self;
    /// Returns the value as a cell.
    fn cell(&self) -> Cell<'_>;
    /// Converts a cell to this type, or fails if the cell has another kind.
    fn from_cell(cell: Cell<'_>) -> Result<Self, RowError>;
}

fn kind_mismatch(wanted: &str, cell: Cell<'_>) -> RowError {
    match cell {
        Cell::Null => RowError::new(format!("no value, but {wanted} is required")),
        _ => RowError::new(format!("{}, but {wanted} is required", cell.describe_kind())),
    }
}

impl Cell<'_> {
    /// Compares cells in a total order: floats by their bits, texts by their bytes.
    pub(crate) fn compare_total(&self, other: &Cell<'_>) -> Ordering {
        match (self, other) {
            (Cell::Bool(left), Cell::Bool(right)) => left.cmp(right),
            (Cell::Integer(left), Cell::Integer(right)) => left.cmp(right),
            (Cell::Float(left), Cell::Float(right)) => left.total_cmp(right),
            (Cell::Text(left), Cell::Text(right)) => left.cmp(right),
            (Cell::List(left), Cell::List(right)) => {
                let mut values = left.iter().zip(*right).map(|(left, right)| left.total_cmp(right));
                values.find(|order| order.is_ne()).unwrap_or(left.len().cmp(&right.len()))
            }
            (Cell::Key(left), Cell::Key(right)) => left.cmp(right),
            _ => self.describe_kind().cmp(other.describe_kind()),
        }
    }

    fn describe_kind(&self) -> &'static str {
        match self {
            Cell::Null => "nothing",
            Cell::Bool(_) => "a bool",
            Cell::Integer(_) => "an integer",
            Cell::Float(_) => "a float",
            Cell::Text(_) => "a text",
            Cell::List(_) => "a list",
            Cell::Key(_) => "a key",
        }
    }
}

impl Field for bool {
    const STORAGE: Storage = Storage::Bool;
    fn empty() -> bool {
        false
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Bool(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<bool, RowError> {
        match cell {
            Cell::Bool(value) => Ok(value),
            other => Err(kind_mismatch("a bool", other)),
        }
    }
}

impl Field for i64 {
    const STORAGE: Storage = Storage::Integer;
    fn empty() -> i64 {
        0
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Integer(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<i64, RowError> {
        match cell {
            Cell::Integer(value) => Ok(value),
            other => Err(kind_mismatch("an integer", other)),
        }
    }
}

impl Field for f64 {
    const STORAGE: Storage = Storage::Float;
    fn empty() -> f64 {
        0.0
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Float(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<f64, RowError> {
        match cell {
            Cell::Float(value) => Ok(value),
            other => Err(kind_mismatch("a float", other)),
        }
    }
}

impl Field for String {
    const STORAGE: Storage = Storage::Text;
    fn empty() -> String {
        String::new()
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Text(self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<String, RowError> {
        match cell {
            Cell::Text(text) => Ok(text.to_owned()),
            other => Err(kind_mismatch("a text", other)),
        }
    }
}

impl Field for Vec<f64> {
    const STORAGE: Storage = Storage::List;
    fn empty() -> Vec<f64> {
        Vec::new()
    }
    fn cell(&self) -> Cell<'_> {
        Cell::List(self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<Vec<f64>, RowError> {
        match cell {
            Cell::List(values) => Ok(values.to_vec()),
            other => Err(kind_mismatch("a list", other)),
        }
    }
}

impl Field for Key {
    const STORAGE: Storage = Storage::Key;
    fn empty() -> Key {
        Key::default()
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Key(*self)
    }
    fn from_cell(cell: Cell<'_>) -> Result<Key, RowError> {
        match cell {
            Cell::Key(key) => Ok(key),
            other => Err(kind_mismatch("a key", other)),
        }
    }
}

impl Field for Json {
    const STORAGE: Storage = Storage::Json;
    fn empty() -> Json {
        Json::null()
    }
    fn cell(&self) -> Cell<'_> {
        Cell::Text(self.as_text())
    }
    fn from_cell(cell: Cell<'_>) -> Result<Json, RowError> {
        match cell {
            Cell::Text(text) => Json::parse(text),
            other => Err(kind_mismatch("JSON", other)),
        }
    }
}

impl<T: Field> Field for Option<T> {
    const STORAGE: Storage = T::STORAGE;
    const NULLABLE: bool = true;
    fn empty() -> Option<T> {
        None
    }
    fn cell(&self) -> Cell<'_> {
        self.as_ref().map_or(Cell::Null, T::cell)
    }
    fn from_cell(cell: Cell<'_>) -> Result<Option<T>, RowError> {
        match cell {
            Cell::Null => Ok(None),
            other => T::from_cell(other).map(Some),
        }
    }
}
