//! Cells of records as texts that are compared, and hashes as they are shown.

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

/// As much of a hash as tells it from others in a table. A store may hold any text for one.
pub(super) fn first_signs(hash: &str) -> String {
    hash.chars().take(6).collect()
}
