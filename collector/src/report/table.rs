//! Tables a person reads: a line under the headers, none between rows.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Width where no terminal says one.
const WITHOUT_TERMINAL: u16 = 180;
/// Narrower terminals cannot show a table at all.
const NARROWEST: u16 = 20;

/// A table with these headers that fits the terminal.
pub fn new_table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(headers).set_content_arrangement(ContentArrangement::Dynamic);
    // A terminal that nobody gave a size says 0.
    if table.width().is_none_or(|columns| columns < NARROWEST) {
        table.set_width(WITHOUT_TERMINAL);
    }
    table
}

/// Numbers stand under each other.
pub fn right_align(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
