//! Reads journals, including those being written, and skips damaged lines.

use super::checksum;
use super::damage::Damage;
use super::identity::Identity;
use crate::codec::json_lines::{Line, LineReader, parse_line, too_long};
use crate::error::{Error, IoContext, Result, RowError};
use crate::record::SCHEMA_VERSION;
use crate::record::table::Record;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const PARSED_AT_ONCE: usize = 2048;

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// Schema version of the records.
    pub schema_version: i64,
    /// Whether every line ends in a checksum.
    #[serde(default)]
    pub(super) has_checksums: bool,
    /// Host name.
    pub host: String,
    /// Name and version of the program.
    pub program: String,
    /// Command line.
    pub command: String,
    /// Start time, in microseconds since 1970-01-01 UTC.
    pub started_at_us: i64,
    pub(super) process: Identity,
    /// Maximum time between two modifications of the file while the process lives; None if the writer gave no limit.
    #[serde(default)]
    pub(super) lease_seconds: Option<u64>,
}

/// An unfinished line at the end of a journal whose process died; it is skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TornTail {
    /// Path of the journal.
    pub journal: PathBuf,
    /// Length of the unfinished line.
    pub bytes: u64,
}

struct NumberedLine {
    number: u64,
    text: Vec<u8>,
}

impl NumberedLine {
    fn parse_record(&self, has_checksums: bool) -> std::result::Result<Record, (u64, RowError)> {
        let mut text = self.text.clone();
        let checked = checksum::take_checksum(&mut text).and_then(|has_one| match has_one || !has_checksums {
            true => parse_line(&text),
            false => Err(checksum::missing_checksum()),
        });
        checked.map_err(|error| (self.number, error))
    }
}

enum JournalForm {
    Zeros,
    Whole,
    TooLong,
    /// An incomplete line, or a line with zeros: a torn last line if no line follows, else damage.
    Broken,
}

impl JournalForm {
    fn classify_line(line: &Line<'_>) -> JournalForm {
        match line {
            _ if !line.is_finished && line.text.iter().all(|byte| *byte == 0) => JournalForm::Zeros,
            Line { is_too_long: true, .. } => JournalForm::TooLong,
            _ if line.is_finished && !line.text.contains(&0) => JournalForm::Whole,
            _ => JournalForm::Broken,
        }
    }
}

pub(super) struct JournalReader {
    path: PathBuf,
    file: File,
    lines: LineReader,
    /// Header; None if the process died before writing it or if it is damaged.
    pub header: Option<JournalHeader>,
    is_begun: bool,
    /// Line number and length of a torn or damaged line.
    broken: Option<(u64, u64)>,
    damage: Option<Damage>,
    /// Length and modification time when the file was opened.
    before: Option<(u64, SystemTime)>,
}

impl JournalReader {
    pub fn open(path: &Path) -> Result<JournalReader> {
        JournalReader::from_file(path, File::open(path).context("opening", path)?)
    }

    pub fn from_file(path: &Path, file: File) -> Result<JournalReader> {
        let read = file.try_clone().context("opening", path)?;
        let mut reader = JournalReader {
            path: path.to_owned(),
            lines: LineReader::new(BufReader::with_capacity(1 << 16, read)),
            before: length_and_time(&file),
            file,
            header: None,
            is_begun: false,
            broken: None,
            damage: None,
        };
        reader.read_header()?;
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<()> {
        let Some(line) = self.lines.next_line().context("reading", &self.path)? else { return Ok(()) };
        let (number, bytes) = (line.number, bytes_before_zero(line.text));
        match JournalForm::classify_line(&line) {
            JournalForm::Whole => {
                self.is_begun = true;
                let mut text = line.text.to_vec();
                let not_one = |error| RowError::new(format!("the first line is not the header of a journal: {error}"));
                let header = checksum::take_checksum(&mut text).and_then(|has_one| {
                    let header = serde_json::from_slice::<JournalHeader>(&text).map_err(not_one)?;
                    if header.has_checksums && !has_one { Err(checksum::missing_checksum()) } else { Ok(header) }
                });
                match header {
                    Ok(JournalHeader { schema_version: found, .. }) if found > SCHEMA_VERSION => {
                        return Err(Error::Newer { path: self.path.clone(), found, known: SCHEMA_VERSION });
                    }
                    Ok(header) => self.header = Some(header),
                    Err(error) => self.leave_out(number, &error),
                }
            }
            JournalForm::TooLong | JournalForm::Broken => {
                self.is_begun = line.is_finished;
                self.broken = Some((number, bytes));
            }
            JournalForm::Zeros => {}
        }
        Ok(())
    }

    /// Returns whether a header exists but is unreadable.
    pub fn is_header_damaged(&self) -> bool {
        self.is_begun && self.header.is_none()
    }

    /// Returns the unfinished last line; valid once all records are read.
    pub fn torn_tail(&self) -> Option<TornTail> {
        self.broken.map(|(_, bytes)| TornTail { journal: self.path.clone(), bytes })
    }

    /// Returns the skipped lines; valid once all records are read.
    pub fn damage(&self) -> Option<Damage> {
        self.damage.clone()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn has_changed(&self) -> bool {
        self.before.is_none() || length_and_time(&self.file) != self.before
    }

    /// Returns the next records, at most `most`; an empty list at the end.
    pub fn next_rows(&mut self, most: usize) -> Result<Vec<Record>> {
        let mut rows = Vec::new();
        while rows.len() < most {
            let lines = self.next_lines(PARSED_AT_ONCE.min(most - rows.len()))?;
            if lines.is_empty() {
                break;
            }
            // If the header is unreadable, every line must have a checksum.
            let has_checksums = self.header.as_ref().is_none_or(|header| header.has_checksums);
            let parsed: Vec<_> = lines.par_iter().map(|line| line.parse_record(has_checksums)).collect();
            for parsed in parsed {
                match parsed {
                    Ok(record) => rows.push(record),
                    Err((number, error)) => self.leave_out(number, &error),
                }
            }
        }
        Ok(rows)
    }

    fn next_lines(&mut self, most: usize) -> Result<Vec<NumberedLine>> {
        let mut lines = Vec::new();
        while self.is_begun && lines.len() < most {
            let Some(line) = self.lines.next_line().context("reading", &self.path)? else { break };
            let number = line.number;
            match JournalForm::classify_line(&line) {
                JournalForm::Zeros => continue,
                JournalForm::Whole => lines.push(NumberedLine { number, text: line.text.to_owned() }),
                JournalForm::TooLong => self.leave_out(number, &too_long()),
                JournalForm::Broken => {
                    let broken = self.broken.replace((number, bytes_before_zero(line.text)));
                    self.leave_out_broken(broken);
                    continue;
                }
            }
            // A line with successors was once complete, so it is damaged, not torn.
            let broken = self.broken.take();
            self.leave_out_broken(broken);
        }
        Ok(lines)
    }

    fn leave_out_broken(&mut self, broken: Option<(u64, u64)>) {
        if let Some((number, _)) = broken {
            self.leave_out(number, &RowError::new("part of the line was lost"));
        }
    }

    fn leave_out(&mut self, number: u64, error: &RowError) {
        let first =
            || Damage { file: self.path.clone(), lines: Some(0), problem: format!("line {number}: {}", error.problem) };
        let damage = self.damage.get_or_insert_with(first);
        damage.lines = damage.lines.map(|lines| lines + 1);
    }
}

fn bytes_before_zero(text: &[u8]) -> u64 {
    text.iter().take_while(|byte| **byte != 0).count() as u64
}

fn length_and_time(file: &File) -> Option<(u64, SystemTime)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}
