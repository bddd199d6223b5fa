//! Rows in and out: other stores, files to give away, files from elsewhere.

use super::files::{HashedScratch, make_folder};
use super::journal::{JournalReader, SEAL_AT_ROWS, TornTail};
use super::names::part_name;
use super::seal::seal_rows;
use super::{Store, settled};
use crate::codec::{Format, Writer, read};
use crate::error::{Error, IoContext, Result};
use crate::output::Output;
use serde::Serialize;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

/// Batches that wait to be written while exporting.
const WAITING: usize = 2;

/// What merging another store did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeReport {
    /// Parts copied.
    pub parts: u64,
    /// Parts that were here already.
    pub known: u64,
    /// Rows taken from journals of the other store.
    pub journal_rows: u64,
    /// Journals of the other store that end in an unfinished line.
    pub torn: Vec<TornTail>,
}

/// What importing a file did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Rows read.
    pub rows: u64,
    /// Parts written.
    pub parts: Vec<PathBuf>,
}

impl Store {
    /// Takes over everything that another store holds; the other store stays as it is.
    ///
    /// May be repeated, in any order: what is here already is not taken twice.
    pub fn merge(&self, other: &Store) -> Result<MergeReport> {
        settled(|| {
            let mut report = MergeReport::default();
            for path in other.journals()? {
                let mut reader = JournalReader::open(&path)?;
                loop {
                    let rows = reader.next_rows(SEAL_AT_ROWS)?;
                    if rows.is_empty() {
                        break;
                    }
                    report.journal_rows += rows.len() as u64;
                    seal_rows(self, &rows)?;
                }
                report.torn.extend(reader.torn());
            }
            for part in other.parts()? {
                let is_new = self.copy_part(&part, &self.dataset_folder().join(other.name_of(&part)))?;
                *if is_new { &mut report.parts } else { &mut report.known } += 1;
            }
            self.merge_peaks(other)?;
            Ok(report)
        })
    }

    /// Copies a part unless it is there; its name says what it must hold.
    fn copy_part(&self, from: &Path, to: &Path) -> Result<bool> {
        if to.exists() {
            return Ok(false);
        }
        let folder = to.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        let mut copy = HashedScratch::new(folder)?;
        let mut source = File::open(from).context("opening", from)?;
        std::io::copy(&mut source, &mut copy).context("copying", from)?;
        let name = part_name(&copy.hash());
        if to.file_name().is_none_or(|wanted| wanted != name.as_str()) {
            return Err(Error::Damaged {
                file: from.to_owned(),
                problem: "its content does not have the hash that its name says".to_owned(),
                hint: Some("copy it again from where it came, or remove it".to_owned()),
            });
        }
        copy.scratch.keep(&name)?;
        Ok(true)
    }

    /// Writes every record, each key once, into one file, sorted by operator kind, task and key; gives their number.
    ///
    /// The file appears whole or not at all.
    pub fn export(&self, path: &Path, format: Format) -> Result<u64> {
        settled(|| {
            let mut writer = Writer::new(path, format, Output::create(path)?)?;
            let (mut merge, _) = self.merged()?;
            let mut rows = 0;
            // Reading goes on while the rows before are written.
            std::thread::scope(|scope| {
                let (sender, receiver) = sync_channel(WAITING);
                scope.spawn(move || {
                    while let Some(batch) = merge.next().transpose() {
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
            Ok(rows)
        })
    }

    /// Takes over the records of a file.
    ///
    /// May be repeated: the same records give the same parts.
    pub fn import(&self, path: &Path, format: Format) -> Result<ImportReport> {
        let mut report = ImportReport::default();
        let mut records = read(path, format)?;
        loop {
            let rows = records.by_ref().take(SEAL_AT_ROWS).collect::<Result<Vec<_>>>()?;
            if rows.is_empty() {
                return Ok(report);
            }
            report.rows += rows.len() as u64;
            report.parts.extend(seal_rows(self, &rows)?);
        }
    }
}

/// The hash of a file's content.
pub(super) fn hash_file(path: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).context("opening", path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).context("reading", path)? {
            0 => return Ok(hasher.finalize()),
            bytes => hasher.write_all(&buffer[..bytes]).context("hashing", path)?,
        }
    }
}
