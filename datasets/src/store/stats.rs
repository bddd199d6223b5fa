//! Counts the content of a store.

use super::damage::Damage;
use super::index::row_key;
use super::{Store, retry_if_missing};
use crate::error::{IoContext, Result};
use crate::record::batch::{Batch, Row};
use crate::record::cell::Cell;
use crate::record::choose::Choose;
use crate::record::key::Key;
use crate::record::table::ColumnId;
use crate::record::visits::AttemptTime;
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// Statistics of a store over the selected measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Number of selected rows.
    pub rows: u64,
    /// Number of experiments.
    pub experiments: u64,
    /// Number of attempts at these experiments, including failed ones.
    pub measurements: u64,
    /// Number of duplicate rows, which a compaction drops.
    pub duplicates: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Start of the first attempt, in microseconds since 1970-01-01 UTC; None without rows.
    pub first_started_at_us: Option<i64>,
    /// Start of the last attempt.
    pub last_started_at_us: Option<i64>,
    /// Rows by outcome.
    pub by_outcome: BTreeMap<String, u64>,
    /// Rows by source of the time.
    pub by_source: BTreeMap<String, u64>,
    /// Rows by target.
    pub by_target: BTreeMap<String, u64>,
    /// Rows by host.
    pub by_host: BTreeMap<String, u64>,
    /// Rows by operator kind.
    pub by_operator: BTreeMap<String, u64>,
    /// Size of the sealed parts.
    pub parts: Files,
    /// Size of the journals.
    pub journals: Files,
    /// Damaged content, which is not counted.
    pub damage: Vec<Damage>,
}

/// The number and size of some files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Files {
    /// Number of files.
    pub count: u64,
    /// Size on disk.
    pub bytes: u64,
}

const LABELS: [ColumnId; 5] =
    [ColumnId::outcome, ColumnId::source, ColumnId::target, ColumnId::host, ColumnId::op_kind];

type StatsLabel = [u32; LABELS.len()];

struct Numbered<T>(HashMap<T, u32>);

impl<T: Hash + Eq> Numbered<T> {
    fn assign_number<Q: Hash + Eq + ToOwned<Owned = T> + ?Sized>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q>,
    {
        if let Some(number) = self.0.get(value) {
            return *number;
        }
        let number = self.0.len() as u32;
        self.0.insert(value.to_owned(), number);
        number
    }

    fn ordered_values(&self) -> Vec<&T> {
        let mut values: Vec<(&T, u32)> = self.0.iter().map(|(value, number)| (value, *number)).collect();
        values.sort_unstable_by_key(|(_, number)| *number);
        values.into_iter().map(|(value, _)| value).collect()
    }
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered(HashMap::new())
    }
}

#[derive(Default)]
struct FileStats {
    words: Numbered<String>,
    labels: Numbered<StatsLabel>,
    rows: Vec<SeenRows>,
    tasks: HashSet<Key>,
}

#[derive(Clone, Copy)]
struct SeenRows {
    key: Key,
    started_at_us: i64,
    /// Median time; NaN if absent.
    median_ns: f64,
    /// Hash of the run and the place in the model, which distinguish attempts.
    run: u32,
    label: u32,
}

impl SeenRows {
    /// Orders attempts by experiment and time; equal means a duplicate.
    fn compare_attempts(&self, other: &SeenRows) -> Ordering {
        (self.key, self.started_at_us, self.run)
            .cmp(&(other.key, other.started_at_us, other.run))
            .then_with(|| self.median_ns.total_cmp(&other.median_ns))
    }

    fn tried_point(&self) -> AttemptTime {
        AttemptTime { median_ns: Some(self.median_ns).filter(|median| !median.is_nan()) }
    }
}

impl Store {
    /// Counts the content of the store over the selected rows.
    pub fn stats(&self, choose: Choose) -> Result<Stats> {
        let others = [
            ColumnId::key,
            ColumnId::started_at_us,
            ColumnId::run_id,
            ColumnId::place,
            ColumnId::median_ns,
            ColumnId::task_hash,
        ];
        let columns: Vec<ColumnId> = [&LABELS[..], &others].concat();
        let (files, damage) = retry_if_missing(|| self.scan_batches(&columns, FileStats::default, gather_batch))?;
        let (parts, journals) = (files_of(&self.list_parts()?)?, files_of(&self.list_journals()?)?);
        let mut stats = Stats { parts, journals, damage, ..Stats::default() };
        let FileStats { words, labels, rows: mut seen, tasks } = combine_files(files);
        let read = seen.len() as u64;
        seen.par_sort_unstable_by(SeenRows::compare_attempts);
        seen.dedup_by(|later, kept| later.compare_attempts(kept).is_eq());
        stats.measurements = seen.len() as u64;
        stats.duplicates = read - stats.measurements;
        // Every experiment has a selected row.
        stats.tasks = tasks.len() as u64;
        let mut counts = vec![0; labels.0.len()];
        let mut tried = Vec::new();
        for attempts in seen.chunk_by(|left, right| left.key == right.key) {
            stats.experiments += 1;
            tried.clear();
            tried.extend(attempts.iter().map(SeenRows::tried_point));
            for chosen in &attempts[choose.selected_range(&tried)] {
                stats.rows += 1;
                counts[chosen.label as usize] += 1;
                let times = |known: Option<i64>| known.into_iter().chain([chosen.started_at_us]);
                stats.first_started_at_us = times(stats.first_started_at_us).min();
                stats.last_started_at_us = times(stats.last_started_at_us).max();
            }
        }
        let words = words.ordered_values();
        for (label, count) in labels.ordered_values().into_iter().zip(counts) {
            stats.add_count(label.map(|word| words[word as usize]), count);
        }
        Ok(stats)
    }
}

impl Stats {
    fn add_count(&mut self, label: [&String; LABELS.len()], count: u64) {
        if count == 0 {
            return;
        }
        let tallies =
            [&mut self.by_outcome, &mut self.by_source, &mut self.by_target, &mut self.by_host, &mut self.by_operator];
        tallies.into_iter().zip(label).for_each(|(tally, text)| *tally.entry(text.clone()).or_default() += count);
    }
}

/// Merges the results of all files. Frees each file's result after use to limit memory.
fn combine_files(files: Vec<FileStats>) -> FileStats {
    let mut all = FileStats::default();
    all.rows.reserve_exact(files.iter().map(|file| file.rows.len()).sum());
    for file in files {
        let words: Vec<u32> =
            file.words.ordered_values().into_iter().map(|word| all.words.assign_number(word)).collect();
        let label = |label: &StatsLabel| all.labels.assign_number(&label.map(|word| words[word as usize]));
        let labels: Vec<u32> = file.labels.ordered_values().into_iter().map(label).collect();
        all.rows.extend(file.rows.into_iter().map(|row| SeenRows { label: labels[row.label as usize], ..row }));
        all.tasks.extend(file.tasks);
    }
    all
}

fn gather_batch(batch: &Batch, gathered: &mut FileStats) {
    let mut task_before = String::new();
    for row in batch.rows() {
        let text = |id: ColumnId| if let Cell::Text(text) = row.cell(id) { text } else { "" };
        let label = gathered.labels.assign_number(&LABELS.map(|id| gathered.words.assign_number(text(id))));
        // Rows are sorted by task.
        let task = text(ColumnId::task_hash);
        if task != task_before {
            gathered.tasks.insert(Key::of_bytes(task.as_bytes()));
            task.clone_into(&mut task_before);
        }
        let started_at_us = if let Cell::Integer(time) = row.cell(ColumnId::started_at_us) { time } else { 0 };
        let mut run = DefaultHasher::new();
        (text(ColumnId::run_id), text(ColumnId::place)).hash(&mut run);
        gathered.rows.push(SeenRows {
            key: row_key(&row),
            started_at_us,
            median_ns: AttemptTime::from_row(&row).median_ns.unwrap_or(f64::NAN),
            run: run.finish() as u32,
            label,
        });
    }
}

fn files_of(paths: &[PathBuf]) -> Result<Files> {
    let mut files = Files::default();
    for path in paths {
        match std::fs::metadata(path) {
            // Another process has sealed or compacted the file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            metadata => {
                files.bytes += metadata.context("reading the metadata of", path)?.len();
                files.count += 1;
            }
        }
    }
    Ok(files)
}
