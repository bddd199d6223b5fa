//! Turns rows of journals into parts.
//!
//! Temporary name, sync, rename, sync of the folder, and only then is the journal removed. A crash in between leaves
//! the rows in both, which the keys settle.

use super::Store;
use super::files::{HashedScratch, make_folder, remove, sync_folder};
use super::identity::{Identity, Owner, host_name};
use super::journal::{JournalReader, SEAL_AT_ROWS, TornTail};
use super::names::{encode, part_folder, part_name};
use crate::codec::parquet::PartWriter;
use crate::error::{IoContext, Result};
use crate::record::choose::choose;
use crate::record::key::Key;
use crate::record::table::Record;
use crate::record::words::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How to seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealOptions {
    /// Also seal journals of other machines, whose processes cannot be seen from here. Only right when they have
    /// ended; otherwise what they still write is lost.
    pub take_over: bool,
}

/// What sealing did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SealReport {
    /// Journals that became parts.
    pub journals: u64,
    /// Rows they held.
    pub rows: u64,
    /// The parts written.
    pub parts: Vec<PathBuf>,
    /// Journals that ended in an unfinished line.
    pub torn: Vec<TornTail>,
    /// Journals that were left alone.
    pub left: Vec<JournalLeft>,
}

/// A journal that was left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalLeft {
    /// The journal.
    pub journal: PathBuf,
    /// Why.
    pub reason: String,
}

impl Store {
    /// Seals every journal whose process has ended.
    pub fn seal(&self, options: SealOptions) -> Result<SealReport> {
        let here = Identity::current();
        let mut report = SealReport::default();
        for path in self.journals()? {
            let file = match File::open(&path) {
                // Its own process sealed it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.context("opening", &path)?,
            };
            let reader = JournalReader::open(&path)?;
            match owner(&reader, &file, &here) {
                Owner::Gone => seal_journal(self, reader, &mut report)?,
                Owner::Elsewhere if options.take_over => seal_journal(self, reader, &mut report)?,
                Owner::Alive => report.leave(path, "its process is running"),
                Owner::Elsewhere => report.leave(path, "its process may be running on another machine"),
            }
        }
        Ok(report)
    }
}

/// A journal without a header is of a process that died, or is just being made, before it had written one.
fn owner(reader: &JournalReader, file: &File, here: &Identity) -> Owner {
    match &reader.header {
        Some(header) => header.process.owner(file, here),
        None => {
            let name = reader.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_ours = name.starts_with(&format!("{}-", encode(&host_name())));
            let pid = name.trim_end_matches(".jsonl").rsplit('-').next().and_then(|pid| pid.parse().ok());
            let boot = if is_ours { here.boot.clone() } else { String::new() };
            let machine = if is_ours { here.machine.clone() } else { String::new() };
            Identity { machine, boot, pid: pid.unwrap_or(0) }.owner(file, here)
        }
    }
}

impl SealReport {
    fn leave(&mut self, journal: PathBuf, reason: &str) {
        self.left.push(JournalLeft { journal, reason: reason.to_owned() });
    }
}

/// Seals the records of a journal that nobody writes any more, then removes it.
pub(super) fn seal_journal(store: &Store, mut reader: JournalReader, report: &mut SealReport) -> Result<()> {
    loop {
        let rows = reader.next_rows(SEAL_AT_ROWS)?;
        if rows.is_empty() {
            break;
        }
        report.rows += rows.len() as u64;
        report.parts.extend(seal_rows(store, &rows)?);
    }
    report.torn.extend(reader.torn());
    report.journals += 1;
    remove(reader.path())?;
    sync_folder(&store.journal_folder())
}

/// Writes rows into parts, one per target and class of hosts.
pub(super) fn seal_rows(store: &Store, rows: &[Record]) -> Result<Vec<PathBuf>> {
    let mut groups: BTreeMap<(Target, &str), Vec<&Record>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.target, &row.host_class)).or_default().push(row);
    }
    let groups = groups.into_iter();
    groups
        .map(|((target, class), rows)| {
            write_part(&store.dataset_folder().join(part_folder(target.name(), class)), rows)
        })
        .collect()
}

/// Brings rows into the order of parts and drops those that lose to another of the same key.
pub(super) fn sort(rows: &mut Vec<&Record>) {
    rows.sort_unstable_by(|a, b| place(a).cmp(&place(b)).then_with(|| choose(a, b)));
    rows.dedup_by(|later, kept| place(later) == place(kept));
}

/// What the rows of a part are sorted by.
fn place(record: &Record) -> (&str, &str, Key) {
    (&record.op_kind, &record.task_hash, record.key)
}

fn write_part(folder: &Path, mut rows: Vec<&Record>) -> Result<PathBuf> {
    sort(&mut rows);
    make_folder(folder)?;
    let mut writer = begin_part(folder)?;
    writer.push_all(&rows)?;
    keep_part(writer)
}

/// Begins a part in a folder.
pub(super) fn begin_part(folder: &Path) -> Result<PartWriter<HashedScratch>> {
    let file = HashedScratch::new(folder)?;
    let path = file.scratch.path().to_owned();
    PartWriter::new(&path, file)
}

/// Ends a part and names it after its content.
pub(super) fn keep_part(writer: PartWriter<HashedScratch>) -> Result<PathBuf> {
    let file = writer.finish()?;
    let name = part_name(&file.hash());
    file.scratch.keep(&name)
}
