//! The lossless file formats of records: JSON lines, CSV and Parquet.

pub mod csv;
pub mod json_lines;
pub(crate) mod parquet;
pub(crate) mod rows;

use crate::error::{IoContext, Result, RowUnit};
use crate::record::batch::{Batch, Row};
use crate::record::table::{COLUMNS, ColumnId, Record};
use models::Choice;
use parquet::{PartCursor, PartWriter};
use rows::{BatchRecords, Batches};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

models::choice! {
    /// A file format; its name is also the file extension.
    pub enum Format {
        /// Comma-separated values with a header; absent values are empty cells.
        Csv = "csv",
        /// Parquet with zstd compression.
        Parquet = "parquet",
        /// One JSON object per line.
        JsonLines = "jsonl",
    }
}

impl Format {
    /// Looks up a format by name; the error lists known names.
    pub fn parse_name(name: &str) -> std::result::Result<Format, String> {
        Format::from_name(name).ok_or_else(|| format!("unknown format `{name}`; {}", Format::name_hint(name)))
    }

    /// Returns the format of a file extension.
    pub fn of_path(path: &Path) -> Option<Format> {
        Format::from_name(&path.extension()?.to_str()?.to_ascii_lowercase())
    }
}

const BATCH_ROWS: usize = 1024;

pub(crate) fn all_columns() -> Vec<ColumnId> {
    COLUMNS.iter().map(|column| column.id).collect()
}

/// A reader of the records of a file.
pub(crate) trait RecordReader: Iterator<Item = Result<Record>> + Send {
    /// Returns the position of the record that was returned last.
    fn record_position(&self) -> (RowUnit, u64);
}

/// Reads and checks the records of a file; ends at the first error.
pub fn read_records(path: &Path, format: Format) -> Result<Box<dyn Iterator<Item = Result<Record>> + Send>> {
    Ok(open_records(path, format)?)
}

pub(crate) fn open_records(path: &Path, format: Format) -> Result<Box<dyn RecordReader>> {
    Ok(match format {
        Format::JsonLines => Box::new(json_lines::Reader::open(path)?),
        Format::Csv => Box::new(csv::CsvReader::open(path)?),
        Format::Parquet => Box::new(BatchRecords::new(path, PartCursor::open(path, &all_columns())?)),
    })
}

/// A writer of records in one of the formats.
pub struct Writer<W: Write + Send>(EncodedSink<W>);

enum EncodedSink<W: Write + Send> {
    JsonLines(json_lines::JsonLinesWriter<BufWriter<W>>),
    Csv(csv::CsvWriter<BufWriter<W>>),
    Parquet(Box<PartWriter<W>>),
}

impl<W: Write + Send> Writer<W> {
    /// Creates a writer; the path is used in messages only.
    pub fn new(path: &Path, format: Format, sink: W) -> Result<Writer<W>> {
        // Parquet has its own buffer.
        let buffered = |sink| BufWriter::with_capacity(1 << 16, sink);
        Ok(Writer(match format {
            Format::JsonLines => EncodedSink::JsonLines(json_lines::JsonLinesWriter::new(path, buffered(sink))),
            Format::Csv => EncodedSink::Csv(csv::CsvWriter::new(path, buffered(sink))?),
            Format::Parquet => EncodedSink::Parquet(Box::new(PartWriter::new(path, sink)?)),
        }))
    }

    /// Checks and writes a record.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        record.check()?;
        self.write_row(record)
    }

    /// Writes a row that was checked when it was read.
    pub(crate) fn write_row(&mut self, row: &impl Row) -> Result<()> {
        match &mut self.0 {
            EncodedSink::JsonLines(writer) => writer.write(row),
            EncodedSink::Csv(writer) => writer.write(row),
            EncodedSink::Parquet(writer) => writer.push(row),
        }
    }

    /// Writes the rows of a batch that was checked when it was read.
    pub(crate) fn write_batch(&mut self, batch: &Batch) -> Result<()> {
        match &mut self.0 {
            EncodedSink::Parquet(writer) => writer.push_batch(batch),
            _ => batch.rows().try_for_each(|row| self.write_row(&row)),
        }
    }

    /// Finishes the file and returns the sink.
    pub fn finish(self) -> Result<W> {
        match self.0 {
            EncodedSink::JsonLines(writer) => flush_sink(writer.finish()),
            EncodedSink::Csv(writer) => flush_sink(writer.finish()),
            EncodedSink::Parquet(writer) => writer.finish(),
        }
    }
}

fn flush_sink<W: Write>((path, sink): (PathBuf, BufWriter<W>)) -> Result<W> {
    sink.into_inner().map_err(|error| error.into_error()).context("writing", &path)
}

impl Batches for PartCursor {
    fn next_batch(&mut self) -> Result<Option<Batch>> {
        self.read_batch(BATCH_ROWS)
    }
}

fn open_buffered(path: &Path) -> Result<std::io::BufReader<File>> {
    Ok(std::io::BufReader::with_capacity(1 << 16, File::open(path).context("opening", path)?))
}
