//! Writes Parquet files of records.

use super::schema::parquet_schema;
use crate::error::{Error, Result};
use crate::limits::MAX_CHUNK_VALUES;
use crate::record::batch::{Batch, ColumnData, Row, Values};
use crate::record::cell::Cell;
use crate::record::column::Kind;
use crate::record::key::Key;
use crate::record::table::Column;
use crate::record::table::{COLUMNS, ColumnId};
use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer};
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnPath, SchemaDescPtr};
use rayon::prelude::*;
use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const ROW_GROUP_ROWS: usize = 1 << 16;

const ROW_GROUP_LIST_VALUES: usize = MAX_CHUNK_VALUES as usize / 2;

/// Rows per page; small, because a merge keeps one page of every column of every file in memory.
const PAGE_ROWS: usize = 1 << 11;
const PAGE_BYTES: usize = 64 << 10;

/// Columns up to this size stay uncompressed, because a reader needs a large buffer for each compressed column.
const SMALL_BYTES: i64 = 4 << 10;
/// Columns that do not compress below this percentage of their size stay uncompressed.
const WORTH_PERCENT: i64 = 80;

pub(crate) const SORTED_BY: [ColumnId; 3] = [ColumnId::op_kind, ColumnId::task_hash, ColumnId::key];

pub(crate) struct PartWriter<W: Write + Send> {
    path: PathBuf,
    writer: SerializedFileWriter<Remembering<W>>,
    failure: Failure,
    schema: SchemaDescPtr,
    properties: Arc<WriterProperties>,
    /// Writer properties without compression.
    plain: Arc<WriterProperties>,
    rows: Batch,
}

impl<W: Write + Send> PartWriter<W> {
    /// Creates a writer; the path is used in messages only.
    pub fn new(path: &Path, sink: W) -> Result<PartWriter<W>> {
        let compressed = Compression::ZSTD(ZstdLevel::try_new(3).expect("3 is a level of zstd"));
        let (properties, plain) =
            (Arc::new(writer_properties(compressed)), Arc::new(writer_properties(Compression::UNCOMPRESSED)));
        let failure = Arc::new(Mutex::new(None));
        let sink = Remembering { sink, failure: Arc::clone(&failure) };
        let writer = SerializedFileWriter::new(sink, Arc::new(parquet_schema()), Arc::clone(&properties))
            .map_err(|error| Error::damaged(path, error.to_string()))?;
        let schema = Arc::new(writer.schema_descr().clone());
        let rows = Batch::all_columns();
        Ok(PartWriter { path: path.to_owned(), writer, failure, schema, properties, plain, rows })
    }

    pub fn push(&mut self, row: &impl Row) -> Result<()> {
        self.rows.push(row);
        self.write_full_group()
    }

    /// Writes rows from memory without collecting them in a batch first.
    pub fn push_all<R: Row + Sync>(&mut self, rows: &[&R]) -> Result<()> {
        self.write_group()?;
        let mut rest = rows;
        while !rest.is_empty() {
            let (group, later) = rest.split_at(group_rows(rest));
            self.write_columns(|column| Cow::Owned(Values::from_rows(column, group)))?;
            rest = later;
        }
        Ok(())
    }

    pub fn push_batch(&mut self, batch: &Batch) -> Result<()> {
        self.rows.extend(batch, 0..batch.len());
        self.write_full_group()
    }

    pub fn finish(mut self) -> Result<W> {
        self.write_group()?;
        let PartWriter { path, writer, failure, .. } = self;
        writer.into_inner().map(|remembering| remembering.sink).map_err(|error| write_error(&path, &failure, error))
    }

    fn write_full_group(&mut self) -> Result<()> {
        let is_full = self.rows.len() >= ROW_GROUP_ROWS || self.rows.list_values() >= ROW_GROUP_LIST_VALUES;
        if is_full { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::replace(&mut self.rows, Batch::all_columns());
        self.write_columns(|column| Cow::Borrowed(rows.column_values(column.id).expect("the batch has every column")))
    }

    fn write_columns<'a>(&mut self, values: impl Fn(&Column) -> Cow<'a, Values> + Sync) -> Result<()> {
        let (schema, properties, plain) = (&self.schema, &self.properties, &self.plain);
        // Columns are scheduled one at a time, because a few of them take most of the time.
        let columns = COLUMNS.par_iter().enumerate().with_max_len(1);
        let encode = |(index, column): (usize, &Column)| {
            let values = values(column);
            let chunk = encode_column(schema, properties, index, &values)?;
            if is_worth_compressing(&chunk.1.metadata) {
                Ok(chunk)
            } else {
                encode_column(schema, plain, index, &values)
            }
        };
        let chunks: Vec<parquet::errors::Result<_>> = columns.map(encode).collect();
        let written = self.writer.next_row_group().and_then(|mut group| {
            for chunk in chunks {
                let (bytes, close) = chunk?;
                group.append_column(&bytes, close)?;
            }
            group.close().map(|_| ())
        });
        written.map_err(|error| write_error(&self.path, &self.failure, error))
    }
}

fn is_worth_compressing(chunk: &ColumnChunkMetaData) -> bool {
    let (before, after) = (chunk.uncompressed_size(), chunk.compressed_size());
    before > SMALL_BYTES && 100 * after < WORTH_PERCENT * before
}

/// Returns the number of rows of the next row group, cut as if the rows were added one by one.
fn group_rows<R: Row>(rows: &[&R]) -> usize {
    let mut list_values = 0;
    for (index, row) in rows.iter().enumerate() {
        let lists = COLUMNS.iter().filter(|column| column.kind == Kind::List);
        list_values +=
            lists.map(|column| if let Cell::List(list) = row.cell(column.id) { list.len() } else { 0 }).sum::<usize>();
        if index + 1 == ROW_GROUP_ROWS || list_values >= ROW_GROUP_LIST_VALUES {
            return index + 1;
        }
    }
    rows.len()
}

fn encode_column(
    schema: &SchemaDescPtr,
    properties: &Arc<WriterProperties>,
    index: usize,
    values: &Values,
) -> parquet::errors::Result<(Bytes, ColumnCloseResult)> {
    let mut buffer = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut buffer));
    let mut writer = get_column_writer(schema.column(index), Arc::clone(properties), pages);
    write_values(&mut writer, values)?;
    let close = writer.close()?;
    Ok((buffer.into_inner()?.into(), close))
}

/// Returns the error of the operating system, if any, else that of the Parquet library.
fn write_error(path: &Path, failure: &Failure, error: ParquetError) -> Error {
    let failure = failure.lock().ok().and_then(|mut failure| failure.take());
    Error::io("writing", path, failure.unwrap_or_else(|| std::io::Error::other(error)))
}

fn writer_properties(compression: Compression) -> WriterProperties {
    let sorted = SORTED_BY.map(|id| SortingColumn { column_idx: id as i32, descending: false, nulls_first: false });
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("opcollect datasets ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(compression)
        .set_sorting_columns(Some(sorted.to_vec()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_dictionary_page_size_limit(PAGE_BYTES);
    for column in COLUMNS {
        let path = ColumnPath::from(column.name);
        match column.kind {
            // Keys are random and times hardly repeat, so a dictionary would only take space.
            Kind::Key => {
                builder = builder
                    .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                    .set_column_dictionary_enabled(path, false);
            }
            Kind::Float | Kind::Time => builder = builder.set_column_dictionary_enabled(path, false),
            Kind::List => {
                let leaf = vec![column.name.to_owned(), "list".to_owned(), "element".to_owned()];
                builder = builder.set_column_dictionary_enabled(ColumnPath::new(leaf), false);
            }
            Kind::Bool | Kind::Integer | Kind::Text | Kind::Label | Kind::Json => {}
        }
    }
    builder.build()
}

fn write_values(writer: &mut ColumnWriter<'_>, values: &Values) -> parquet::errors::Result<()> {
    let levels = values.levels.as_deref();
    match (writer, &values.data) {
        (ColumnWriter::BoolColumnWriter(writer), ColumnData::Bool(values)) => {
            writer.write_batch(&present_values(values, levels), levels, None)?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), ColumnData::Integer(values)) => {
            writer.write_batch(&present_values(values, levels), levels, None)?;
        }
        (ColumnWriter::DoubleColumnWriter(writer), ColumnData::Float(values)) => {
            writer.write_batch(&present_values(values, levels), levels, None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), ColumnData::Text { ends, text }) => {
            writer.write_batch(&present_texts(text, ends, levels), levels, None)?;
        }
        (ColumnWriter::FixedLenByteArrayColumnWriter(writer), ColumnData::Key(keys)) => {
            writer.write_batch(&fixed_bytes(keys), None, None)?;
        }
        (ColumnWriter::DoubleColumnWriter(writer), ColumnData::List { ends, values }) => {
            let (levels, repeats) = list_levels(ends);
            writer.write_batch(values, Some(&levels), Some(&repeats))?;
        }
        _ => unreachable!("the schema and the batch are made from the same table"),
    }
    Ok(())
}

fn present_values<'a, T: Clone>(values: &'a [T], levels: Option<&[i16]>) -> Cow<'a, [T]> {
    match levels {
        Some(levels) if levels.contains(&0) => {
            values.iter().zip(levels).filter(|(_, level)| **level == 1).map(|(value, _)| value.clone()).collect()
        }
        _ => values.into(),
    }
}

fn present_texts(text: &str, ends: &[usize], levels: Option<&[i16]>) -> Vec<ByteArray> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let mut start = 0;
    let mut pieces = Vec::with_capacity(ends.len());
    for (row, &end) in ends.iter().enumerate() {
        if levels.is_none_or(|levels| levels[row] == 1) {
            pieces.push(ByteArray::from(bytes.slice(start..end)));
        }
        start = end;
    }
    pieces
}

fn fixed_bytes(keys: &[Key]) -> Vec<FixedLenByteArray> {
    let bytes = Bytes::from(keys.iter().flat_map(|key| key.0).collect::<Vec<u8>>());
    let slices = (0..keys.len()).map(|index| bytes.slice(index * 16..(index + 1) * 16));
    slices.map(|slice| FixedLenByteArray::from(ByteArray::from(slice))).collect()
}

/// Returns definition and repetition levels of lists that end at the given positions.
fn list_levels(ends: &[usize]) -> (Vec<i16>, Vec<i16>) {
    let (mut levels, mut repeats) = (Vec::new(), Vec::new());
    let mut start = 0;
    for &end in ends {
        repeats.push(0);
        levels.push(i16::from(end > start));
        for _ in start + 1..end {
            repeats.push(1);
            levels.push(1);
        }
        start = end;
    }
    (levels, repeats)
}

/// A sink that stores the error of the operating system, because the Parquet library keeps only its text.
struct Remembering<W> {
    sink: W,
    failure: Failure,
}

type Failure = Arc<Mutex<Option<std::io::Error>>>;

impl<W: Write> Remembering<W> {
    fn remember_error<T>(&mut self, result: std::io::Result<T>) -> std::io::Result<T> {
        result.inspect_err(|error| {
            let copy = error.raw_os_error().map_or(error.kind().into(), std::io::Error::from_raw_os_error);
            if let Ok(mut failure) = self.failure.lock() {
                failure.get_or_insert(copy);
            }
        })
    }
}

impl<W: Write> Write for Remembering<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.sink.write(buffer);
        self.remember_error(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let flushed = self.sink.flush();
        self.remember_error(flushed)
    }
}
