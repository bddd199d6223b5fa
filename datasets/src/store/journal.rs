//! A journal: the records of one process, one line each, on the disk before `append` returns.
//!
//! Lines are written over zeros that were laid down before: a sync then need not bring a new length of the file to
//! the disk too, which makes it half again as fast. So a journal being written ends in zeros, which readers pass over,
//! and a line that was being written when the machine died may have zeros in it.

use super::files::{make_folder, sync_folder};
use super::identity::Identity;
use super::names::encode;
use super::seal::seal_journal;
use super::{SealReport, Store};
use crate::codec::json_lines::{Lines, parse_line, too_long, write_line};
use crate::error::{Counted, Error, IoContext, Result, RowError};
use crate::parallel;
use crate::record::SCHEMA_VERSION;
use crate::record::table::Record;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Zeros laid down at once.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Lines that are in memory before they are parsed.
const PARSED_AT_ONCE: usize = 2048;

/// Rows after which a journal is sealed and a new one begun.
pub(super) const SEAL_AT_ROWS: usize = 50_000;

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

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// Schema version of its records.
    pub schema_version: i64,
    /// Name of the host.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// The command line.
    pub command: String,
    /// When it was begun, in microseconds since 1970-01-01 UTC.
    pub started_at_us: i64,
    pub(super) process: Identity,
}

/// The end of a journal that was being written when its process died; it is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TornTail {
    /// The journal.
    pub journal: PathBuf,
    /// Length of the unfinished line.
    pub bytes: u64,
}

/// The journal this process writes.
#[derive(Debug)]
pub struct Journal {
    store: Store,
    origin: Origin,
    path: PathBuf,
    file: File,
    /// Bytes and rows that are safely on the disk.
    bytes: u64,
    rows: u64,
    /// Length of the file, zeros included.
    length: u64,
    line: Vec<u8>,
}

impl Store {
    /// Begins a journal for this process.
    pub fn journal(&self, origin: Origin) -> Result<Journal> {
        let folder = self.journal_folder();
        make_folder(&folder)?;
        let (path, file, started_at_us) = create(&folder, &origin.host)?;
        // A file system without locks still works: the process number then tells whether we are alive.
        let _ = file.try_lock();
        let header = JournalHeader {
            schema_version: SCHEMA_VERSION,
            host: origin.host.clone(),
            program: origin.program.clone(),
            command: origin.command.clone(),
            started_at_us,
            process: Identity::current(),
        };
        let mut line = serde_json::to_vec(&header).map_err(|error| Error::damaged(&path, error.to_string()))?;
        line.push(b'\n');
        let mut journal = Journal { store: self.clone(), origin, path, file, bytes: 0, rows: 0, length: 0, line };
        journal.write_line().and_then(|()| sync_folder(&folder)).inspect_err(|_| {
            // Without a header it would only puzzle readers.
            let _ = std::fs::remove_file(&journal.path);
        })?;
        Ok(journal)
    }
}

/// Creates a file that was not there, named after the host, the moment and the process.
fn create(folder: &Path, host: &str) -> Result<(PathBuf, File, i64)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut started_at_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
    loop {
        let path = folder.join(format!("{}-{started_at_us}-{}.jsonl", encode(host), std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file, started_at_us)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => started_at_us += 1,
            Err(error) => return Err(Error::io("creating", &path, error)),
        }
    }
}

impl Journal {
    /// Adds a record; when this returns, no crash loses it.
    ///
    /// After an error the journal is as it was before, and may be tried again once the cause is removed.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        record.check()?;
        self.line.clear();
        write_line(record, &mut self.line)?;
        self.write_line()?;
        self.rows += 1;
        if self.rows >= SEAL_AT_ROWS as u64 { self.roll() } else { Ok(()) }
    }

    /// Seals what was written into parts and removes the journal.
    pub fn seal(self) -> Result<SealReport> {
        let mut report = SealReport::default();
        seal_journal(&self.store, JournalReader::open(&self.path)?, &mut report)?;
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

    /// One write, one sync; on failure nothing of the line stays.
    fn write_line(&mut self) -> Result<()> {
        let end = self.bytes + self.line.len() as u64;
        if end > self.length {
            self.lay_down_zeros(end);
        }
        match self.file.write_all_at(&self.line, self.bytes).and_then(|()| self.file.sync_data()) {
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
        // Zeros at the end do no harm; they only surprise people who look at the file.
        let _ = self.file.set_len(self.bytes);
    }
}

/// A line that waits to be parsed.
struct NumberedLine {
    number: u64,
    text: Vec<u8>,
}

impl NumberedLine {
    fn parse(&self) -> std::result::Result<Record, (u64, RowError)> {
        parse_line(&self.text).map_err(|error| (self.number, error))
    }
}

/// Reads a journal, whoever writes or wrote it.
pub(super) struct JournalReader {
    path: PathBuf,
    lines: Lines,
    /// Nothing when the process died before it had written one; there are no records then.
    pub header: Option<JournalHeader>,
    torn: Option<TornTail>,
}

impl JournalReader {
    /// Opens a journal and reads its header.
    pub fn open(path: &Path) -> Result<JournalReader> {
        JournalReader::of(path, File::open(path).context("opening", path)?)
    }

    /// Reads an open journal from its beginning.
    pub fn of(path: &Path, file: File) -> Result<JournalReader> {
        let lines = Lines::new(BufReader::with_capacity(1 << 16, file));
        let mut reader = JournalReader { path: path.to_owned(), lines, header: None, torn: None };
        let refuse = |row| Error::Row { file: path.to_owned(), counted: Counted::Line, number: 1, row };
        let Some((text, ..)) = reader.finished_line()? else { return Ok(reader) };
        let header: JournalHeader = serde_json::from_slice(text).map_err(|error| {
            refuse(RowError::new(format!("the first line is not the header of a journal: {error}")))
        })?;
        if header.schema_version > SCHEMA_VERSION {
            let (path, found) = (path.to_owned(), header.schema_version);
            return Err(Error::Newer { path, found, known: SCHEMA_VERSION });
        }
        reader.header = Some(header);
        Ok(reader)
    }

    /// The unfinished last line, known once all records were read.
    pub fn torn(&self) -> Option<TornTail> {
        self.torn.clone()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next records, at most so many; none at the end or where a line is unfinished.
    pub fn next_rows(&mut self, most: usize) -> Result<Vec<Record>> {
        let mut rows = Vec::new();
        while rows.len() < most {
            let lines = self.next_lines(PARSED_AT_ONCE.min(most - rows.len()))?;
            if lines.is_empty() {
                break;
            }
            let pieces: Vec<&[NumberedLine]> = lines.chunks(lines.len().div_ceil(parallel::THREADS)).collect();
            let parsed = parallel::map(pieces.len(), |index| {
                pieces[index].iter().map(NumberedLine::parse).collect::<std::result::Result<Vec<_>, _>>()
            });
            for piece in parsed {
                rows.extend(piece.map_err(|(number, row)| self.refusal(number, row))?);
            }
        }
        Ok(rows)
    }

    fn next_lines(&mut self, most: usize) -> Result<Vec<NumberedLine>> {
        let mut lines = Vec::new();
        while self.header.is_some() && lines.len() < most {
            let Some((text, number, is_too_long)) = self.finished_line()? else {
                self.expect_zeros()?;
                break;
            };
            if is_too_long {
                return Err(self.refusal(number, too_long()));
            }
            lines.push(NumberedLine { number, text: text.to_owned() });
        }
        Ok(lines)
    }

    fn refusal(&self, number: u64, row: RowError) -> Error {
        Error::Row { file: self.path.clone(), counted: Counted::Line, number, row }
    }

    /// Nothing was written after a line that was not finished; if there is something, the disk lost what was before.
    fn expect_zeros(&mut self) -> Result<()> {
        while let Some(line) = self.lines.next_line().context("reading", &self.path)? {
            if line.text.iter().any(|byte| *byte != 0) {
                let number = line.number;
                return Err(self.refusal(number, RowError::new("the lines before it were lost")));
            }
        }
        Ok(())
    }

    fn finished_line(&mut self) -> Result<Option<(&[u8], u64, bool)>> {
        let Some(line) = self.lines.next_line().context("reading", &self.path)? else { return Ok(None) };
        let is_whole = line.is_finished && !line.text.contains(&0);
        if is_whole || (line.is_too_long && !line.text.starts_with(&[0])) {
            return Ok(Some((line.text, line.number, line.is_too_long)));
        }
        let begun = line.text.iter().take_while(|byte| **byte != 0).count();
        if begun > 0 || line.is_finished {
            self.torn = Some(TornTail { journal: self.path.clone(), bytes: begun as u64 });
        }
        Ok(None)
    }
}
