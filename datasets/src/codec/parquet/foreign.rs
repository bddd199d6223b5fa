//! Parquet files of other programs, with flat columns of numbers and texts.

use super::codecs::check_codecs;
use super::file::PartFile;
use super::guard::catch_panics;
use super::pages::check_pages;
use crate::error::{Error, Result};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use std::collections::HashMap;
use std::path::Path;

const MAX_ROWS: usize = 1 << 26;

/// A column of a foreign file.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignColumn {
    /// Name of the column.
    pub name: String,
    /// Values of the column, one per row.
    pub values: ForeignValues,
}

/// The values of a foreign column.
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignValues {
    /// Numbers; NaN where the value is missing.
    Numbers(Vec<f64>),
    /// Texts, stored as indices into the distinct texts; a missing text is empty.
    Words {
        /// The distinct texts in order of appearance.
        words: Vec<String>,
        /// For each row, the index of its text in `words`.
        codes: Vec<u32>,
    },
}

type Parquet<T> = parquet::errors::Result<T>;

/// Reads all columns of a Parquet file whose columns are numbers or texts.
pub fn read_columns(path: &Path) -> Result<Vec<ForeignColumn>> {
    let file = PartFile::open(path)?;
    file.check_frame(path)?;
    let reader = catch_panics(path, || SerializedFileReader::new(file.clone()))?;
    let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(usize::MAX);
    if rows > MAX_ROWS {
        return Err(Error::damaged(
            path,
            format!("the file has more than {MAX_ROWS} rows; split it into several files"),
        ));
    }
    check_codecs(path, reader.metadata())?;
    let mut columns = Vec::new();
    let leaves = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    for (index, leaf) in leaves.iter().enumerate() {
        let name = leaf.path().string();
        if leaf.max_rep_level() > 0 || leaf.max_def_level() > 1 {
            return Err(Error::damaged(
                path,
                format!("the column `{name}` is nested; only columns of numbers and texts are supported"),
            ));
        }
        let mut column = GrowingColumn::Unknown;
        for group in 0..reader.num_row_groups() {
            catch_panics(path, || {
                let group = reader.get_row_group(group)?;
                check_pages(&file, group.metadata().column(index))?;
                column.read_group(group.as_ref(), index, leaf)
            })?;
        }
        columns.push(ForeignColumn { name, values: column.finish() });
    }
    Ok(columns)
}

enum GrowingColumn {
    Unknown,
    Numbers(Vec<f64>),
    Words { codes: Vec<u32>, places: HashMap<Vec<u8>, u32>, words: Vec<String> },
}

impl GrowingColumn {
    fn read_group(&mut self, group: &dyn RowGroupReader, index: usize, leaf: &ColumnDescriptor) -> Parquet<()> {
        let rows = usize::try_from(group.metadata().num_rows())?;
        let level = leaf.max_def_level();
        match group.get_column_reader(index)? {
            ColumnReader::Int32ColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| f64::from(*one))
            }
            ColumnReader::Int64ColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| *one as f64)
            }
            ColumnReader::FloatColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| f64::from(*one))
            }
            ColumnReader::DoubleColumnReader(mut reader) => self.read_numbers(&mut reader, rows, level, |one| *one),
            ColumnReader::BoolColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| f64::from(u8::from(*one)))
            }
            ColumnReader::ByteArrayColumnReader(mut reader) => self.read_texts(&mut reader, rows, level),
            _ => Err(ParquetError::General(format!("the column `{}` contains neither numbers nor texts", leaf.name()))),
        }
    }

    fn read_numbers<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        level: i16,
        number: impl Fn(&T::T) -> f64,
    ) -> Parquet<()> {
        if matches!(self, GrowingColumn::Unknown) {
            *self = GrowingColumn::Numbers(Vec::new());
        }
        let GrowingColumn::Numbers(all) = self else { return Err(type_change_error()) };
        let (values, levels) = read_present(reader, rows)?;
        let mut values = values.iter().map(number);
        match level {
            0 => all.extend(values),
            _ => all.extend(
                levels.iter().map(|one| if *one == level { values.next().unwrap_or(f64::NAN) } else { f64::NAN }),
            ),
        }
        Ok(())
    }

    fn read_texts(
        &mut self,
        reader: &mut ColumnReaderImpl<parquet::data_type::ByteArrayType>,
        rows: usize,
        level: i16,
    ) -> Parquet<()> {
        if matches!(self, GrowingColumn::Unknown) {
            *self = GrowingColumn::Words { codes: Vec::new(), places: HashMap::new(), words: Vec::new() };
        }
        let GrowingColumn::Words { codes, places, words } = self else { return Err(type_change_error()) };
        let (values, levels) = read_present(reader, rows)?;
        let mut code = |bytes: &[u8]| -> Parquet<u32> {
            if let Some(code) = places.get(bytes) {
                return Ok(*code);
            }
            let word =
                std::str::from_utf8(bytes).map_err(|_| ParquetError::General("a text is not UTF-8".to_owned()))?;
            let code = words.len() as u32;
            words.push(word.to_owned());
            places.insert(bytes.to_vec(), code);
            Ok(code)
        };
        let mut values = values.iter().map(ByteArray::data);
        for row in 0..rows {
            let is_present = level == 0 || levels.get(row) == Some(&level);
            let bytes = if is_present { values.next().unwrap_or_default() } else { &[] };
            codes.push(code(bytes)?);
        }
        Ok(())
    }

    fn finish(self) -> ForeignValues {
        match self {
            GrowingColumn::Unknown => ForeignValues::Numbers(Vec::new()),
            GrowingColumn::Numbers(numbers) => ForeignValues::Numbers(numbers),
            GrowingColumn::Words { codes, words, .. } => ForeignValues::Words { words, codes },
        }
    }
}

fn type_change_error() -> ParquetError {
    ParquetError::General("a column changes its type".to_owned())
}

fn read_present<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Parquet<(Vec<T::T>, Vec<i16>)> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (more, _, _) = reader.read_records(rows - read, Some(&mut levels), None, &mut values)?;
        if more == 0 {
            return Err(ParquetError::General(format!("a column has only {read} of {rows} rows")));
        }
        read += more;
    }
    Ok((values, levels))
}
