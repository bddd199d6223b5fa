//! Cells of records as texts that are compared.

use datasets::Cell;

/// A cell as a text.
pub(super) fn text(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Null | Cell::List(_) => None,
        Cell::Bool(value) => Some(value.to_string()),
        Cell::Integer(value) => Some(value.to_string()),
        Cell::Float(value) => Some(value.to_string()),
        Cell::Text(text) => Some(text.to_owned()),
        Cell::Key(key) => Some(key.hex()),
    }
}
