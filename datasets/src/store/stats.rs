//! What a store holds, in numbers.

use super::damage::Damage;
use super::index::key;
use super::{Store, settled};
use crate::batch::{Batch, Row};
use crate::error::{IoContext, Result};
use crate::record::cell::Cell;
use crate::record::choose::{Choose, Tried};
use crate::record::key::Key;
use crate::record::table::ColumnId;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// What a store holds, counted over the measurements that are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Rows that are chosen.
    pub rows: u64,
    /// Different experiments.
    pub experiments: u64,
    /// All measurements of them, failed ones included.
    pub measurements: u64,
    /// Rows of measurements met more than once, which a compaction drops.
    pub duplicates: u64,
    /// Different tasks.
    pub tasks: u64,
    /// When the first attempt began, in microseconds since 1970-01-01 UTC; nothing without rows.
    pub first_started_at_us: Option<i64>,
    /// When the last attempt began.
    pub last_started_at_us: Option<i64>,
    /// Rows by how they ended.
    pub by_outcome: BTreeMap<String, u64>,
    /// Rows by how the time came about.
    pub by_source: BTreeMap<String, u64>,
    /// Rows by kind of target.
    pub by_target: BTreeMap<String, u64>,
    /// Rows by host.
    pub by_host: BTreeMap<String, u64>,
    /// Rows by kind of operator.
    pub by_operator: BTreeMap<String, u64>,
    /// Sealed parts.
    pub parts: Files,
    /// Journals.
    pub journals: Files,
    /// What is not counted because it is not what was written.
    pub damage: Vec<Damage>,
}

/// Some files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Files {
    /// How many.
    pub count: u64,
    /// Their bytes on disk.
    pub bytes: u64,
}

/// The columns that are counted, in the order of a label's texts.
const LABELS: [ColumnId; 6] =
    [ColumnId::outcome, ColumnId::source, ColumnId::target, ColumnId::host, ColumnId::op_kind, ColumnId::task_hash];

/// Texts of the columns counted; rows share few different ones.
type Label = [String; 6];

/// What is gathered from one file: labels, and rows that refer to them.
#[derive(Default)]
struct Gathered {
    labels: Vec<Label>,
    rows: Vec<Seen>,
}

/// What is remembered of a row.
#[derive(Clone, Copy)]
struct Seen {
    key: Key,
    started_at_us: i64,
    /// Stands for the run, so that attempts can be told apart.
    run: u64,
    tried: Tried,
    /// Which label of the file of which place.
    label: (u32, u32),
}

impl Seen {
    /// Attempts at one experiment side by side, in the order of time; equal for one met twice.
    fn order(&self, other: &Seen) -> Ordering {
        let median = |seen: &Seen| seen.tried.median_ns.unwrap_or(-1.0);
        (self.key, self.started_at_us, self.run)
            .cmp(&(other.key, other.started_at_us, other.run))
            .then_with(|| median(self).total_cmp(&median(other)))
    }
}

impl Store {
    /// Counts what the store holds, by the rows that are chosen.
    pub fn stats(&self, choose: Choose) -> Result<Stats> {
        let needed = [ColumnId::key, ColumnId::started_at_us, ColumnId::run_id, ColumnId::median_ns];
        let columns: Vec<ColumnId> = [&needed[..], &LABELS].concat();
        let (mut files, damage) = settled(|| self.scan(&columns, Gathered::default, gather))?;
        let (parts, journals) = (files_of(&self.parts()?)?, files_of(&self.journals()?)?);
        let mut stats = Stats { parts, journals, damage, ..Stats::default() };
        let mut seen: Vec<Seen> = Vec::new();
        for (file, gathered) in (0..).zip(&mut files) {
            seen.extend(gathered.rows.drain(..).map(|row| Seen { label: (file, row.label.1), ..row }));
        }
        let read = seen.len() as u64;
        seen.sort_unstable_by(Seen::order);
        seen.dedup_by(|later, kept| later.order(kept).is_eq());
        stats.measurements = seen.len() as u64;
        stats.duplicates = read - stats.measurements;
        let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
        for attempts in seen.chunk_by(|left, right| left.key == right.key) {
            stats.experiments += 1;
            let tried: Vec<Tried> = attempts.iter().map(|seen| seen.tried).collect();
            for chosen in &attempts[choose.places(&tried)] {
                stats.rows += 1;
                *counts.entry(chosen.label).or_default() += 1;
                let times = |known: Option<i64>| known.into_iter().chain([chosen.started_at_us]);
                stats.first_started_at_us = times(stats.first_started_at_us).min();
                stats.last_started_at_us = times(stats.last_started_at_us).max();
            }
        }
        stats.count(&files, counts);
        Ok(stats)
    }
}

impl Stats {
    fn count(&mut self, files: &[Gathered], counts: HashMap<(u32, u32), u64>) {
        let mut tasks = HashSet::new();
        for ((file, label), count) in counts {
            let label = &files[file as usize].labels[label as usize];
            let tallies = [
                &mut self.by_outcome,
                &mut self.by_source,
                &mut self.by_target,
                &mut self.by_host,
                &mut self.by_operator,
            ];
            tallies.into_iter().zip(label).for_each(|(tally, text)| *tally.entry(text.clone()).or_default() += count);
            tasks.insert(&label[5]);
        }
        self.tasks = tasks.len() as u64;
    }
}

fn gather(batch: &Batch, gathered: &mut Gathered) {
    for row in batch.rows() {
        let texts = LABELS.map(|id| if let Cell::Text(text) = row.cell(id) { text } else { "" });
        // Rows are sorted by operator and task, so the label is most often that of the row before.
        let found = gathered.labels.iter().rev().take(64).position(|label| label.iter().eq(texts));
        let label = match found {
            Some(back) => gathered.labels.len() - 1 - back,
            None => {
                gathered.labels.push(texts.map(str::to_owned));
                gathered.labels.len() - 1
            }
        };
        let started_at_us = if let Cell::Integer(time) = row.cell(ColumnId::started_at_us) { time } else { 0 };
        let mut run = DefaultHasher::new();
        if let Cell::Text(text) = row.cell(ColumnId::run_id) {
            text.hash(&mut run);
        }
        let (run, tried) = (run.finish(), Tried::of(&row));
        gathered.rows.push(Seen { key: key(&row), started_at_us, run, tried, label: (0, label as u32) });
    }
}

fn files_of(paths: &[PathBuf]) -> Result<Files> {
    let mut files = Files::default();
    for path in paths {
        match std::fs::metadata(path) {
            // Sealed or compacted away meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            metadata => {
                files.bytes += metadata.context("looking at", path)?.len();
                files.count += 1;
            }
        }
    }
    Ok(files)
}
