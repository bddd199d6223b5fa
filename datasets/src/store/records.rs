//! The records of a store, one after the other.

use super::chosen::Chosen;
use super::damage::Damage;
use super::journal_reader::TornTail;
use super::merge::Merged;
use super::{Store, settled};
use crate::codec::checked;
use crate::error::Result;
use crate::record::batch::Batch;
use crate::record::choose::Choose;
use crate::record::table::Record;
use std::path::PathBuf;

impl Store {
    /// The records that are chosen, sorted by operator kind, task, key and time.
    pub fn records(&self, choose: Choose) -> Result<Records> {
        let Merged { merge, torn, damage } = settled(|| self.merged())?;
        let batch = Batch::of_rows(0);
        let chosen = Chosen::new(merge, choose);
        Ok(Records { root: self.root.clone(), chosen, batch, row: 0, rows_before: 0, torn, damage, has_failed: false })
    }
}

/// The records of a store, each checked; the first error ends the reading.
pub struct Records {
    root: PathBuf,
    chosen: Chosen,
    batch: Batch,
    /// Rows of the batch that were given out, and all rows before the batch.
    row: usize,
    rows_before: u64,
    torn: Vec<TornTail>,
    damage: Vec<Damage>,
    has_failed: bool,
}

impl Records {
    /// Journals whose last line is unfinished; that line is not among the records.
    pub fn torn(&self) -> &[TornTail] {
        &self.torn
    }

    /// What is not among the records because it is not what was written.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn advance(&mut self) -> Result<Option<Record>> {
        if self.row == self.batch.len() {
            self.rows_before += self.batch.len() as u64;
            match self.chosen.next()? {
                Some(batch) => self.batch = batch,
                None => return Ok(None),
            }
            self.row = 0;
        }
        let number = self.rows_before + self.row as u64 + 1;
        let record = checked(&self.root, number, self.batch.row(self.row))?;
        self.row += 1;
        Ok(Some(record))
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.has_failed {
            return None;
        }
        let next = self.advance().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}
