//! Foreign tables: named columns of numbers or texts, and the mapping that defines their meaning.

mod csv;
mod curves;
mod mapping;
mod plausible;
mod reading;
mod repeats;

pub use curves::{CurveMapping, ThreadCurve};
pub use mapping::{Mapping, Time};
pub use plausible::MOST_OVER_BOUND;
pub use reading::read_samples;

use crate::error::Result;
use datasets::ForeignValues;
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<TableColumn>,
    pub rows: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    pub name: String,
    pub cells: Cells,
}

/// Cells of a column: numbers if every cell is a number or empty, else words.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// One number per row; NaN for an empty cell.
    Numbers(Vec<f64>),
    Words {
        words: Vec<String>,
        codes: Vec<u32>,
    },
}

impl Table {
    pub fn find_column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Reads a CSV file, optionally compressed with gzip, or a Parquet file.
pub fn read_table(path: &Path) -> Result<Table> {
    if path.extension().is_none_or(|extension| extension != "parquet") {
        return csv::read_csv(path);
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
