//! Which experiments a store holds: a scan of a few columns of all parts and of all journals.

use super::journal::JournalReader;
use super::{Store, settled};
use crate::batch::{Batch, Row};
use crate::codec::parquet::PartCursor;
use crate::error::Result;
use crate::parallel;
use crate::record::cell::Cell;
use crate::record::choose::Rank;
use crate::record::key::Key;
use crate::record::table::ColumnId;
use crate::record::words::Outcome;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

/// Rows read at once.
const ROWS: usize = 8192;

/// Something about each key, for the row that stays.
pub(super) type ByKey<T> = HashMap<Key, (Rank, T), BuildHasherDefault<KeyHasher>>;

/// The experiments of a store, to know what need not be run again.
#[derive(Debug, Default)]
pub struct Keys {
    outcomes: HashMap<Key, Outcome, BuildHasherDefault<KeyHasher>>,
}

impl Store {
    /// Reads the keys of all parts and journals, those of running processes included.
    pub fn keys(&self) -> Result<Keys> {
        let columns = [ColumnId::key, ColumnId::outcome];
        let scan = |batch: &Batch, found: &mut Vec<(Key, Outcome)>| {
            found.extend(batch.rows().map(|row| (key(&row), outcome(&row))));
        };
        let mut keys = Keys::default();
        let found = settled(|| self.scan(&columns, Vec::new, scan))?;
        found.into_iter().flatten().for_each(|(key, outcome)| keys.insert(key, outcome));
        Ok(keys)
    }

    /// Gives every batch of some columns to a function, file by file on two threads; what it gathers comes back per
    /// file, journals first.
    pub(super) fn scan<T: Send>(
        &self,
        columns: &[ColumnId],
        begin: impl Fn() -> T + Sync,
        gather: impl Fn(&Batch, &mut T) + Sync,
    ) -> Result<Vec<T>> {
        let journals = self.journals()?;
        // Reading a journal keeps all threads busy by itself.
        let of_journals: Vec<Result<T>> = journals
            .iter()
            .map(|path| {
                let mut gathered = begin();
                scan_journal(path, |batch| gather(batch, &mut gathered)).map(|()| gathered)
            })
            .collect();
        let parts = self.parts()?;
        let of_parts = parallel::map(parts.len(), |index| {
            let mut gathered = begin();
            scan_part(&parts[index], columns, |batch| gather(batch, &mut gathered)).map(|()| gathered)
        });
        of_journals.into_iter().chain(of_parts).collect()
    }
}

fn scan_part(path: &Path, columns: &[ColumnId], mut each: impl FnMut(&Batch)) -> Result<()> {
    let mut cursor = PartCursor::open(path, columns)?;
    while let Some(batch) = cursor.next(ROWS)? {
        each(&batch);
    }
    Ok(())
}

fn scan_journal(path: &Path, mut each: impl FnMut(&Batch)) -> Result<()> {
    let mut reader = JournalReader::open(path)?;
    loop {
        let rows = reader.next_rows(ROWS)?;
        if rows.is_empty() {
            return Ok(());
        }
        each(&Batch::of(&rows.iter().collect::<Vec<_>>()));
    }
}

/// Notes a row unless one that stays before it was noted for its key.
pub(super) fn keep<T>(by_key: &mut ByKey<T>, key: Key, rank: Rank, value: T) {
    match by_key.entry(key) {
        Entry::Vacant(entry) => {
            entry.insert((rank, value));
        }
        Entry::Occupied(mut entry) if rank < entry.get().0 => {
            entry.insert((rank, value));
        }
        Entry::Occupied(_) => {}
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
        self.outcomes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Whether an experiment was tried.
    pub fn contains(&self, key: Key) -> bool {
        self.outcomes.contains_key(&key)
    }

    /// How an experiment ended, if it was tried; `ok` if any of its attempts was.
    pub fn outcome(&self, key: Key) -> Option<Outcome> {
        self.outcomes.get(&key).copied()
    }

    /// Notes an attempt, for example one that this process has just recorded.
    pub fn insert(&mut self, key: Key, outcome: Outcome) {
        if self.outcome(key) != Some(Outcome::Ok) {
            self.outcomes.insert(key, outcome);
        }
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
