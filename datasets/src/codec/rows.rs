//! Iterates over the records of batches.

use super::RecordReader;
use crate::error::{Error, Result, RowUnit};
use crate::record::batch::{Batch, BatchRow};
use crate::record::table::Record;
use std::path::{Path, PathBuf};

pub(crate) trait Batches {
    /// Returns the next nonempty batch, or None at the end.
    fn next_batch(&mut self) -> Result<Option<Batch>>;
}

/// An iterator over the records of batches, which ends at the first error.
pub(crate) struct BatchRecords<S> {
    /// File or folder named in errors.
    path: PathBuf,
    source: S,
    batch: Batch,
    /// Position in the batch, and the number of rows before the batch.
    row: usize,
    rows_before: u64,
    has_failed: bool,
}

impl<S: Batches> BatchRecords<S> {
    pub(crate) fn new(path: &Path, source: S) -> BatchRecords<S> {
        let batch = Batch::of_rows(0);
        BatchRecords { path: path.to_owned(), source, batch, row: 0, rows_before: 0, has_failed: false }
    }

    fn next_record(&mut self) -> Result<Option<Record>> {
        if self.row == self.batch.len() {
            self.rows_before += self.batch.len() as u64;
            match self.source.next_batch()? {
                Some(batch) => self.batch = batch,
                None => return Ok(None),
            }
            self.row = 0;
        }
        let number = self.rows_before + self.row as u64 + 1;
        let record = check_row(&self.path, number, self.batch.row(self.row))?;
        self.row += 1;
        Ok(Some(record))
    }
}

impl<S: Batches + Send> RecordReader for BatchRecords<S> {
    fn record_position(&self) -> (RowUnit, u64) {
        (RowUnit::Row, self.rows_before + self.row as u64)
    }
}

impl<S: Batches> Iterator for BatchRecords<S> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.has_failed {
            return None;
        }
        let next = self.next_record().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}

pub(crate) fn check_row(path: &Path, number: u64, row: BatchRow<'_>) -> Result<Record> {
    let record = row.to_record().and_then(|record| record.check().map(|()| record));
    record.map_err(|row| Error::Row { file: path.to_owned(), counted: RowUnit::Row, number, row })
}
