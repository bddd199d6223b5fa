//! The JSON lines format: one record per line, without absent values.

use super::RecordReader;
use crate::error::{Error, IoContext, Result, RowError, RowUnit};
use crate::limits::MAX_LINE_BYTES;
use crate::record::batch::Row;
use crate::record::serial::AsJson;
use crate::record::table::Record;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

pub(super) struct JsonLinesWriter<W: Write> {
    path: PathBuf,
    sink: W,
    line: Vec<u8>,
}

impl<W: Write> JsonLinesWriter<W> {
    pub fn new(path: &Path, sink: W) -> JsonLinesWriter<W> {
        JsonLinesWriter { path: path.to_owned(), sink, line: Vec::new() }
    }

    pub fn write(&mut self, row: &impl Row) -> Result<()> {
        self.line.clear();
        write_line(row, &mut self.line)?;
        self.sink.write_all(&self.line).context("writing", &self.path)
    }

    pub fn finish(self) -> (PathBuf, W) {
        (self.path, self.sink)
    }
}

pub(crate) fn write_line(row: &impl Row, line: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(&mut *line, &AsJson(row)).map_err(|error| RowError::new(error.to_string()))?;
    line.push(b'\n');
    Ok(())
}

pub(crate) fn parse_line(line: &[u8]) -> std::result::Result<Record, RowError> {
    let record = Record::from_json(line)?;
    record.check()?;
    Ok(record)
}

/// Mark that some editors write at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A reader of a JSON lines file.
pub struct Reader {
    path: PathBuf,
    lines: LineReader,
}

impl Reader {
    /// Opens a file of records.
    pub fn open(path: &Path) -> Result<Reader> {
        Ok(Reader { path: path.to_owned(), lines: LineReader::new(super::open_buffered(path)?) })
    }
}

impl Iterator for Reader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        loop {
            let line = match self.lines.next_line().context("reading", &self.path) {
                Ok(line) => line?,
                Err(error) => return Some(Err(error)),
            };
            let mark = if line.number == 1 { BYTE_ORDER_MARK } else { b"" };
            let text = line.text.strip_prefix(mark).unwrap_or(line.text);
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let record = if line.is_too_long { Err(too_long()) } else { parse_line(text) };
            let number = line.number;
            let failed = record.is_err();
            if failed {
                self.lines.stop_reading();
            }
            let file = self.path.clone();
            return Some(record.map_err(|row| Error::Row { file, counted: RowUnit::Line, number, row }));
        }
    }
}

impl RecordReader for Reader {
    fn record_position(&self) -> (RowUnit, u64) {
        (RowUnit::Line, self.lines.number)
    }
}

pub(crate) fn too_long() -> RowError {
    RowError::new(format!("the line has more than {MAX_LINE_BYTES} bytes"))
}

pub(crate) struct LineReader {
    source: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    is_done: bool,
    /// Whether the position is inside a line that exceeds the limit; the rest of the line is skipped next.
    is_inside: bool,
}

pub(crate) struct Line<'a> {
    pub text: &'a [u8],
    pub number: u64,
    /// Whether the line ends with a newline; false after an interrupted write.
    pub is_finished: bool,
    pub is_too_long: bool,
}

impl LineReader {
    pub fn new(source: BufReader<File>) -> LineReader {
        LineReader { source, line: Vec::new(), number: 0, is_done: false, is_inside: false }
    }

    pub fn stop_reading(&mut self) {
        self.is_done = true;
    }

    /// Returns the next line, or the beginning of a line that exceeds the limit.
    pub fn next_line(&mut self) -> std::io::Result<Option<Line<'_>>> {
        if std::mem::take(&mut self.is_inside) {
            self.source.skip_until(b'\n')?;
        }
        self.line.clear();
        if self.is_done || self.source.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut self.line)? == 0
        {
            return Ok(None);
        }
        self.number += 1;
        let is_finished = self.line.ends_with(b"\n");
        let is_too_long = self.line.len() > MAX_LINE_BYTES;
        self.is_inside = is_too_long && !is_finished;
        let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Ok(Some(Line { text, number: self.number, is_finished, is_too_long }))
    }
}
