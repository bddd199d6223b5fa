//! The index of experiments, built by scanning a few columns of all parts and journals.

use super::damage::Damage;
use super::journal_reader::JournalReader;
use super::{Store, retry_if_missing};
use crate::codec::parquet::PartCursor;
use crate::error::Result;
use crate::record::batch::{Batch, Row};
use crate::record::cell::Cell;
use crate::record::key::Key;
use crate::record::table::ColumnId;
use crate::record::words::Outcome;
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const ROWS: usize = 8192;

/// The experiments in a store, which need not be repeated.
#[derive(Debug, Default)]
pub struct Keys {
    tried: HashMap<Key, ExperimentState, BuildHasherDefault<KeyHasher>>,
    damage: Vec<Damage>,
}

#[derive(Clone, Copy, Debug)]
struct ExperimentState {
    outcome: Outcome,
    /// Highest attempt number; 32 bits, because an index may hold millions of entries.
    attempts: u32,
    /// Attempts with a row: bit `n` for attempt `n + 1`, up to attempt 32.
    seen: u32,
    /// The failed attempts of `seen`.
    failed: u32,
}

impl ExperimentState {
    fn new(outcome: Outcome, attempts: i64) -> ExperimentState {
        let attempts = u32::try_from(attempts.max(0)).unwrap_or(u32::MAX);
        let bit = attempts.checked_sub(1).and_then(|place| 1u32.checked_shl(place)).unwrap_or_default();
        ExperimentState { outcome, attempts, seen: bit, failed: if outcome == Outcome::Ok { 0 } else { bit } }
    }

    /// Combines two results of one experiment, in any order: `ok` wins, otherwise the later outcome.
    fn merge_with(self, other: ExperimentState) -> ExperimentState {
        let rank = |tried: &ExperimentState| (tried.outcome == Outcome::Ok, tried.attempts, tried.outcome);
        let outcome = if rank(&self) >= rank(&other) { self.outcome } else { other.outcome };
        let attempts = self.attempts.max(other.attempts);
        ExperimentState { outcome, attempts, seen: self.seen | other.seen, failed: self.failed | other.failed }
    }
}

impl Store {
    /// Reads the keys of all parts and journals, including those of running processes.
    pub fn read_keys(&self) -> Result<Keys> {
        let columns = [ColumnId::key, ColumnId::outcome, ColumnId::attempt];
        let (tried, damage) = retry_if_missing(|| {
            // The table is shared, because a table per file would double the memory.
            let keys = Mutex::new(Keys::default());
            let note = |batch: &Batch, (): &mut ()| {
                let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
                for (index, row) in batch.rows().enumerate() {
                    keys.merge_result(
                        row_key(&row),
                        ExperimentState::new(row_outcome(&row), batch.attempt_number(index)),
                    );
                }
            };
            let (_, damage) = self.scan_batches(&columns, || (), note)?;
            Ok((keys.into_inner().unwrap_or_else(PoisonError::into_inner).tried, damage))
        })?;
        Ok(Keys { tried, damage })
    }

    /// Scans all files in parallel; returns one result per file, journals first, and the damage.
    pub(super) fn scan_batches<T: Send>(
        &self,
        columns: &[ColumnId],
        begin: impl Fn() -> T + Sync,
        gather: impl Fn(&Batch, &mut T) + Sync,
    ) -> Result<(Vec<T>, Vec<Damage>)> {
        let mut damage = Vec::new();
        let mut all = Vec::new();
        // Journals are read one after the other, because reading one journal already uses all cores.
        for path in self.list_journals()? {
            let mut gathered = begin();
            damage.extend(scan_journal(&path, |batch| gather(batch, &mut gathered))?);
            all.push(gathered);
        }
        let (parts, of_parts) = self.sound_parts()?;
        damage.extend(of_parts);
        let of_part = |part: &PathBuf| {
            let mut gathered = begin();
            scan_part(part, columns, |batch| gather(batch, &mut gathered)).map(|()| gathered)
        };
        let of_parts: Vec<Result<T>> = parts.par_iter().with_max_len(1).map(of_part).collect();
        for gathered in of_parts {
            all.push(gathered?);
        }
        Ok((all, damage))
    }
}

fn scan_part(path: &Path, columns: &[ColumnId], mut each: impl FnMut(&Batch)) -> Result<()> {
    let mut cursor = PartCursor::open(path, columns)?;
    while let Some(batch) = cursor.read_batch(ROWS)? {
        each(&batch);
    }
    Ok(())
}

fn scan_journal(path: &Path, mut each: impl FnMut(&Batch)) -> Result<Option<Damage>> {
    let mut reader = JournalReader::open(path)?;
    loop {
        let rows = reader.next_rows(ROWS)?;
        if rows.is_empty() {
            return Ok(reader.damage());
        }
        each(&Batch::from_rows(&rows.iter().collect::<Vec<_>>()));
    }
}

pub(super) fn row_key(row: &impl Row) -> Key {
    if let Cell::Key(key) = row.cell(ColumnId::key) { key } else { Key::default() }
}

/// Returns the outcome of a row. An unknown word, which a full read would reject, counts as skipped.
fn row_outcome(row: &impl Row) -> Outcome {
    match row.cell(ColumnId::outcome) {
        Cell::Text(word) => Outcome::from_name(word).unwrap_or(Outcome::Skipped),
        _ => Outcome::Skipped,
    }
}

impl Keys {
    /// Returns the number of experiments.
    pub fn len(&self) -> usize {
        self.tried.len()
    }

    /// Returns whether there are no experiments.
    pub fn is_empty(&self) -> bool {
        self.tried.is_empty()
    }

    /// Returns whether an experiment has been attempted.
    pub fn contains(&self, key: Key) -> bool {
        self.tried.contains_key(&key)
    }

    /// Returns the outcome of an experiment: `ok` if any attempt succeeded; None without attempts.
    pub fn known_outcome(&self, key: Key) -> Option<Outcome> {
        self.tried.get(&key).map(|tried| tried.outcome)
    }

    /// Returns the highest number of an attempt at an experiment.
    pub fn attempts(&self, key: Key) -> i64 {
        self.tried.get(&key).map_or(0, |tried| i64::from(tried.attempts))
    }

    /// Returns the number of attempts with a row; lost rows do not count. Concurrent attempts that got the same number
    /// count once, and attempts from the 33rd on count as if none were lost.
    pub fn recorded_attempts(&self, key: Key) -> i64 {
        let counted = |tried: &ExperimentState| tried.seen.count_ones() + tried.attempts.saturating_sub(u32::BITS);
        self.tried.get(&key).map_or(0, |tried| i64::from(counted(tried)))
    }

    /// Returns the number of failed attempts among the first 32 of an experiment.
    pub fn failed_attempts(&self, key: Key) -> i64 {
        self.tried.get(&key).map_or(0, |tried| i64::from(tried.failed.count_ones()))
    }

    /// Returns the damaged content, which is missing from the index.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Adds an attempt, for example one that this process has just recorded.
    pub fn insert(&mut self, key: Key, outcome: Outcome) {
        let attempts = self.attempts(key) + 1;
        self.merge_result(key, ExperimentState::new(outcome, attempts));
    }

    fn merge_result(&mut self, key: Key, tried: ExperimentState) {
        self.tried.entry(key).and_modify(|known| *known = known.merge_with(tried)).or_insert(tried);
    }
}

#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}
