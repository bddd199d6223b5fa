//! Rows of all or some columns, stored by column as Parquet reads and writes them. Cells borrow from the batch.

use crate::error::RowError;
use crate::record::cell::Cell;
use crate::record::column::Kind;
use crate::record::key::Key;
use crate::record::table::Column;
use crate::record::table::{COLUMNS, ColumnId, Record};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A row with a cell for every column.
pub trait Row {
    /// Returns the value of one column.
    fn cell(&self, id: ColumnId) -> Cell<'_>;
}

impl Row for Record {
    fn cell(&self, id: ColumnId) -> Cell<'_> {
        Record::cell(self, id)
    }
}

/// Rows stored by column.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Values per column of the table; None for columns outside of the projection.
    columns: Vec<Option<Values>>,
    rows: usize,
}

pub(crate) type Piece = (Arc<Batch>, Range<usize>);

/// The values of one column, with placeholders for absent values.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// Parquet's definition levels: 1 for present, 0 for absent. None for a required column.
    pub levels: Option<Vec<i16>>,
    pub data: ColumnData,
}

#[derive(Clone, Debug)]
pub(crate) enum ColumnData {
    Bool(Vec<bool>),
    Integer(Vec<i64>),
    Float(Vec<f64>),
    /// Texts of all rows in one string, which saves allocations; `ends[row]` is the end of the row's text.
    Text {
        ends: Vec<usize>,
        text: String,
    },
    Key(Vec<Key>),
    /// Lists of all rows in one vector; `ends[row]` is the end of the row's values.
    List {
        ends: Vec<usize>,
        values: Vec<f64>,
    },
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRow<'a> {
    batch: &'a Batch,
    row: usize,
}

impl Batch {
    pub(crate) fn all_columns() -> Batch {
        let columns = COLUMNS.iter().map(|column| Some(Values::empty(column))).collect();
        Batch { columns, rows: 0 }
    }

    pub(crate) fn from_rows<R: Row>(rows: &[&R]) -> Batch {
        let columns = COLUMNS.iter().map(|column| Some(Values::from_rows(column, rows))).collect();
        Batch { columns, rows: rows.len() }
    }

    pub(crate) fn of_rows(rows: usize) -> Batch {
        Batch { columns: vec![None; COLUMNS.len()], rows }
    }

    pub(crate) fn set_column(&mut self, id: ColumnId, values: Values) {
        assert_eq!(values.data.len(), self.rows, "a column has one value per row");
        self.columns[id as usize] = Some(values);
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns a row by index.
    pub fn row(&self, row: usize) -> BatchRow<'_> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        BatchRow { batch: self, row }
    }

    /// Returns all rows.
    pub fn rows(&self) -> impl Iterator<Item = BatchRow<'_>> {
        (0..self.rows).map(|row| BatchRow { batch: self, row })
    }

    pub(crate) fn column_values(&self, id: ColumnId) -> Option<&Values> {
        self.columns[id as usize].as_ref()
    }

    pub(crate) fn push(&mut self, row: &impl Row) {
        for (column, values) in COLUMNS.iter().zip(&mut self.columns) {
            if let Some(values) = values {
                values.push(row.cell(column.id));
            }
        }
        self.rows += 1;
    }

    /// Appends rows of another batch. Columns that the other batch lacks become absent.
    pub(crate) fn extend(&mut self, other: &Batch, rows: Range<usize>) {
        for (values, others) in self.columns.iter_mut().zip(&other.columns) {
            match (values, others) {
                (Some(values), Some(others)) => values.extend(others, rows.clone()),
                (Some(values), None) => rows.clone().for_each(|_| values.push(Cell::Null)),
                (None, _) => {}
            }
        }
        self.rows += rows.len();
    }

    /// Copies all columns of the given rows of several batches, in order. Columns that a batch lacks become absent.
    pub(crate) fn gather_rows(pieces: &[Piece]) -> Batch {
        let rows = pieces.iter().map(|(_, rows)| rows.len()).sum();
        let gather = |column: &Column| {
            let mut values = Values::empty(column);
            for (batch, rows) in pieces {
                match batch.column_values(column.id) {
                    Some(others) => values.extend(others, rows.clone()),
                    None => rows.clone().for_each(|_| values.push(Cell::Null)),
                }
            }
            Some(values)
        };
        Batch { columns: COLUMNS.par_iter().with_min_len(8).map(gather).collect(), rows }
    }

    /// Returns the attempt number of a row, or 0 if the batch lacks this column.
    pub(crate) fn attempt_number(&self, row: usize) -> i64 {
        if let Cell::Integer(number) = self.row(row).cell(ColumnId::attempt) { number } else { 0 }
    }

    /// Replaces cells of a column, with one item per row; an item of None keeps the row's cell.
    pub(crate) fn set_cells<'a>(&mut self, id: ColumnId, cells: impl Iterator<Item = Option<Cell<'a>>>) {
        let mut values = Values::empty(id.column_metadata());
        for (row, cell) in self.rows().zip(cells) {
            values.push(cell.unwrap_or_else(|| row.cell(id)));
        }
        self.set_column(id, values);
    }

    pub(crate) fn set_attempts(&mut self, numbers: Vec<i64>) {
        self.set_column(ColumnId::attempt, Values { levels: None, data: ColumnData::Integer(numbers) });
    }

    pub(crate) fn list_values(&self) -> usize {
        let lists = self.columns.iter().flatten().map(|values| match &values.data {
            ColumnData::List { values, .. } => values.len(),
            _ => 0,
        });
        lists.sum()
    }
}

impl BatchRow<'_> {
    /// Converts the row to a record; fails for a missing required column or an unknown word.
    pub fn to_record(&self) -> Result<Record, RowError> {
        let mut record = Record::empty();
        for column in COLUMNS {
            record.set(column.id, self.cell(column.id)).map_err(|error| error.in_field(column.name))?;
        }
        Ok(record)
    }
}

impl Row for BatchRow<'_> {
    fn cell(&self, id: ColumnId) -> Cell<'_> {
        self.batch.columns[id as usize].as_ref().map_or(Cell::Null, |values| values.cell(self.row))
    }
}

impl Values {
    pub fn empty(column: &Column) -> Values {
        let data = match column.kind {
            Kind::Bool => ColumnData::Bool(Vec::new()),
            Kind::Integer | Kind::Time => ColumnData::Integer(Vec::new()),
            Kind::Float => ColumnData::Float(Vec::new()),
            Kind::Text | Kind::Label | Kind::Json => ColumnData::Text { ends: Vec::new(), text: String::new() },
            Kind::Key => ColumnData::Key(Vec::new()),
            Kind::List => ColumnData::List { ends: Vec::new(), values: Vec::new() },
        };
        Values { levels: column.nullable.then(Vec::new), data }
    }

    pub fn from_rows<R: Row>(column: &Column, rows: &[&R]) -> Values {
        let mut values = Values::empty(column);
        rows.iter().for_each(|row| values.push(row.cell(column.id)));
        values
    }

    pub fn cell(&self, row: usize) -> Cell<'_> {
        if self.levels.as_ref().is_some_and(|levels| levels[row] == 0) {
            return Cell::Null;
        }
        match &self.data {
            ColumnData::Bool(values) => Cell::Bool(values[row]),
            ColumnData::Integer(values) => Cell::Integer(values[row]),
            ColumnData::Float(values) => Cell::Float(values[row]),
            ColumnData::Text { ends, text } => Cell::Text(&text[row_start(ends, row)..ends[row]]),
            ColumnData::Key(values) => Cell::Key(values[row]),
            ColumnData::List { ends, values } => Cell::List(&values[row_start(ends, row)..ends[row]]),
        }
    }

    /// Appends a cell. A cell of the wrong kind, which `Record` and `Batch` never produce, becomes a placeholder.
    fn push(&mut self, cell: Cell<'_>) {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(cell != Cell::Null));
        }
        match (&mut self.data, cell) {
            (ColumnData::Bool(values), cell) => values.push(matches!(cell, Cell::Bool(true))),
            (ColumnData::Integer(values), Cell::Integer(value)) => values.push(value),
            (ColumnData::Integer(values), _) => values.push(0),
            (ColumnData::Float(values), Cell::Float(value)) => values.push(value),
            (ColumnData::Float(values), _) => values.push(0.0),
            (ColumnData::Text { ends, text }, cell) => {
                if let Cell::Text(piece) = cell {
                    text.push_str(piece);
                }
                ends.push(text.len());
            }
            (ColumnData::Key(values), Cell::Key(key)) => values.push(key),
            (ColumnData::Key(values), _) => values.push(Key::default()),
            (ColumnData::List { ends, values }, cell) => {
                if let Cell::List(list) = cell {
                    values.extend_from_slice(list);
                }
                ends.push(values.len());
            }
        }
    }

    fn extend(&mut self, other: &Values, rows: Range<usize>) {
        if let Some(levels) = &mut self.levels {
            match &other.levels {
                Some(others) => levels.extend_from_slice(&others[rows.clone()]),
                None => levels.resize(levels.len() + rows.len(), 1),
            }
        }
        match (&mut self.data, &other.data) {
            (ColumnData::Bool(values), ColumnData::Bool(others)) => values.extend_from_slice(&others[rows]),
            (ColumnData::Integer(values), ColumnData::Integer(others)) => values.extend_from_slice(&others[rows]),
            (ColumnData::Float(values), ColumnData::Float(others)) => values.extend_from_slice(&others[rows]),
            (ColumnData::Key(values), ColumnData::Key(others)) => values.extend_from_slice(&others[rows]),
            (ColumnData::Text { ends, text }, ColumnData::Text { ends: other_ends, text: others }) => {
                let piece = row_start(other_ends, rows.start)..row_start(other_ends, rows.end);
                let begun = text.len();
                ends.extend(other_ends[rows].iter().map(|end| end - piece.start + begun));
                text.push_str(&others[piece]);
            }
            (ColumnData::List { ends, values }, ColumnData::List { ends: other_ends, values: others }) => {
                let piece = row_start(other_ends, rows.start)..row_start(other_ends, rows.end);
                let begun = values.len();
                ends.extend(other_ends[rows].iter().map(|end| end - piece.start + begun));
                values.extend_from_slice(&others[piece]);
            }
            _ => unreachable!("a column has one kind"),
        }
    }
}

impl ColumnData {
    pub fn len(&self) -> usize {
        match self {
            ColumnData::Bool(values) => values.len(),
            ColumnData::Integer(values) => values.len(),
            ColumnData::Float(values) => values.len(),
            ColumnData::Key(values) => values.len(),
            ColumnData::Text { ends, .. } | ColumnData::List { ends, .. } => ends.len(),
        }
    }
}

fn row_start(ends: &[usize], row: usize) -> usize {
    if row == 0 { 0 } else { ends[row - 1] }
}
