//! Reads the requested columns of Parquet files in batches. Accepts files that other programs have rewritten: columns
//! in any order, required columns declared optional (a missing value is then an error of its row), missing nullable
//! columns. Rejects unknown columns and other types.

use super::codecs::check_codecs;
use super::file::PartFile;
use super::guard::catch_panics;
use super::pages::check_pages;
use super::schema::{KEY_BYTES, physical_type};
use crate::error::{Error, Result, RowError, RowUnit};
use crate::limits::{MAX_BATCH_TEXT_BYTES, MAX_TEXT_BYTES};
use crate::record::batch::{Batch, ColumnData, Values};
use crate::record::column::Kind;
use crate::record::key::Key;
use crate::record::serial::{missing_column, unknown_column};
use crate::record::table::{COLUMNS, ColumnId};
use parquet::basic::{LogicalType, Repetition, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) struct PartCursor {
    path: PathBuf,
    reader: SerializedFileReader<PartFile>,
    file: PartFile,
    /// For each column of the record table, the index of the file's leaf column; None if the file lacks the column.
    leaves: Vec<Option<usize>>,
    columns: Vec<ColumnId>,
    next_group: usize,
    group: Option<RowGroup>,
    rows_read: u64,
}

struct RowGroup {
    rows_left: usize,
    readers: Vec<(ColumnId, Leaf)>,
}

struct Leaf {
    reader: ColumnReader,
    max_level: i16,
    has_optional_elements: bool,
}

type Parquet<T> = parquet::errors::Result<T>;

impl PartCursor {
    pub fn open(path: &Path, columns: &[ColumnId]) -> Result<PartCursor> {
        let file = PartFile::open(path)?;
        file.check_frame(path)?;
        let reader = catch_panics(path, || SerializedFileReader::new(file.clone()))?;
        check_codecs(path, reader.metadata())?;
        let leaves = map_leaves(path, &reader)?;
        let columns = columns.to_vec();
        Ok(PartCursor {
            path: path.to_owned(),
            reader,
            file,
            leaves,
            columns,
            next_group: 0,
            group: None,
            rows_read: 0,
        })
    }

    pub fn row_count(&self) -> u64 {
        self.reader.metadata().file_metadata().num_rows().try_into().unwrap_or(0)
    }

    pub fn read_batch(&mut self, most_rows: usize) -> Result<Option<Batch>> {
        while self.group.as_ref().is_none_or(|group| group.rows_left == 0) {
            if self.next_group == self.reader.num_row_groups() {
                return Ok(None);
            }
            self.open_group()?;
        }
        let first_row = self.rows_read;
        let group = self.group.as_mut().expect("the loop above opened a group");
        let rows = group.rows_left.min(most_rows);
        group.rows_left -= rows;
        self.rows_read += rows as u64;
        let (path, text_bytes) = (&self.path, AtomicUsize::new(0));
        let read = |(id, leaf): &mut (ColumnId, Leaf)| {
            let kind = id.column_metadata().kind;
            let values = catch_panics(path, || leaf.read_values(kind, rows, &text_bytes))?;
            let values = complete_levels(values, *id).map_err(|(row, error)| Error::Row {
                file: path.clone(),
                counted: RowUnit::Row,
                number: first_row + row as u64 + 1,
                row: error.in_field(id.name()),
            })?;
            Ok((*id, values))
        };
        let columns: Vec<Result<_>> = group.readers.par_iter_mut().with_min_len(8).map(read).collect();
        let mut batch = Batch::of_rows(rows);
        for column in columns {
            let (id, values) = column?;
            batch.set_column(id, values);
        }
        Ok(Some(batch))
    }

    fn open_group(&mut self) -> Result<()> {
        let (columns, leaves, file) = (&self.columns, &self.leaves, &self.file);
        let (reader, index) = (&self.reader, self.next_group);
        let group = catch_panics(&self.path, || {
            let group = reader.get_row_group(index)?;
            let rows_left = usize::try_from(group.metadata().num_rows())?;
            let mut readers = Vec::new();
            for &id in columns {
                let Some(leaf) = leaves[id as usize] else { continue };
                check_pages(file, group.metadata().column(leaf))?;
                let descriptor = group.metadata().schema_descr().column(leaf);
                let has_optional_elements = is_optional(&descriptor);
                let max_level = descriptor.max_def_level();
                readers.push((id, Leaf { reader: group.get_column_reader(leaf)?, max_level, has_optional_elements }));
            }
            Ok(RowGroup { rows_left, readers })
        })?;
        self.group = Some(group);
        self.next_group += 1;
        Ok(())
    }
}

fn is_optional(descriptor: &ColumnDescriptor) -> bool {
    descriptor.self_type().get_basic_info().repetition() == Repetition::OPTIONAL
}

/// Finds the leaf column of each column of the record table; rejects unknown columns and missing required columns.
fn map_leaves(path: &Path, reader: &SerializedFileReader<PartFile>) -> Result<Vec<Option<usize>>> {
    let refuse = |row: RowError| Error::Row { file: path.to_owned(), counted: RowUnit::Row, number: 0, row };
    let schema = reader.metadata().file_metadata().schema_descr();
    let mut leaves = vec![None; COLUMNS.len()];
    for (index, leaf) in schema.columns().iter().enumerate() {
        let name = leaf.path().parts().first().map_or("", String::as_str);
        let id = ColumnId::from_name(name).ok_or_else(|| refuse(unknown_column(name, 0)))?;
        check_type(id.column_metadata().kind, leaf).map_err(|problem| refuse(RowError::new(problem).in_field(name)))?;
        if leaves[id as usize].replace(index).is_some() {
            return Err(refuse(RowError::new("duplicate column").in_field(name)));
        }
    }
    match COLUMNS.iter().find(|column| !column.nullable && leaves[column.id as usize].is_none()) {
        Some(column) => Err(refuse(missing_column(column.name))),
        None => Ok(leaves),
    }
}

fn check_type(kind: Kind, leaf: &ColumnDescriptor) -> std::result::Result<(), String> {
    let is_list = kind == Kind::List;
    let most_levels = if is_list { 3 } else { 1 };
    let shape_fits = leaf.max_rep_level() == i16::from(is_list) && leaf.max_def_level() <= most_levels;
    // Other programs write keys as bytes of any length; their lengths are checked when they are read.
    let has_any_length = kind == Kind::Key && leaf.physical_type() == parquet::basic::Type::BYTE_ARRAY;
    let type_fits = leaf.physical_type() == physical_type(kind) || has_any_length;
    let length_fits = kind != Kind::Key || has_any_length || leaf.type_length() == KEY_BYTES;
    let unit_fits = match leaf.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => kind != Kind::Time || time.unit == TimeUnit::MICROS,
        _ => true,
    };
    if shape_fits && type_fits && length_fits && unit_fits {
        return Ok(());
    }
    Err(format!("the file stores the column as {}, but its type is {}", leaf.physical_type(), kind.name()))
}

/// Adds definition levels to nullable columns. For a missing value of a required column, returns its row and an error.
fn complete_levels(mut values: Values, id: ColumnId) -> std::result::Result<Values, (usize, RowError)> {
    if id.column_metadata().nullable {
        let rows = values.data.len();
        values.levels.get_or_insert_with(|| vec![1; rows]);
    } else if let Some(levels) = values.levels.take()
        && let Some(row) = levels.iter().position(|level| *level == 0)
        && id.column_metadata().kind != Kind::List
    {
        return Err((row, RowError::new("no value, but the column is required")));
    }
    Ok(values)
}

impl Leaf {
    fn read_values(&mut self, kind: Kind, rows: usize, text_bytes: &AtomicUsize) -> Parquet<Values> {
        let max_level = self.max_level;
        let wrong_type = || ParquetError::General("a column changes its type".to_owned());
        let (data, levels) = match (kind, &mut self.reader) {
            (Kind::Bool, ColumnReader::BoolColumnReader(reader)) => {
                let (values, levels) = read_scalars(reader, rows, max_level)?;
                (ColumnData::Bool(values), levels)
            }
            (Kind::Integer | Kind::Time, ColumnReader::Int64ColumnReader(reader)) => {
                let (values, levels) = read_scalars(reader, rows, max_level)?;
                (ColumnData::Integer(values), levels)
            }
            (Kind::Float, ColumnReader::DoubleColumnReader(reader)) => {
                let (values, levels) = read_scalars(reader, rows, max_level)?;
                (ColumnData::Float(values), levels)
            }
            (Kind::Text | Kind::Label | Kind::Json, ColumnReader::ByteArrayColumnReader(reader)) => {
                let (values, levels) = read_present(reader, rows)?;
                let levels = (max_level > 0).then_some(levels);
                (pack_texts(&values, levels.as_deref(), text_bytes)?, levels)
            }
            (Kind::Key, ColumnReader::FixedLenByteArrayColumnReader(reader)) => {
                let (values, levels) = read_present(reader, rows)?;
                read_keys(values.iter().map(|value| value.data()), levels, max_level)?
            }
            (Kind::Key, ColumnReader::ByteArrayColumnReader(reader)) => {
                let (values, levels) = read_present(reader, rows)?;
                read_keys(values.iter().map(ByteArray::data), levels, max_level)?
            }
            (Kind::List, ColumnReader::DoubleColumnReader(reader)) => {
                (read_lists(reader, rows, max_level, self.has_optional_elements)?, None)
            }
            _ => return Err(wrong_type()),
        };
        Ok(Values { levels, data })
    }
}

type Scalars<T> = (Vec<T>, Option<Vec<i16>>);

/// Returns the contiguous present values, and the definition levels of all rows.
fn read_present<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Parquet<(Vec<T::T>, Vec<i16>)> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    if read == rows { Ok((values, levels)) } else { Err(too_few(rows, read)) }
}

/// Returns one value per row, with a placeholder where the definition level is 0.
fn read_scalars<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize, max_level: i16) -> Parquet<Scalars<T::T>> {
    let (mut values, levels) = read_present(reader, rows)?;
    if max_level == 0 {
        return Ok((values, None));
    }
    spread_values(&mut values, &levels);
    Ok((values, Some(levels)))
}

fn read_keys<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    levels: Vec<i16>,
    max_level: i16,
) -> Parquet<(ColumnData, Option<Vec<i16>>)> {
    let key = |bytes: &[u8]| {
        let wrong = || ParquetError::General(format!("a key has {} bytes instead of {KEY_BYTES}", bytes.len()));
        bytes.try_into().map(Key).map_err(|_| wrong())
    };
    let mut keys = values.map(key).collect::<Parquet<Vec<Key>>>()?;
    if max_level == 0 {
        return Ok((ColumnData::Key(keys), None));
    }
    spread_values(&mut keys, &levels);
    Ok((ColumnData::Key(keys), Some(levels)))
}

fn pack_texts(values: &[ByteArray], levels: Option<&[i16]>, text_bytes: &AtomicUsize) -> Parquet<ColumnData> {
    let length: usize = values.iter().map(ByteArray::len).sum();
    let text_bytes = text_bytes.fetch_add(length, Relaxed) + length;
    let longest = values.iter().map(ByteArray::len).max().unwrap_or(0);
    if longest > MAX_TEXT_BYTES || text_bytes > MAX_BATCH_TEXT_BYTES {
        return Err(ParquetError::General(format!("a text of {longest} bytes exceeds the limit")));
    }
    let mut text = Vec::with_capacity(length);
    let mut ends = Vec::with_capacity(levels.map_or(values.len(), <[i16]>::len));
    match levels {
        None => ends.extend(values.iter().map(|value| {
            text.extend_from_slice(value.data());
            text.len()
        })),
        Some(levels) => {
            let mut values = values.iter();
            for level in levels {
                if *level == 1 {
                    let value = values.next().ok_or_else(|| too_few(levels.len(), ends.len()))?;
                    text.extend_from_slice(value.data());
                }
                ends.push(text.len());
            }
        }
    }
    let not_text = || ParquetError::General("a text is not UTF-8".to_owned());
    // For speed, the texts of all rows are validated together; then characters split between rows are detected.
    let text = String::from_utf8(text).map_err(|_| not_text())?;
    if ends.iter().any(|end| !text.is_char_boundary(*end)) {
        return Err(not_text());
    }
    Ok(ColumnData::Text { ends, text })
}

/// Moves contiguous values to the rows whose level is 1.
fn spread_values<T: Default>(values: &mut Vec<T>, levels: &[i16]) {
    let mut from = values.len();
    values.resize_with(levels.len(), T::default);
    for to in (0..levels.len()).rev() {
        if from > to {
            return;
        }
        if levels[to] == 1 {
            from -= 1;
            values.swap(from, to);
        }
    }
}

fn read_lists(
    reader: &mut ColumnReaderImpl<parquet::data_type::DoubleType>,
    rows: usize,
    max_level: i16,
    has_optional_elements: bool,
) -> Parquet<ColumnData> {
    let (mut values, mut levels, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
    let (read, _, _) = reader.read_records(rows, Some(&mut levels), Some(&mut repeats), &mut values)?;
    if read != rows || repeats.len() != levels.len() {
        return Err(too_few(rows, read));
    }
    let mut ends = Vec::with_capacity(rows);
    let mut end = 0;
    for (index, (level, repeat)) in levels.iter().zip(&repeats).enumerate() {
        if *repeat == 0 && index > 0 {
            ends.push(end);
        }
        if *level == max_level {
            end += 1;
        } else if has_optional_elements && *level == max_level - 1 {
            return Err(ParquetError::General("a list contains a missing value".to_owned()));
        }
    }
    if rows > 0 {
        ends.push(end);
    }
    if ends.len() != rows || end != values.len() {
        return Err(too_few(rows, ends.len()));
    }
    Ok(ColumnData::List { ends, values })
}

fn too_few(rows: usize, read: usize) -> ParquetError {
    ParquetError::General(format!("a column has only {read} of {rows} rows"))
}
