//! Merges stores, exports to files and imports from files.

use super::chosen::SelectedRows;
use super::damage::{Damage, part_damage};
use super::journal_reader::{JournalReader, TornTail};
use super::merge::MergedRows;
use super::names::part_name;
use super::seal::SEAL_AT_ROWS;
use super::seal::seal_rows;
use super::verify::{RowCheck, find_problem};
use super::{Store, retry_if_missing};
use crate::codec::{Format, Writer, open_records};
use crate::error::{Error, IoContext, Result, RowError};
use crate::files::{HashedScratch, make_folder};
use crate::output::Output;
use crate::record::choose::Choose;
use crate::record::table::Record;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

const WAITING: usize = 2;

/// The result of merging another store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeReport {
    /// Number of copied parts.
    pub parts: u64,
    /// Number of parts that the target store already had.
    pub known: u64,
    /// Number of damaged parts replaced by intact copies.
    pub mended: u64,
    /// Number of rows from journals of the other store.
    pub journal_rows: u64,
    /// Journals of the other store with an unfinished last line.
    pub torn: Vec<TornTail>,
    /// Damaged content of the other store, which was not copied.
    pub damage: Vec<Damage>,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// Number of rows written.
    pub rows: u64,
    /// Damaged content, which was skipped.
    pub damage: Vec<Damage>,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Number of rows read.
    pub rows: u64,
    /// Number of rows that the store did not have.
    pub new_rows: u64,
    /// Parts that contain the rows.
    pub parts: Vec<PathBuf>,
}

impl Store {
    /// Copies everything from another store, which stays unchanged. Repeated merges have no further effect. Parts and
    /// rows of journals that [`Store::verify`] rejects, or in which the caller's check finds a problem, are not copied.
    pub fn merge_with(&self, other: &Store, check: &RowCheck) -> Result<MergeReport> {
        self.merge_parts(other, &|part| other.part_problem(part, check), &|row| find_problem(row, check))
    }

    /// Copies everything except the parts and the rows of journals in which a problem is found.
    fn merge_parts(
        &self,
        other: &Store,
        part_problem: &dyn Fn(&Path) -> Result<Option<Damage>>,
        row_problem: &dyn Fn(&Record) -> Option<String>,
    ) -> Result<MergeReport> {
        retry_if_missing(|| {
            let mut report = MergeReport::default();
            self.merge_configs(other)?;
            for path in other.list_journals()? {
                let mut reader = JournalReader::open(&path)?;
                loop {
                    let mut rows = reader.next_rows(SEAL_AT_ROWS)?;
                    if rows.is_empty() {
                        break;
                    }
                    report.damage.extend(remove_rejected(&path, &mut rows, row_problem));
                    report.journal_rows += rows.len() as u64;
                    seal_rows(self, &rows)?;
                }
                report.torn.extend(reader.torn_tail());
                report.damage.extend(reader.damage());
            }
            for part in other.list_parts()? {
                let to = self.dataset_folder().join(other.name_of(&part));
                let is_here = to.exists();
                if is_here && part_damage(&to)?.is_none() {
                    report.known += 1;
                } else if let Some(damage) = part_problem(&part)? {
                    report.damage.push(damage);
                } else if !self.copy_part(&part, &to)? {
                    report.damage.extend(part_damage(&part)?);
                } else if is_here {
                    report.mended += 1;
                } else {
                    report.parts += 1;
                }
            }
            self.merge_peaks(other)?;
            Ok(report)
        })
    }

    /// Copies a part; returns false if the content does not match the hash in its name.
    fn copy_part(&self, from: &Path, to: &Path) -> Result<bool> {
        let folder = to.parent().unwrap_or(&self.root);
        let mut source = File::open(from).context("opening", from)?;
        make_folder(folder)?;
        let mut copy = HashedScratch::new(folder)?;
        std::io::copy(&mut source, &mut copy).context("copying", from)?;
        let name = part_name(&copy.content_hash());
        let is_sound = to.file_name().is_some_and(|wanted| wanted == name.as_str());
        if is_sound {
            copy.scratch.keep(&name)?;
        }
        Ok(is_sound)
    }

    /// Exports the selected records into one sorted file, written atomically. An unwritable path fails before reading,
    /// as does a path in the store, whose folders contain only files of the store.
    pub fn export(&self, path: &Path, format: Format, choose: Choose) -> Result<ExportReport> {
        self.refuse_inside(path)?;
        retry_if_missing(|| {
            let mut writer = Writer::new(path, format, Output::create(path)?)?;
            let MergedRows { merge, damage, .. } = self.merged_rows()?;
            let mut chosen = SelectedRows::new(merge, choose);
            let mut rows = 0;
            // Reads ahead in a separate thread, because a pool thread would block on the queue.
            std::thread::scope(|scope| {
                let (sender, receiver) = sync_channel(WAITING);
                scope.spawn(move || {
                    while let Some(batch) = chosen.next_rows().transpose() {
                        let is_last = batch.is_err();
                        if sender.send(batch).is_err() || is_last {
                            break;
                        }
                    }
                });
                receiver.into_iter().try_for_each(|batch| {
                    let batch = batch?;
                    rows += batch.len() as u64;
                    writer.write_batch(&batch)
                })
            })?;
            writer.finish()?.keep()?;
            Ok(ExportReport { rows, damage })
        })
    }

    fn refuse_inside(&self, path: &Path) -> Result<()> {
        let place = path.canonicalize().unwrap_or_else(|_| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
        });
        let root = self.root.canonicalize().context("opening", &self.root)?;
        if place.starts_with(&root) {
            return Err(Error::InsideStore { path: path.to_owned(), folder: self.root.clone() });
        }
        Ok(())
    }

    /// Checks and imports all records of a file; creates the store if needed. Repeated imports add nothing, and a file
    /// without records creates no store.
    pub fn import(root: &Path, path: &Path, format: Format) -> Result<ImportReport> {
        Store::import_with(root, path, format, &|_| None)
    }

    /// Like [`Store::import`], and also rejects records in which the caller's check finds a problem.
    pub fn import_with(root: &Path, path: &Path, format: Format, check: &RowCheck) -> Result<ImportReport> {
        Store::check_place(root)?;
        let folder = std::env::temp_dir();
        let folder = tempfile::TempDir::with_prefix_in("opcollect-import-", &folder).context("creating", &folder)?;
        let staged = Store::create(folder.path())?;
        let mut report = ImportReport::default();
        let mut records = open_records(path, format)?;
        loop {
            let mut rows = Vec::new();
            while rows.len() < SEAL_AT_ROWS
                && let Some(record) = records.next().transpose()?
            {
                if let Some(problem) = find_problem(&record, check) {
                    let (counted, number) = records.record_position();
                    return Err(Error::Row { file: path.to_owned(), counted, number, row: RowError::new(problem) });
                }
                rows.push(record);
            }
            if rows.is_empty() {
                break;
            }
            report.rows += rows.len() as u64;
            seal_rows(&staged, &rows)?;
        }
        if report.rows == 0 {
            return Ok(report);
        }
        let store = Store::create(root)?;
        let rows_before = store.stats(Choose::All)?.rows;
        // The rows were checked before they were staged.
        store.merge_parts(&staged, &|_| Ok(None), &|_| None)?;
        report.new_rows = store.stats(Choose::All)?.rows.saturating_sub(rows_before).min(report.rows);
        let parts = staged.list_parts()?;
        report.parts = parts.iter().map(|part| store.dataset_folder().join(staged.name_of(part))).collect();
        Ok(report)
    }
}

/// Removes the rows of a journal in which a problem is found.
fn remove_rejected(
    path: &Path,
    rows: &mut Vec<Record>,
    row_problem: &dyn Fn(&Record) -> Option<String>,
) -> Option<Damage> {
    let (mut first, before) = (None, rows.len());
    rows.retain(|row| {
        let problem = row_problem(row);
        let is_kept = problem.is_none();
        first = first.take().or(problem.map(|problem| format!("key {}: {problem}", row.key)));
        is_kept
    });
    let lines = Some((before - rows.len()) as u64);
    first.map(|problem| Damage { file: path.to_owned(), lines, problem })
}
