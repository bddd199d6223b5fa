//! Conversion of record cells to comparable text, and abbreviation of hashes.

use datasets::Cell;

/// Returns the text of a cell. Empty cells and lists have no text.
pub(super) fn cell_text(cell: Cell<'_>) -> Option<String> {
    match cell {
        Cell::Null | Cell::List(_) => None,
        Cell::Bool(value) => Some(value.to_string()),
        Cell::Integer(value) => Some(value.to_string()),
        Cell::Float(value) => Some(value.to_string()),
        Cell::Text(text) => Some(text.to_owned()),
        Cell::Key(key) => Some(key.to_hex()),
    }
}

/// Returns the first characters of a hash. Does not slice by bytes, since a store may contain any text as a hash.
pub(super) fn shorten_hash(hash: &str) -> String {
    hash.chars().take(6).collect()
}
