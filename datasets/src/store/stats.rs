//! What a store holds, in numbers.

use super::index::{ByKey, keep, key};
use super::{Store, settled};
use crate::batch::{Batch, Row};
use crate::error::{IoContext, Result};
use crate::record::cell::Cell;
use crate::record::choose::Rank;
use crate::record::key::Key;
use crate::record::table::ColumnId;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

/// What a store holds. Every experiment counts once, by the row that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Different experiments.
    pub rows: u64,
    /// Rows that lose to another of the same experiment.
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
    rows: Vec<(Key, Rank, u32)>,
}

impl Store {
    /// Counts what the store holds.
    pub fn stats(&self) -> Result<Stats> {
        let columns: Vec<ColumnId> = [&[ColumnId::key][..], &Rank::COLUMNS, &LABELS[1..]].concat();
        let files = settled(|| self.scan(&columns, Gathered::default, gather))?;
        let mut stats =
            Stats { parts: files_of(&self.parts()?)?, journals: files_of(&self.journals()?)?, ..Stats::default() };
        let mut staying: ByKey<(u32, u32)> = ByKey::default();
        let mut read = 0;
        for (file, gathered) in files.iter().enumerate() {
            read += gathered.rows.len() as u64;
            for &(key, rank, label) in &gathered.rows {
                keep(&mut staying, key, rank, (file as u32, label));
            }
        }
        stats.rows = staying.len() as u64;
        stats.duplicates = read - stats.rows;
        let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
        for (rank, label) in staying.values() {
            *counts.entry(*label).or_default() += 1;
            stats.first_started_at_us = stats.first_started_at_us.into_iter().chain([rank.started_at_us]).min();
            stats.last_started_at_us = stats.last_started_at_us.into_iter().chain([rank.started_at_us]).max();
        }
        let mut tasks = HashSet::new();
        for ((file, label), count) in counts {
            let label = &files[file as usize].labels[label as usize];
            let tallies = [
                &mut stats.by_outcome,
                &mut stats.by_source,
                &mut stats.by_target,
                &mut stats.by_host,
                &mut stats.by_operator,
            ];
            tallies.into_iter().zip(label).for_each(|(tally, text)| *tally.entry(text.clone()).or_default() += count);
            tasks.insert(&label[5]);
        }
        stats.tasks = tasks.len() as u64;
        Ok(stats)
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
        gathered.rows.push((key(&row), Rank::of(&row), label as u32));
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
