//! A journal: the records of one process, one line each, on the disk before `append` returns.
//!
//! Whatever other hosts believe of its writer, nothing is lost: the writer keeps the lines that are in no part yet, and
//! begins another journal with them when its own was taken away.
//!
//! Lines are written over zeros that were laid down before: a sync then need not bring a new length of the file to
//! the disk too, which makes it half again as fast. So a journal being written ends in zeros, which readers pass over,
//! and a line that was being written when the machine died may have zeros in it.

use super::identity::Identity;
use super::journal_reader::{JournalHeader, JournalReader};
use super::lease::{LEASE, Renewal};
use super::names::encode;
use super::seal::{SEAL_AT_ROWS, seal_journal};
use super::{SealReport, Store, checksum};
use crate::codec::json_lines::write_line;
use crate::error::{Error, IoContext, Result};
use crate::files::{Kept, Scratch, make_folder};
use crate::record::SCHEMA_VERSION;
use crate::record::table::Record;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Zeros laid down at once.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Bytes of lines after which it is, because they are kept in memory until then.
const SEAL_AT_BYTES: usize = 128 << 20;

/// Who writes a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the host.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// The command line, for people who find the journal.
    pub command: String,
}

/// The journal this process writes.
#[derive(Debug)]
pub struct Journal {
    store: Store,
    origin: Origin,
    path: PathBuf,
    file: File,
    renewal: Option<Renewal>,
    /// Bytes and rows that are safely on the disk.
    bytes: u64,
    rows: u64,
    /// Length of the file, zeros included.
    length: u64,
    line: Vec<u8>,
    /// The lines of all rows.
    kept: Vec<u8>,
}

impl Store {
    /// Begins a journal for this process.
    pub fn journal(&self, origin: Origin) -> Result<Journal> {
        let folder = self.journal_folder();
        make_folder(&folder)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = JournalHeader {
            schema_version: SCHEMA_VERSION,
            has_checksums: true,
            host: origin.host.clone(),
            program: origin.program.clone(),
            command: origin.command.clone(),
            started_at_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
            process: Identity::current(),
            lease_seconds: Some(LEASE.as_secs()),
        };
        let (path, file, bytes) = create(&folder, &header)?;
        Ok(Journal {
            store: self.clone(),
            origin,
            path,
            renewal: Some(Renewal::begin(&file)),
            file,
            bytes,
            rows: 0,
            length: bytes,
            line: Vec::new(),
            kept: Vec::new(),
        })
    }
}

/// Creates a journal with its header, named after the host, the moment and the process.
///
/// It gets its name when it is locked and has its header: whoever sees it sees that it is being written.
fn create(folder: &Path, header: &JournalHeader) -> Result<(PathBuf, File, u64)> {
    let mut line = serde_json::to_vec(header).map_err(|error| Error::damaged(folder, error.to_string()))?;
    checksum::add(&mut line);
    let mut scratch = Scratch::new(folder)?;
    scratch.write_all(&line).context("writing", scratch.path())?;
    let mut moment = header.started_at_us;
    loop {
        let name = format!("{}-{moment}-{}.jsonl", encode(&header.host), header.process.pid);
        match scratch.keep_new(&name)? {
            Kept::Yes(path, file) => return Ok((path, file, line.len() as u64)),
            Kept::NameTaken(back) => scratch = back,
        }
        moment += 1;
    }
}

impl Journal {
    /// Adds a record; when this returns, no crash loses it.
    ///
    /// After an error the journal is as it was before, and may be tried again once the cause is removed.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        record.check()?;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        write_line(record, &mut line)?;
        checksum::add(&mut line);
        let written = self.write(&line);
        if self.is_there() {
            written?;
        } else {
            self.begin_again(&line)?;
        }
        self.kept.extend_from_slice(&line);
        self.line = line;
        self.rows += 1;
        if self.rows >= SEAL_AT_ROWS as u64 || self.kept.len() >= SEAL_AT_BYTES { self.roll() } else { Ok(()) }
    }

    /// Seals what was written into parts and removes the journal.
    pub fn seal(mut self) -> Result<SealReport> {
        if !self.is_there() {
            self.begin_again(&[])?;
        }
        // It must not look as if somebody still wrote.
        self.renewal = None;
        let mut report = SealReport::default();
        seal_journal(&self.store, JournalReader::open(&self.path)?, &mut report)?;
        self.kept.clear();
        Ok(report)
    }

    /// Where the journal is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Seals this journal and goes on with a new one.
    fn roll(&mut self) -> Result<()> {
        let next = self.store.journal(self.origin.clone())?;
        std::mem::replace(self, next).seal().map(|_| ())
    }

    /// Whether the journal is where it was made; another host that could not see this process may have sealed it.
    fn is_there(&self) -> bool {
        let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (std::fs::symlink_metadata(&self.path).map(place), self.file.metadata().map(place)) {
            (Ok(named), Ok(open)) => named == open,
            (Err(error), _) => error.kind() != ErrorKind::NotFound,
            (_, Err(error)) => error.kind() != ErrorKind::StaleNetworkFileHandle,
        }
    }

    /// Goes on in a new journal with all rows that were kept, and one more line. What was sealed meanwhile is there
    /// twice then, which readers settle.
    fn begin_again(&mut self, line: &[u8]) -> Result<()> {
        let mut next = self.store.journal(self.origin.clone())?;
        next.write(&self.kept)?;
        next.write(line)?;
        next.kept = std::mem::take(&mut self.kept);
        next.rows = self.rows;
        *self = next;
        Ok(())
    }

    /// One write, one sync; on failure nothing of the lines stays.
    fn write(&mut self, lines: &[u8]) -> Result<()> {
        let end = self.bytes + lines.len() as u64;
        if end > self.length {
            self.lay_down_zeros(end);
        }
        match self.file.write_all_at(lines, self.bytes).and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                self.bytes = end;
                self.length = self.length.max(end);
                Ok(())
            }
            Err(error) => {
                self.length = self.bytes;
                self.file.set_len(self.bytes).context("undoing a failed write to", &self.path)?;
                Err(Error::io("writing", &self.path, error))
            }
        }
    }

    /// Makes room up to some place and beyond. Where that fails the line may still fit, so its write will tell.
    fn lay_down_zeros(&mut self, end: u64) {
        while self.length < end {
            match self.file.write_all_at(&ZEROS, self.length) {
                Ok(()) => self.length += ZEROS.len() as u64,
                Err(_) => {
                    self.length = self.bytes;
                    // The write of the line fails in turn if even this does.
                    let _ = self.file.set_len(self.bytes);
                    return;
                }
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.kept.is_empty() && !self.is_there() {
            // The last chance; whoever wants to know seals.
            let _ = self.begin_again(&[]);
        }
        // Zeros at the end do no harm; they only surprise people who look at the file.
        let _ = self.file.set_len(self.bytes);
    }
}
