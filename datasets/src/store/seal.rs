//! Seals rows of journals into parts. A part is written to a temporary file, synced, renamed and verified before the
//! journal is removed. A crash in between leaves duplicates, which readers drop. A journal with damaged lines is
//! quarantined as a whole.

use super::Store;
use super::damage::Damage;
use super::hashing::hash_file;
use super::identity::{Identity, Owner};
use super::journal_reader::{JournalReader, TornTail};
use super::lease::{LEASE, Lease};
use super::names::{part_folder, part_name};
use crate::codec::all_columns;
use crate::codec::parquet::{PartCursor, PartWriter};
use crate::error::{Error, IoContext, Result};
use crate::files::{HashedScratch, make_folder, remove_if_exists, sync_folder};
use crate::holder;
use crate::record::choose::{order_attempts, order_copies};
use crate::record::key::Key;
use crate::record::table::Record;
use crate::record::words::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) const SEAL_AT_ROWS: usize = 50_000;

/// Description of a journal without a header.
pub(super) const NO_HEADER: &str = "no header; the journal may still be being copied from another machine";

/// Options of sealing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealOptions {
    /// Also seal journals of other machines. Their processes must have ended, otherwise later records are lost.
    pub take_over: bool,
}

/// The result of sealing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SealReport {
    /// Number of sealed journals.
    pub journals: u64,
    /// Number of rows in the sealed journals.
    pub rows: u64,
    /// Parts written.
    pub parts: Vec<PathBuf>,
    /// Journals with an unfinished last line.
    pub torn: Vec<TornTail>,
    /// Damaged lines; their journals were quarantined.
    pub damage: Vec<Damage>,
    /// Journals that were not sealed, with the reason.
    pub left: Vec<JournalLeft>,
}

/// A journal that was not sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalLeft {
    /// Path of the journal.
    pub journal: PathBuf,
    /// Reason why the journal was not sealed.
    pub reason: String,
}

impl Store {
    /// Seals every journal whose process has ended.
    pub fn seal_journals(&self, options: SealOptions) -> Result<SealReport> {
        let here = Identity::current();
        let mut report = SealReport::default();
        for path in self.list_journals()? {
            let file = match holder::open_lockable(&path) {
                // The process that wrote the journal has sealed it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.context("opening", &path)?,
            };
            // Determining the owner takes the journal's lock. It is held until the journal is removed, so that no other
            // process seals the journal.
            let reader = match JournalReader::from_file(&path, file) {
                Err(error @ Error::Newer { .. }) => {
                    report.skip_journal(path, &error.to_string());
                    continue;
                }
                reader => reader?,
            };
            match self.journal_owner(&reader, &here) {
                Some(Owner::Gone) => seal_journal(self, reader, &mut report)?,
                Some(Owner::Elsewhere) | None if options.take_over => seal_journal(self, reader, &mut report)?,
                Some(Owner::Alive) => report.skip_journal(path, "its process is running"),
                Some(Owner::Elsewhere) => report.skip_journal(path, "its process may be running on another machine"),
                None => report.skip_journal(path, NO_HEADER),
            }
        }
        // Status files contain no records, so an error is ignored.
        let _ = self.remove_ended_statuses();
        Ok(report)
    }

    fn journal_owner(&self, reader: &JournalReader, here: &Identity) -> Option<Owner> {
        let lease = |seconds| Lease::from_journal(reader.file(), &self.journal_folder(), seconds);
        match &reader.header {
            Some(header) => {
                Some(header.process.owner_state((reader.path(), reader.file()), here, lease(header.lease_seconds)))
            }
            None if reader.is_header_damaged() => Some(Identity::unknown().owner_state(
                (reader.path(), reader.file()),
                here,
                lease(Some(LEASE.as_secs())),
            )),
            None => None,
        }
    }
}

impl SealReport {
    fn skip_journal(&mut self, journal: PathBuf, reason: &str) {
        self.left.push(JournalLeft { journal, reason: reason.to_owned() });
    }
}

pub(super) fn seal_journal(store: &Store, mut reader: JournalReader, report: &mut SealReport) -> Result<()> {
    loop {
        let rows = reader.next_rows(SEAL_AT_ROWS)?;
        if rows.is_empty() {
            break;
        }
        report.rows += rows.len() as u64;
        report.parts.extend(seal_rows(store, &rows)?);
    }
    if reader.has_changed() {
        report.skip_journal(reader.path().to_owned(), "the journal changed while it was read");
        return Ok(());
    }
    report.torn.extend(reader.torn_tail());
    report.journals += 1;
    match reader.damage() {
        None => remove_if_exists(reader.path())?,
        Some(damage) => {
            let file = store.set_aside(reader.path())?;
            report.damage.push(Damage { file, ..damage });
        }
    }
    sync_folder(&store.journal_folder())
}

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

/// Sorts rows in the order of parts and drops duplicates.
pub(super) fn sort_and_dedup(rows: &mut Vec<&Record>) {
    rows.sort_unstable_by(|left, right| {
        part_order(left).cmp(&part_order(right)).then_with(|| order_copies(*left, *right))
    });
    rows.dedup_by(|later, kept| part_order(kept) == part_order(later) && order_attempts(*kept, *later).is_eq());
}

/// Returns the columns by which the rows of parts are sorted, before the time.
fn part_order(record: &Record) -> (&str, &str, Key) {
    (&record.op_kind, &record.task_hash, record.key)
}

fn write_part(folder: &Path, mut rows: Vec<&Record>) -> Result<PathBuf> {
    sort_and_dedup(&mut rows);
    make_folder(folder)?;
    let mut writer = begin_part(folder)?;
    writer.push_all(&rows)?;
    keep_part(writer, rows.len() as u64)
}

pub(super) fn begin_part(folder: &Path) -> Result<PartWriter<HashedScratch>> {
    let file = HashedScratch::new(folder)?;
    let path = file.scratch.path().to_owned();
    PartWriter::new(&path, file)
}

pub(super) fn keep_part(writer: PartWriter<HashedScratch>, rows: u64) -> Result<PathBuf> {
    let file = writer.finish()?;
    let name = part_name(&file.content_hash());
    let path = file.scratch.keep(&name)?;
    read_back(&path, &name, rows)?;
    Ok(path)
}

/// Reads back and verifies a new part; the system is asked to drop cached pages, so that data comes from the disk.
fn read_back(path: &Path, name: &str, rows: u64) -> Result<()> {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    let file = File::open(path).context("opening", path)?;
    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    let wrong = |problem: String| Error::Damaged {
        file: path.to_owned(),
        problem,
        hint: Some("check the disk and the memory of this machine; the source files were not removed".to_owned()),
    };
    if part_name(&hash_file(path)?) != name {
        return Err(wrong("the file does not contain the data that was written".to_owned()));
    }
    let mut cursor = PartCursor::open(path, &all_columns())?;
    let mut read = 0;
    while let Some(batch) = cursor.read_batch(1 << 13)? {
        read += batch.len() as u64;
    }
    if read == rows { Ok(()) } else { Err(wrong(format!("the file has {read} of the {rows} rows just written"))) }
}
