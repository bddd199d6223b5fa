//! Tables of others: named columns of numbers or texts, and the mapping that says what they mean.

mod csv;
mod mapping;
mod plausible;
mod reading;
mod repeats;

pub use csv::read;
pub use mapping::Mapping;
pub use reading::samples;

/// A table by column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns in the order of the file, all equally long.
    pub columns: Vec<TableColumn>,
    pub rows: usize,
}

/// A named column.
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    pub name: String,
    pub cells: Cells,
}

/// The values of a column: numbers where every cell is one or empty, else texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Not-a-number where the cell is empty.
    Numbers(Vec<f64>),
    /// One word per row, as an index into the distinct words in order of appearance.
    Words {
        words: Vec<String>,
        /// The word of each row.
        codes: Vec<u32>,
    },
}

impl Table {
    pub fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}
