//! The journal: the records of one process, one per line, synced before `append` returns.
//!
//! The writer keeps all unsealed lines in memory. If another host considers the writer dead and seals its journal, the
//! writer starts a new journal with these lines, so no record is lost.
//!
//! Lines overwrite preallocated zeros, which keeps the file length and makes syncs much faster. So an open journal ends
//! in zeros, which readers skip, and a line interrupted by a power loss may contain zeros.

use super::identity::Identity;
use super::journal_reader::{JournalHeader, JournalReader};
use super::lease::{LEASE, Renewal};
use super::names::encode_name;
use super::seal::{SEAL_AT_ROWS, seal_journal};
use super::{SealReport, Store, checksum};
use crate::codec::json_lines::write_line;
use crate::error::{Error, IoContext, Result};
use crate::files::{KeptFile, Scratch, make_folder};
use crate::record::SCHEMA_VERSION;
use crate::record::table::Record;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

const SEAL_AT_BYTES: usize = 128 << 20;

/// Description of the process that writes a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Host name.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// Command line, for display.
    pub command: String,
}

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    store: Store,
    origin: Origin,
    path: PathBuf,
    file: File,
    renewal: Option<Renewal>,
    /// Synced length of the file in bytes, without preallocated zeros.
    bytes: u64,
    rows: u64,
    /// Length of the file including zeros.
    length: u64,
    line: Vec<u8>,
    /// All unsealed lines.
    kept: Vec<u8>,
}

impl Store {
    /// Starts a journal for this process.
    pub fn start_journal(&self, origin: Origin) -> Result<Journal> {
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
        let (path, file, bytes) = create_journal(&folder, &header)?;
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

/// Creates a journal named after host, start time and process. The file gets its name only when it is locked and has a
/// header, so that other processes can tell whether its writer lives.
fn create_journal(folder: &Path, header: &JournalHeader) -> Result<(PathBuf, File, u64)> {
    let mut line = serde_json::to_vec(header).map_err(|error| Error::damaged(folder, error.to_string()))?;
    checksum::append_checksum(&mut line);
    let mut scratch = Scratch::new(folder)?;
    scratch.write_all(&line).context("writing", scratch.path())?;
    let mut moment = header.started_at_us;
    loop {
        let name = format!("{}-{moment}-{}.jsonl", encode_name(&header.host), header.process.pid);
        match scratch.keep_new(&name)? {
            KeptFile::Yes(path, file) => return Ok((path, file, line.len() as u64)),
            KeptFile::NameTaken(back) => scratch = back,
        }
        moment += 1;
    }
}

impl Journal {
    /// Appends a record and syncs it, so that it survives a crash. After a failed write, the journal is unchanged.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        record.check()?;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        write_line(record, &mut line)?;
        checksum::append_checksum(&mut line);
        let written = self.write_lines(&line);
        if self.is_there() {
            written?;
        } else {
            self.begin_again(&line)?;
        }
        self.kept.extend_from_slice(&line);
        self.line = line;
        self.rows += 1;
        if self.rows >= SEAL_AT_ROWS as u64 || self.kept.len() >= SEAL_AT_BYTES { self.roll_over() } else { Ok(()) }
    }

    /// Seals all records into parts and removes the journal.
    pub fn seal(mut self) -> Result<SealReport> {
        if !self.is_there() {
            self.begin_again(&[])?;
        }
        // Stops the lease renewal, because the journal must not look active.
        self.renewal = None;
        let mut report = SealReport::default();
        seal_journal(&self.store, JournalReader::open(&self.path)?, &mut report)?;
        self.kept.clear();
        Ok(report)
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn roll_over(&mut self) -> Result<()> {
        let next = self.store.start_journal(self.origin.clone())?;
        std::mem::replace(self, next).seal().map(|_| ())
    }

    /// Returns whether the path still belongs to this journal; another host may have sealed the journal.
    fn is_there(&self) -> bool {
        let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match (std::fs::symlink_metadata(&self.path).map(place), self.file.metadata().map(place)) {
            (Ok(named), Ok(open)) => named == open,
            (Err(error), _) => error.kind() != ErrorKind::NotFound,
            (_, Err(error)) => error.kind() != ErrorKind::StaleNetworkFileHandle,
        }
    }

    /// Starts a new journal with all unsealed rows and a new line. Readers drop rows that were sealed in the meantime.
    fn begin_again(&mut self, line: &[u8]) -> Result<()> {
        // The store may have been moved or deleted. If it cannot be created again, the rows are still written.
        let _ = Store::create(self.store.root());
        let mut next = self.store.start_journal(self.origin.clone())?;
        next.write_lines(&self.kept)?;
        next.write_lines(line)?;
        next.kept = std::mem::take(&mut self.kept);
        next.rows = self.rows;
        *self = next;
        Ok(())
    }

    /// Writes and syncs lines; on failure, removes them.
    fn write_lines(&mut self, lines: &[u8]) -> Result<()> {
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

    /// Preallocates zeros up to `end`. Errors are ignored, because the next line may still fit.
    fn lay_down_zeros(&mut self, end: u64) {
        while self.length < end {
            match self.file.write_all_at(&ZEROS, self.length) {
                Ok(()) => self.length += ZEROS.len() as u64,
                Err(_) => {
                    self.length = self.bytes;
                    // If this also fails, writing the next line reports the error.
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
            // Saves the rows in a new journal, because another host may have sealed this one without the last rows.
            // Errors are ignored here; `seal` reports them.
            let _ = self.begin_again(&[]);
        }
        // Removes the zeros, which would confuse human readers.
        let _ = self.file.set_len(self.bytes);
    }
}
