//! The files records travel in: JSON lines, CSV and Parquet. Each keeps every record exactly.

pub mod csv;
pub mod json_lines;
pub(crate) mod parquet;
pub(crate) mod rows;

use crate::error::{IoContext, Result};
use crate::record::batch::{Batch, Row};
use crate::record::table::{COLUMNS, ColumnId, Record};
use models::names;
use parquet::{PartCursor, PartWriter};
use rows::{BatchRecords, Batches};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    JsonLines,
    /// Comma-separated values under a header; absent values are empty cells.
    Csv,
    /// Parquet with zstd.
    Parquet,
}

impl Format {
    /// Every format.
    pub const ALL: &[Format] = &[Format::Csv, Format::Parquet, Format::JsonLines];

    /// The name on the command line, which is the file name's extension too.
    pub fn name(self) -> &'static str {
        match self {
            Format::JsonLines => "jsonl",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
        }
    }

    /// The format of a name.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format that was asked for by a name; else what to say of it.
    pub fn named(name: &str) -> std::result::Result<Format, String> {
        let hint = || names::hint(name, Format::ALL.iter().map(|format| format.name()));
        Format::from_name(name).ok_or_else(|| format!("unknown format `{name}`; {}", hint()))
    }

    /// The format that a file's name ends in.
    pub fn of_path(path: &Path) -> Option<Format> {
        path.extension().and_then(|extension| extension.to_str()).and_then(Format::from_name)
    }
}

/// Rows of batches while reading a Parquet file.
const BATCH_ROWS: usize = 1024;

/// All columns, for readers that want whole records.
pub(crate) fn all_columns() -> Vec<ColumnId> {
    COLUMNS.iter().map(|column| column.id).collect()
}

/// The records of a file, each checked; the first error ends the reading.
pub fn read(path: &Path, format: Format) -> Result<Box<dyn Iterator<Item = Result<Record>> + Send>> {
    Ok(match format {
        Format::JsonLines => Box::new(json_lines::Reader::open(path)?),
        Format::Csv => Box::new(csv::Reader::open(path)?),
        Format::Parquet => Box::new(BatchRecords::new(path, PartCursor::open(path, &all_columns())?)),
    })
}

/// Writes records to a sink in one of the formats.
pub struct Writer<W: Write + Send>(Sink<W>);

enum Sink<W: Write + Send> {
    JsonLines(json_lines::Writer<BufWriter<W>>),
    Csv(csv::Writer<BufWriter<W>>),
    Parquet(Box<PartWriter<W>>),
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file; the path is only for messages.
    pub fn new(path: &Path, format: Format, sink: W) -> Result<Writer<W>> {
        // Parquet buffers by itself.
        let buffered = |sink| BufWriter::with_capacity(1 << 16, sink);
        Ok(Writer(match format {
            Format::JsonLines => Sink::JsonLines(json_lines::Writer::new(path, buffered(sink))),
            Format::Csv => Sink::Csv(csv::Writer::new(path, buffered(sink))?),
            Format::Parquet => Sink::Parquet(Box::new(PartWriter::new(path, sink)?)),
        }))
    }

    /// Adds a record, which must keep the rules.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        record.check()?;
        self.write_row(record)
    }

    /// Adds a row that was checked when it was read.
    pub(crate) fn write_row(&mut self, row: &impl Row) -> Result<()> {
        match &mut self.0 {
            Sink::JsonLines(writer) => writer.write(row),
            Sink::Csv(writer) => writer.write(row),
            Sink::Parquet(writer) => writer.push(row),
        }
    }

    /// Adds the rows of a batch, which were checked when they were read.
    pub(crate) fn write_batch(&mut self, batch: &Batch) -> Result<()> {
        match &mut self.0 {
            Sink::Parquet(writer) => writer.push_batch(batch),
            _ => batch.rows().try_for_each(|row| self.write_row(&row)),
        }
    }

    /// Ends the file and gives back what it was written to.
    pub fn finish(self) -> Result<W> {
        match self.0 {
            Sink::JsonLines(writer) => unbuffer(writer.finish()),
            Sink::Csv(writer) => unbuffer(writer.finish()),
            Sink::Parquet(writer) => writer.finish(),
        }
    }
}

fn unbuffer<W: Write>((path, sink): (PathBuf, BufWriter<W>)) -> Result<W> {
    sink.into_inner().map_err(|error| error.into_error()).context("writing", &path)
}

impl Batches for PartCursor {
    fn next_batch(&mut self) -> Result<Option<Batch>> {
        self.next(BATCH_ROWS)
    }
}

/// Opens a file for reading, buffered.
fn open(path: &Path) -> Result<std::io::BufReader<File>> {
    Ok(std::io::BufReader::with_capacity(1 << 16, File::open(path).context("opening", path)?))
}
