//! Which experiments a store holds: a scan of a few columns of all parts and of all journals.

use super::damage::Damage;
use super::journal_reader::JournalReader;
use super::{Store, settled};
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

/// Rows read at once.
const ROWS: usize = 8192;

/// The experiments of a store, to know what need not be run again.
#[derive(Debug, Default)]
pub struct Keys {
    tried: HashMap<Key, Tried, BuildHasherDefault<KeyHasher>>,
    damage: Vec<Damage>,
}

/// What is known of an experiment.
#[derive(Clone, Copy, Debug)]
struct Tried {
    outcome: Outcome,
    /// The highest number of an attempt; of ten million experiments every byte counts.
    attempts: u32,
}

impl Tried {
    fn new(outcome: Outcome, attempts: i64) -> Tried {
        Tried { outcome, attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX) }
    }

    /// `ok` if either is, else how the later one ended; the same whichever is met first.
    fn with(self, other: Tried) -> Tried {
        let rank = |tried: &Tried| (tried.outcome == Outcome::Ok, tried.attempts, tried.outcome);
        let outcome = if rank(&self) >= rank(&other) { self.outcome } else { other.outcome };
        Tried { outcome, attempts: self.attempts.max(other.attempts) }
    }
}

impl Store {
    /// Reads the keys of all parts and journals, those of running processes included.
    pub fn keys(&self) -> Result<Keys> {
        let columns = [ColumnId::key, ColumnId::outcome, ColumnId::attempt];
        let (tried, damage) = settled(|| {
            // One table for all files: what each has, side by side, would take as much again.
            let keys = Mutex::new(Keys::default());
            let note = |batch: &Batch, (): &mut ()| {
                let mut keys = keys.lock().unwrap_or_else(PoisonError::into_inner);
                for (index, row) in batch.rows().enumerate() {
                    keys.note(key(&row), Tried::new(outcome(&row), batch.attempt(index)));
                }
            };
            let (_, damage) = self.scan(&columns, || (), note)?;
            Ok((keys.into_inner().unwrap_or_else(PoisonError::into_inner).tried, damage))
        })?;
        Ok(Keys { tried, damage })
    }

    /// Gives every batch of some columns to a function, several files at once; what it gathers comes back per
    /// file, journals first, with what was left out.
    pub(super) fn scan<T: Send>(
        &self,
        columns: &[ColumnId],
        begin: impl Fn() -> T + Sync,
        gather: impl Fn(&Batch, &mut T) + Sync,
    ) -> Result<(Vec<T>, Vec<Damage>)> {
        let mut damage = Vec::new();
        let mut all = Vec::new();
        // Reading a journal keeps all cores busy by itself.
        for path in self.journals()? {
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
    while let Some(batch) = cursor.next(ROWS)? {
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
        each(&Batch::of(&rows.iter().collect::<Vec<_>>()));
    }
}

pub(super) fn key(row: &impl Row) -> Key {
    if let Cell::Key(key) = row.cell(ColumnId::key) { key } else { Key::default() }
}

/// The outcome of a row; an unknown word, which reading the whole row would refuse, counts as skipped.
fn outcome(row: &impl Row) -> Outcome {
    match row.cell(ColumnId::outcome) {
        Cell::Text(word) => Outcome::from_name(word).unwrap_or(Outcome::Skipped),
        _ => Outcome::Skipped,
    }
}

impl Keys {
    /// Number of different experiments.
    pub fn len(&self) -> usize {
        self.tried.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tried.is_empty()
    }

    /// Whether an experiment was tried.
    pub fn contains(&self, key: Key) -> bool {
        self.tried.contains_key(&key)
    }

    /// How an experiment ended, if it was tried; `ok` if any of its attempts was.
    pub fn outcome(&self, key: Key) -> Option<Outcome> {
        self.tried.get(&key).map(|tried| tried.outcome)
    }

    /// How often an experiment was tried, as far as its writers knew of each other.
    pub fn attempts(&self, key: Key) -> i64 {
        self.tried.get(&key).map_or(0, |tried| i64::from(tried.attempts))
    }

    /// What is not among them because it is not what was written.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Notes one more attempt, for example one that this process has just recorded.
    pub fn insert(&mut self, key: Key, outcome: Outcome) {
        let attempts = self.attempts(key) + 1;
        self.note(key, Tried::new(outcome, attempts));
    }

    fn note(&mut self, key: Key, tried: Tried) {
        self.tried.entry(key).and_modify(|known| *known = known.with(tried)).or_insert(tried);
    }
}

/// Keys are hashes already: their first bytes will do.
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
