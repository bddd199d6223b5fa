//! Tables of others: named columns of numbers or texts, and the mapping that says what they mean.

mod csv;
mod curves;
mod mapping;
mod plausible;
mod reading;
mod repeats;

pub use curves::{CurveMapping, ThreadCurve};
pub use mapping::Mapping;
pub use reading::samples;

use crate::error::Result;
use datasets::ForeignValues;
use std::path::Path;

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

/// Reads the table in a CSV file, which may be packed with gzip, or in a Parquet file.
pub fn read(path: &Path) -> Result<Table> {
    if path.extension().is_none_or(|extension| extension != "parquet") {
        return csv::read(path);
    }
    let columns: Vec<TableColumn> = datasets::read_columns(path)?
        .into_iter()
        .map(|column| {
            let cells = match column.values {
                ForeignValues::Numbers(numbers) => Cells::Numbers(numbers),
                ForeignValues::Words { words, codes } => Cells::Words { words, codes },
            };
            TableColumn { name: column.name, cells }
        })
        .collect();
    let rows = columns.first().map_or(0, |column| match &column.cells {
        Cells::Numbers(numbers) => numbers.len(),
        Cells::Words { codes, .. } => codes.len(),
    });
    Ok(Table { columns, rows })
}
