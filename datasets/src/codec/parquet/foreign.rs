//! Parquet files of other programs, with flat columns of numbers and texts.

use super::codecs::check_codecs;
use super::file::PartFile;
use super::guard::catch_panics;
use super::pages::check_pages;
use crate::error::{Error, Result};
use parquet::basic::{ConvertedType, LogicalType, Type};
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
        let is_nested = leaf.max_rep_level() > 0 || leaf.max_def_level() > 1;
        if let Some(what) = is_nested.then(|| "nested".to_owned()).or_else(|| unsupported_type(leaf)) {
            let problem = format!("the column `{name}` is {what}; write it as integers, 64-bit floats or texts");
            return Err(Error::damaged(path, problem));
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

/// Returns the type of a column that contains neither plain numbers nor texts.
fn unsupported_type(leaf: &ColumnDescriptor) -> Option<String> {
    let is_decimal = matches!(leaf.logical_type_ref(), Some(LogicalType::Decimal(_)))
        || leaf.converted_type() == ConvertedType::DECIMAL;
    match leaf.physical_type() {
        Type::BYTE_ARRAY if is_decimal => Some("a decimal number of bytes".to_owned()),
        Type::FIXED_LEN_BYTE_ARRAY if is_decimal => Some("a decimal number of more than 18 digits".to_owned()),
        found @ (Type::FIXED_LEN_BYTE_ARRAY | Type::INT96) => Some(format!("of the type {found}")),
        _ => None,
    }
}

/// How the integers of a column represent numbers.
#[derive(Clone, Copy)]
struct Integers {
    /// Divisor of decimal numbers, a power of ten.
    divisor: f64,
    is_unsigned: bool,
}

impl Integers {
    fn from_leaf(leaf: &ColumnDescriptor) -> Integers {
        let scale = match leaf.logical_type_ref() {
            Some(LogicalType::Decimal(decimal)) => decimal.scale,
            _ if leaf.converted_type() == ConvertedType::DECIMAL => leaf.type_scale(),
            _ => 0,
        };
        let is_unsigned = matches!(
            leaf.converted_type(),
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
        );
        Integers { divisor: 10f64.powi(scale), is_unsigned }
    }

    fn number(self, signed: i64, unsigned: u64) -> f64 {
        (if self.is_unsigned { unsigned as f64 } else { signed as f64 }) / self.divisor
    }
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
        let integers = Integers::from_leaf(leaf);
        match group.get_column_reader(index)? {
            ColumnReader::Int32ColumnReader(mut reader) => self
                .read_numbers(&mut reader, rows, level, |one| integers.number(i64::from(*one), u64::from(*one as u32))),
            ColumnReader::Int64ColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| integers.number(*one, *one as u64))
            }
            ColumnReader::FloatColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| f64::from(*one))
            }
            ColumnReader::DoubleColumnReader(mut reader) => self.read_numbers(&mut reader, rows, level, |one| *one),
            ColumnReader::BoolColumnReader(mut reader) => {
                self.read_numbers(&mut reader, rows, level, |one| f64::from(u8::from(*one)))
            }
            ColumnReader::ByteArrayColumnReader(mut reader) => self.read_texts(&mut reader, rows, level),
            _ => Err(ParquetError::General(format!("the column `{}` has an unsupported type", leaf.name()))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    fn written<T: DataType>(column: &str, values: &[T::T]) -> Result<Vec<ForeignColumn>> {
        let schema = Arc::new(parse_message_type(&format!("message m {{ required {column}; }}")).expect(column));
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut writer =
            SerializedFileWriter::new(file.reopen().expect("a file"), schema, Arc::default()).expect(column);
        let mut group = writer.next_row_group().expect("a group");
        let mut of_column = group.next_column().expect("a column").expect("a column");
        of_column.typed::<T>().write_batch(values, None, None).expect("values");
        of_column.close().expect("a column");
        group.close().expect("a group");
        writer.close().expect("a file");
        read_columns(file.path())
    }

    fn numbers<T: DataType>(column: &str, values: &[T::T]) -> Vec<f64> {
        match written::<T>(column, values).expect(column).remove(0).values {
            ForeignValues::Numbers(numbers) => numbers,
            ForeignValues::Words { .. } => panic!("{column} is no text"),
        }
    }

    #[test]
    fn decimal_numbers_have_their_scale() {
        assert_eq!(numbers::<Int32Type>("int32 a (DECIMAL(9,1))", &[12345, -5, 0]), [1234.5, -0.5, 0.0]);
        assert_eq!(numbers::<Int64Type>("int64 a (DECIMAL(18,3))", &[1_500, i64::MIN]), [1.5, -9.223372036854776e15]);
        assert_eq!(numbers::<Int32Type>("int32 a", &[12345, -5]), [12345.0, -5.0]);
        assert_eq!(numbers::<Int32Type>("int32 a (UINT_32)", &[-1]), [4_294_967_295.0]);
        assert_eq!(numbers::<Int64Type>("int64 a (UINT_64)", &[-1]), [1.8446744073709552e19]);
    }

    #[test]
    fn other_decimal_numbers_are_refused() {
        for (column, expected) in [
            ("fixed_len_byte_array(16) a (DECIMAL(38,2))", "a decimal number of more than 18 digits"),
            ("binary a (DECIMAL(38,2))", "a decimal number of bytes"),
            ("int96 a", "of the type INT96"),
        ] {
            let schema = parse_message_type(&format!("message m {{ required {column}; }}")).expect(column);
            let columns = parquet::schema::types::SchemaDescriptor::new(Arc::new(schema));
            assert_eq!(unsupported_type(&columns.column(0)).as_deref(), Some(expected));
        }
    }
}
