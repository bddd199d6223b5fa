//! Refuses columns whose compression has no decoder with a limit of memory.
//!
//! Decoders of Snappy, LZ4 blocks and zstd write into a buffer of the size that the page states, which is checked. Those
//! of gzip, of Brotli and of LZ4 in the frames of Hadoop extend their buffer as long as the data lasts.

use crate::error::{Error, Result};
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use std::path::Path;

/// Returns an error that names the codec, because the library's error reads like that of a damaged file.
pub(super) fn check_codecs(path: &Path, metadata: &ParquetMetaData) -> Result<()> {
    let mut columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let Some((name, codec)) = columns.find_map(|column| Some((column.column_path(), unsupported_codec(column)?)))
    else {
        return Ok(());
    };
    Err(Error::Damaged {
        file: path.to_owned(),
        problem: format!("the column `{}` is compressed with {codec}, which is not supported", name.string()),
        hint: Some("write the file again with Snappy (the default of pandas and pyarrow), LZ4 or zstd".to_owned()),
    })
}

fn unsupported_codec(column: &ColumnChunkMetaData) -> Option<&'static str> {
    match column.compression() {
        Compression::GZIP(_) => Some("gzip"),
        Compression::BROTLI(_) => Some("Brotli"),
        Compression::LZO => Some("LZO"),
        Compression::LZ4 => Some("LZ4 in the frames of Hadoop"),
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) | Compression::LZ4_RAW => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::parquet::{ForeignColumn, ForeignValues, read_columns};
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    const ROWS: usize = 1000;

    fn write_file(path: &Path, compression: Compression) {
        let schema = parse_message_type("message table { required double ms; required binary device (UTF8); }");
        let properties = WriterProperties::builder().set_compression(compression).build();
        let file = std::fs::File::create(path).expect("a file");
        let schema = Arc::new(schema.expect("a schema"));
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
        let mut group = writer.next_row_group().expect("a group");
        let mut column = group.next_column().expect("a column").expect("the first");
        let numbers: Vec<f64> = (0..ROWS).map(|row| row as f64).collect();
        column.typed::<DoubleType>().write_batch(&numbers, None, None).expect("numbers");
        column.close().expect("the first column");
        let mut column = group.next_column().expect("a column").expect("the second");
        let words = vec![ByteArray::from("a GPU"); ROWS];
        column.typed::<ByteArrayType>().write_batch(&words, None, None).expect("words");
        column.close().expect("the second column");
        group.close().expect("the group");
        writer.close().expect("the file");
    }

    #[test]
    fn files_are_read_whatever_compressed_them() {
        let folder = tempfile::tempdir().expect("a folder");
        for compression in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::LZ4_RAW,
            Compression::ZSTD(parquet::basic::ZstdLevel::default()),
        ] {
            let path = folder.path().join("table.parquet");
            write_file(&path, compression);
            let columns = read_columns(&path).unwrap_or_else(|error| panic!("{compression}: {error}"));
            let numbers = ForeignValues::Numbers((0..ROWS).map(|row| row as f64).collect());
            let words = ForeignValues::Words { words: vec!["a GPU".to_owned()], codes: vec![0; ROWS] };
            let wanted = [("ms", numbers), ("device", words)];
            let wanted = wanted.map(|(name, values)| ForeignColumn { name: name.to_owned(), values });
            assert_eq!(columns, wanted, "{compression}");
        }
    }

    #[test]
    fn a_codec_without_a_bounded_decoder_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("table.parquet");
        write_file(&path, Compression::SNAPPY);
        // The codec is field 4 of a column's metadata, in Thrift's compact form: 0x15, and twice the codec. The byte
        // before it ends the column's path.
        let mut bytes = std::fs::read(&path).expect("bytes");
        let snappy: Vec<usize> =
            (0..bytes.len() - 3).filter(|at| bytes[*at..].starts_with(b"ms\x15\x02")).map(|at| at + 3).collect();
        assert_eq!(snappy.len(), 1, "{snappy:?}");
        for (codec, name) in [(4, "gzip"), (6, "LZO"), (8, "Brotli"), (10, "LZ4 in the frames of Hadoop")] {
            bytes[snappy[0]] = codec;
            std::fs::write(&path, &bytes).expect("a file");
            let error = read_columns(&path).expect_err("no decoder").to_string();
            let wanted = format!("the column `ms` is compressed with {name}, which is not supported");
            assert!(error.contains(&wanted), "{error}");
            assert!(error.contains("hint: write the file again with Snappy"), "{error}");
        }
    }
}
