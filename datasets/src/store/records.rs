//! Iterates over the records of a store.

use super::chosen::SelectedRows;
use super::damage::Damage;
use super::journal_reader::TornTail;
use super::merge::MergedRows;
use super::{Store, retry_if_missing};
use crate::codec::rows::{BatchRecords, Batches};
use crate::error::Result;
use crate::record::batch::Batch;
use crate::record::choose::Choose;
use crate::record::table::Record;

impl Store {
    /// Returns the selected records, sorted by operator kind, task, key and time.
    pub fn select_records(&self, choose: Choose) -> Result<Records> {
        let MergedRows { merge, torn, damage } = retry_if_missing(|| self.merged_rows())?;
        Ok(Records { rows: BatchRecords::new(&self.root, SelectedRows::new(merge, choose)), torn, damage })
    }
}

/// An iterator over validated records; ends after the first error.
pub struct Records {
    rows: BatchRecords<SelectedRows>,
    torn: Vec<TornTail>,
    damage: Vec<Damage>,
}

impl Records {
    /// Returns the journals with an unfinished last line, which is skipped.
    pub fn torn(&self) -> &[TornTail] {
        &self.torn
    }

    /// Returns the damaged content, which is skipped.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }
}

/// Replaces an older alias of a zoo model by its current name.
fn fold_name(record: &mut Record) {
    if record.model_source.as_deref() == Some("local") {
        let name = record.model_name.as_deref().and_then(zoo::canonical_name);
        record.model_name = name.or(record.model_name.take());
    }
}

impl Batches for SelectedRows {
    fn next_batch(&mut self) -> Result<Option<Batch>> {
        self.next_rows()
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let mut record = self.rows.next()?;
        if let Ok(record) = &mut record {
            fold_name(record);
        }
        Some(record)
    }
}
