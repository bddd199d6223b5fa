//! Checks the page headers of a column before the Parquet library reads it. The library allocates the memory that a
//! header states. Headers are small structs in Thrift's compact encoding, so a short parser can reject implausible
//! sizes without decoding pages.

use super::file::PartFile;
use crate::limits::{MAX_CHUNK_VALUES, MAX_PAGE_BYTES};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;

const HEADER_WINDOWS: [usize; 2] = [256, 64 << 10];

/// Maximum nesting of a header; valid headers have three levels.
const MAX_DEPTH: usize = 8;

/// Rejects a column whose pages exceed the limits or lie outside of the file.
pub(super) fn check_pages(file: &PartFile, column: &ColumnChunkMetaData) -> Result<()> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let within = |offset: i64| u64::try_from(offset).ok().filter(|offset| *offset <= file.len);
    let (start, length) =
        within(start).zip(within(column.compressed_size())).ok_or_else(|| cut_off_error("a column"))?;
    let end = start.checked_add(length).filter(|end| *end <= file.len).ok_or_else(|| cut_off_error("a column"))?;
    let values = u64::try_from(column.num_values()).ok().filter(|values| *values <= MAX_CHUNK_VALUES);
    let mut values_left = values.ok_or_else(|| cut_off_error("a column"))?;
    let mut offset = start;
    while offset < end {
        let header = read_header(file, offset, end)?;
        values_left = values_left.checked_sub(header.data_values).ok_or_else(|| cut_off_error("a page"))?;
        let next = offset + header.header_bytes + header.compressed_bytes;
        if header.uncompressed_bytes > MAX_PAGE_BYTES || header.dictionary_values > MAX_PAGE_BYTES || next > end {
            return Err(cut_off_error("a page"));
        }
        offset = next;
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq)]
struct PageHeader {
    header_bytes: u64,
    compressed_bytes: u64,
    uncompressed_bytes: u64,
    data_values: u64,
    dictionary_values: u64,
}

fn read_header(file: &PartFile, offset: u64, end: u64) -> Result<PageHeader> {
    for window in HEADER_WINDOWS {
        let window = window.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let bytes = file.read_range(offset, window)?;
        if let Some(header) = parse_header(&bytes) {
            return Ok(header);
        }
    }
    Err(cut_off_error("a page header"))
}

fn cut_off_error(what: &str) -> ParquetError {
    ParquetError::General(format!("{what} is truncated or states an impossible size"))
}

/// Parses the header at the start of the bytes; None if the bytes are too short or invalid.
fn parse_header(bytes: &[u8]) -> Option<PageHeader> {
    let mut compact = Compact { bytes, position: 0 };
    let mut header = PageHeader::default();
    let mut last = 0;
    while let Some((id, kind)) = compact.read_field(&mut last)? {
        match (id, kind) {
            (2, Compact::I32) => header.uncompressed_bytes = compact.read_size()?,
            (3, Compact::I32) => header.compressed_bytes = compact.read_size()?,
            (5 | 8, Compact::STRUCT) => header.data_values = compact.read_value_count()?,
            (7, Compact::STRUCT) => header.dictionary_values = compact.read_value_count()?,
            _ => compact.skip_value(kind, MAX_DEPTH)?,
        }
    }
    header.header_bytes = compact.position as u64;
    Some(header)
}

struct Compact<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Compact<'_> {
    const I32: u8 = 5;
    const STRUCT: u8 = 12;

    fn read_byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn read_integer(&mut self) -> Option<i64> {
        let raw = self.read_varint()?;
        Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn read_size(&mut self) -> Option<u64> {
        i32::try_from(self.read_integer()?).ok().and_then(|size| u64::try_from(size).ok())
    }

    /// Reads the next field's number and type; `Some(None)` marks the end of the struct, None invalid bytes.
    fn read_field(&mut self, last: &mut i64) -> Option<Option<(i64, u8)>> {
        let head = self.read_byte()?;
        if head == 0 {
            return Some(None);
        }
        let id = match head >> 4 {
            0 => self.read_integer()?,
            delta => last.checked_add(i64::from(delta))?,
        };
        *last = id;
        Some(Some((id, head & 15)))
    }

    /// Reads the number of values, the first field of page header structs, and skips the other fields.
    fn read_value_count(&mut self) -> Option<u64> {
        let mut last = 0;
        let mut values = 0;
        while let Some((id, kind)) = self.read_field(&mut last)? {
            match (id, kind) {
                (1, Compact::I32) => values = self.read_size()?,
                _ => self.skip_value(kind, MAX_DEPTH)?,
            }
        }
        Some(values)
    }

    fn skip_value(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => Some(()),
            3 => self.read_byte().map(|_| ()),
            4..=6 => self.read_varint().map(|_| ()),
            7 => self.skip_bytes(8),
            8 => {
                let length = self.read_varint()?;
                self.skip_bytes(usize::try_from(length).ok()?)
            }
            9 | 10 => {
                let head = self.read_byte()?;
                let count = if head >> 4 == 15 { self.read_varint()? } else { u64::from(head >> 4) };
                // A bool takes one byte as a list element, but no byte as a field.
                let element = if matches!(head & 15, 1 | 2) { 3 } else { head & 15 };
                (0..count).try_for_each(|_| self.skip_value(element, depth))
            }
            12 => {
                let mut last = 0;
                while let Some((_, kind)) = self.read_field(&mut last)? {
                    self.skip_value(kind, depth)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn skip_bytes(&mut self, bytes: usize) -> Option<()> {
        self.position = self.position.checked_add(bytes).filter(|position| *position <= self.bytes.len())?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_page_header_tells_its_sizes() {
        // type = 0, uncompressed = 100, compressed = 60, then a data page of 7 values with three encodings.
        let bytes = [0x15, 0, 0x15, 200, 1, 0x15, 120, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 0xff];
        let expected = PageHeader {
            header_bytes: 18,
            compressed_bytes: 60,
            uncompressed_bytes: 100,
            data_values: 7,
            dictionary_values: 0,
        };
        assert_eq!(parse_header(&bytes), Some(expected));
        (0..18).for_each(|cut| assert_eq!(parse_header(&bytes[..cut]), None, "cut at {cut}"));
    }

    #[test]
    fn a_header_of_nothing_but_nesting_is_refused() {
        assert_eq!(parse_header(&[0x1c; 1000]), None);
    }

    #[test]
    fn a_negative_size_is_refused() {
        assert_eq!(parse_header(&[0x15, 0, 0x15, 1, 0]), None);
    }
}
