//! The CSV format: a header of column names, then one row per record. An absent value is an empty cell, lists are JSON,
//! keys are hexadecimal, and floats have the fewest digits that read back exactly. Reading accepts columns in any order
//! and missing nullable columns.

use super::RecordReader;
use crate::error::{Error, IoContext, Result, RowError, RowUnit};
use crate::limits::MAX_LINE_BYTES;
use crate::record::batch::Row;
use crate::record::cell::Cell;
use crate::record::column::Kind;
use crate::record::key::excerpt;
use crate::record::serial::{missing_column, unknown_column};
use crate::record::table::Column;
use crate::record::table::{COLUMNS, ColumnId, Record};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Returns the header line without its line end.
pub fn header_line() -> String {
    COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(",")
}

pub(super) struct CsvWriter<W: Write> {
    path: PathBuf,
    sink: W,
    line: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    pub fn new(path: &Path, mut sink: W) -> Result<CsvWriter<W>> {
        writeln!(sink, "{}", header_line()).context("writing", path)?;
        Ok(CsvWriter { path: path.to_owned(), sink, line: Vec::new() })
    }

    pub fn write(&mut self, row: &impl Row) -> Result<()> {
        self.line.clear();
        write_line(row, &mut self.line);
        self.sink.write_all(&self.line).context("writing", &self.path)
    }

    pub fn finish(self) -> (PathBuf, W) {
        (self.path, self.sink)
    }
}

pub(crate) fn write_line(row: &impl Row, line: &mut Vec<u8>) {
    for column in COLUMNS {
        match row.cell(column.id) {
            Cell::Null => {}
            Cell::Bool(value) => line.extend_from_slice(if value { b"true" } else { b"false" }),
            Cell::Integer(value) => write_number(&value, line),
            Cell::Float(value) => write_number(&value, line),
            Cell::Text(text) => write_quoted(text, line),
            Cell::List([]) => line.extend_from_slice(b"[]"),
            Cell::List([one]) => {
                line.push(b'[');
                write_number(one, line);
                line.push(b']');
            }
            Cell::List(values) => {
                line.push(b'"');
                write_number(values, line);
                line.push(b'"');
            }
            Cell::Key(key) => line.extend_from_slice(key.write_hex(&mut [0; 32]).as_bytes()),
        }
        line.push(b',');
    }
    // Replaces the last separator by the line end.
    line.pop();
    line.push(b'\n');
}

fn write_number<T: serde::Serialize + ?Sized>(value: &T, line: &mut Vec<u8>) {
    serde_json::to_writer(line, value).expect("numbers have a JSON form and memory takes it");
}

fn write_quoted(text: &str, line: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'"' | b',' | b'\n' | b'\r')) {
        return line.extend_from_slice(bytes);
    }
    line.push(b'"');
    for (index, piece) in bytes.split(|byte| *byte == b'"').enumerate() {
        if index > 0 {
            line.extend_from_slice(b"\"\"");
        }
        line.extend_from_slice(piece);
    }
    line.push(b'"');
}

/// A reader of a CSV file.
pub struct CsvReader {
    path: PathBuf,
    rows: csv::Reader<Bounded<BufReader<File>>>,
    row: csv::StringRecord,
    columns: Vec<ColumnId>,
    is_done: bool,
}

impl CsvReader {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<CsvReader> {
        let lines = LineStarts { is_line_start: true, ..LineStarts::default() };
        let source = Bounded { source: super::open_buffered(path)?, left: MAX_LINE_BYTES, lines };
        let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(source);
        let mut row = csv::StringRecord::new();
        let columns = rows
            .read_record(&mut row)
            .map_err(|error| row_error(&error))
            .and_then(|_| columns_of(&row))
            .map_err(|row| Error::Row { file: path.to_owned(), counted: RowUnit::Line, number: 1, row })?;
        Ok(CsvReader { path: path.to_owned(), rows, row, columns, is_done: false })
    }

    fn read_record(&mut self) -> std::result::Result<Option<Record>, RowError> {
        let start = self.rows.position().byte();
        let source = self.rows.get_mut();
        source.left = MAX_LINE_BYTES;
        source.lines.skip_before(start);
        if !self.rows.read_record(&mut self.row).map_err(|error| row_error(&error))? {
            return Ok(None);
        }
        let mut record = Record::empty();
        for (&id, text) in self.columns.iter().zip(&self.row) {
            set_cell(&mut record, id.column_metadata(), text).map_err(|error| error.in_field(id.name()))?;
        }
        record.check()?;
        Ok(Some(record))
    }
}

impl RecordReader for CsvReader {
    fn record_position(&self) -> (RowUnit, u64) {
        (RowUnit::Line, self.rows.get_ref().lines.record_line())
    }
}

impl Iterator for CsvReader {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.is_done {
            return None;
        }
        let next = self.read_record();
        self.is_done = !matches!(next, Ok(Some(_)));
        let (counted, number) = self.record_position();
        let file = self.path.clone();
        next.map_err(|row| Error::Row { file, counted, number, row }).transpose()
    }
}

fn columns_of(header: &csv::StringRecord) -> std::result::Result<Vec<ColumnId>, RowError> {
    let mut columns = Vec::new();
    for name in header {
        let id = ColumnId::from_name(name).ok_or_else(|| unknown_column(&excerpt(name), 0))?;
        if columns.contains(&id) {
            return Err(RowError::new("duplicate column").in_field(name));
        }
        columns.push(id);
    }
    match COLUMNS.iter().find(|column| !column.nullable && !columns.contains(&column.id)) {
        Some(column) => Err(missing_column(column.name)),
        None => Ok(columns),
    }
}

fn set_cell(record: &mut Record, column: &Column, text: &str) -> std::result::Result<(), RowError> {
    if text.is_empty() {
        return record.set(column.id, Cell::Null);
    }
    let wrong = |what: &str| RowError::new(format!("`{}` is not {what}", excerpt(text)));
    match column.kind {
        Kind::Bool => {
            let value = match text {
                "true" | "True" => true,
                "false" | "False" => false,
                _ => return Err(wrong("`true` or `false`")),
            };
            record.set(column.id, Cell::Bool(value))
        }
        Kind::Integer | Kind::Time => {
            // pandas writes integers of a column with absent values like `4.0`.
            let value = text.strip_suffix(".0").unwrap_or(text).parse().map_err(|_| wrong("an integer"))?;
            record.set(column.id, Cell::Integer(value))
        }
        Kind::Float => {
            let value = text.parse().map_err(|_| wrong("a number"))?;
            record.set(column.id, Cell::Float(value))
        }
        Kind::Text | Kind::Label | Kind::Json => record.set(column.id, Cell::Text(text)),
        Kind::List => {
            let values: Vec<f64> = serde_json::from_str(text).map_err(|_| wrong("a list of numbers"))?;
            record.set(column.id, Cell::List(&values))
        }
        Kind::Key => record.set(column.id, Cell::Key(text.parse()?)),
    }
}

fn row_error(error: &csv::Error) -> RowError {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            RowError::new(format!("the row has {len} cells, but the header has {expected_len}"))
        }
        csv::ErrorKind::Utf8 { err, .. } => RowError::new(format!("cell {} is not UTF-8", err.field() + 1)),
        _ => RowError::new(error.to_string()),
    }
}

/// A reader that limits the bytes between two rows, because the CSV reader allocates memory for a row of any length.
struct Bounded<R> {
    source: R,
    left: usize,
    lines: LineStarts,
}

/// Numbers of the lines that are not empty. The CSV reader's own position of a row counts neither empty lines before
/// the row nor, in files with CRLF, the end of the line before it.
#[derive(Default)]
struct LineStarts {
    /// Byte offset and line number of each start, from the current row to the last byte read.
    starts: VecDeque<(u64, u64)>,
    /// Number of bytes read.
    bytes: u64,
    /// Number of line feeds read.
    feeds: u64,
    is_line_start: bool,
}

impl LineStarts {
    /// Drops the starts before a row's first byte.
    fn skip_before(&mut self, byte: u64) {
        let earlier = self.starts.iter().take_while(|(start, _)| *start < byte).count();
        self.starts.drain(..earlier);
    }

    /// Returns the line of the current row, or the last line at the end of the file.
    fn record_line(&self) -> u64 {
        self.starts.front().map_or(self.feeds + 1, |(_, line)| *line)
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        // The CSV reader has consumed all earlier bytes, so later starts lie inside the current row.
        self.starts.truncate(1);
        for (byte, offset) in bytes.iter().zip(self.bytes..) {
            match byte {
                b'\n' => {
                    self.feeds += 1;
                    self.is_line_start = true;
                }
                b'\r' => self.is_line_start = true,
                _ if self.is_line_start => {
                    self.starts.push_back((offset, self.feeds + 1));
                    self.is_line_start = false;
                }
                _ => {}
            }
        }
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Err(std::io::Error::other(format!("a row has more than {MAX_LINE_BYTES} bytes")));
        }
        let most = buffer.len().min(self.left);
        let read = self.source.read(&mut buffer[..most])?;
        self.left -= read;
        self.lines.add_bytes(&buffer[..read]);
        Ok(read)
    }
}
