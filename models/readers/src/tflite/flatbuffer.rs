//! Reads tables and vectors of a flatbuffer, and checks every offset.
//! A table starts with the distance back to its field list. Each entry of the list is the position of a field in the
//! table, or 0 for the default. Nested vectors and tables are found by forward distances. A hostile file can refer to
//! one vector a million times, so the bytes read are counted against a budget.

use std::cell::Cell;
use std::ops::Range;

pub(super) type Read<T> = Result<T, String>;

pub(super) struct Buffer<'a> {
    bytes: &'a [u8],
    budget: Cell<usize>,
}

impl<'a> Buffer<'a> {
    /// Creates a reader whose budget is a multiple of the file size, because several tables may share one vector.
    pub(super) fn new(bytes: &'a [u8]) -> Buffer<'a> {
        Buffer { bytes, budget: Cell::new(bytes.len().saturating_mul(4).saturating_add(1 << 16)) }
    }

    pub(super) fn root_table(&self, identifier: &[u8; 4]) -> Read<FlatTable<'_>> {
        if self.bytes.get(4..8) != Some(identifier) {
            return Err(format!(
                "the file does not contain `{}` at byte 4; is it a TFLite model?",
                String::from_utf8_lossy(identifier)
            ));
        }
        self.parse_table(self.follow_offset(0)?)
    }

    fn take_bytes<const N: usize>(&self, at: usize) -> Read<[u8; N]> {
        let end = at.checked_add(N);
        let found = end.and_then(|end| self.bytes.get(at..end)).and_then(|bytes| bytes.try_into().ok());
        found.ok_or_else(|| format!("offset {at} lies outside of the {} bytes of the file", self.bytes.len()))
    }

    fn follow_offset(&self, at: usize) -> Read<usize> {
        let distance = u32::from_le_bytes(self.take_bytes(at)?) as usize;
        at.checked_add(distance).filter(|&to| to < self.bytes.len()).ok_or_else(|| {
            format!(
                "offset {at} points {distance} bytes forward, outside of the {} bytes of the file",
                self.bytes.len()
            )
        })
    }

    fn parse_table(&self, at: usize) -> Read<FlatTable<'_>> {
        let back = i64::from(i32::from_le_bytes(self.take_bytes(at)?));
        let fields = i64::try_from(at).ok().and_then(|at| usize::try_from(at - back).ok());
        let fields = fields.ok_or_else(|| format!("the fields of the table at {at} lie outside of the file"))?;
        let length = u16::from_le_bytes(self.take_bytes(fields)?) as usize;
        Ok(FlatTable { buffer: self, at, fields, count: length.saturating_sub(4) / 2 })
    }

    fn vector_range(&self, at: usize, element_bytes: usize) -> Read<Range<usize>> {
        let count = u32::from_le_bytes(self.take_bytes(at)?) as usize;
        let start = at.checked_add(4).expect("four bytes were read here");
        let length = count.checked_mul(element_bytes);
        let end = length.and_then(|length| start.checked_add(length)).filter(|&end| end <= self.bytes.len());
        let end =
            end.ok_or_else(|| format!("the vector at {at} claims {count} elements, more than the file can contain"))?;
        Ok(start..end)
    }

    fn spend_budget(&self, range: &Range<usize>) -> Read<()> {
        match self.budget.get().checked_sub(range.len()) {
            Some(left) => {
                self.budget.set(left);
                Ok(())
            }
            None => Err("too many parts of the file overlap".to_owned()),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct FlatTable<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    fields: usize,
    count: usize,
}

impl<'a> FlatTable<'a> {
    fn field_offset(&self, number: usize) -> Read<Option<usize>> {
        if number >= self.count {
            return Ok(None);
        }
        let entry = u16::from_le_bytes(self.buffer.take_bytes(self.fields + 4 + 2 * number)?) as usize;
        Ok(if entry == 0 { None } else { Some(self.at + entry) })
    }

    fn read_scalar<const N: usize, T>(&self, number: usize, default: T, decode: fn([u8; N]) -> T) -> Read<T> {
        match self.field_offset(number)? {
            Some(at) => Ok(decode(self.buffer.take_bytes(at)?)),
            None => Ok(default),
        }
    }

    pub(super) fn bool(&self, number: usize) -> Read<bool> {
        self.read_scalar(number, false, |[byte]| byte != 0)
    }

    pub(super) fn i8(&self, number: usize, default: i8) -> Read<i8> {
        self.read_scalar(number, default, i8::from_le_bytes)
    }

    pub(super) fn i32(&self, number: usize, default: i32) -> Read<i32> {
        self.read_scalar(number, default, i32::from_le_bytes)
    }

    pub(super) fn u32(&self, number: usize) -> Read<u32> {
        self.read_scalar(number, 0, u32::from_le_bytes)
    }

    pub(super) fn u64(&self, number: usize) -> Read<u64> {
        self.read_scalar(number, 0, u64::from_le_bytes)
    }

    pub(super) fn f32(&self, number: usize) -> Read<f32> {
        self.read_scalar(number, 0.0, f32::from_le_bytes)
    }

    pub(super) fn table(&self, number: usize) -> Read<Option<FlatTable<'a>>> {
        self.field_offset(number)?.map(|at| self.buffer.parse_table(self.buffer.follow_offset(at)?)).transpose()
    }

    pub(super) fn tables(&self, number: usize) -> Read<Vec<FlatTable<'a>>> {
        let buffer = self.buffer;
        let range = self.element_range(number, 4)?.unwrap_or(0..0);
        buffer.spend_budget(&range)?;
        range.step_by(4).map(|at| buffer.parse_table(buffer.follow_offset(at)?)).collect()
    }

    pub(super) fn byte_range(&self, number: usize) -> Read<Option<Range<usize>>> {
        self.element_range(number, 1)
    }

    pub(super) fn text(&self, number: usize) -> Read<String> {
        let range = self.element_range(number, 1)?.unwrap_or(0..0);
        self.buffer.spend_budget(&range)?;
        Ok(String::from_utf8_lossy(&self.buffer.bytes[range]).into_owned())
    }

    pub(super) fn i32s(&self, number: usize) -> Read<Vec<i32>> {
        self.read_list(number, i32::from_le_bytes)
    }

    pub(super) fn u16s(&self, number: usize) -> Read<Vec<i32>> {
        self.read_list(number, |bytes| u16::from_le_bytes(bytes).into())
    }

    pub(super) fn u8s(&self, number: usize) -> Read<Vec<i32>> {
        self.read_list(number, |[byte]| byte.into())
    }

    pub(super) fn i64s(&self, number: usize) -> Read<Vec<i64>> {
        self.read_list(number, i64::from_le_bytes)
    }

    pub(super) fn f32s(&self, number: usize) -> Read<Vec<f32>> {
        self.read_list(number, f32::from_le_bytes)
    }

    fn element_range(&self, number: usize, element_bytes: usize) -> Read<Option<Range<usize>>> {
        self.field_offset(number)?
            .map(|at| self.buffer.vector_range(self.buffer.follow_offset(at)?, element_bytes))
            .transpose()
    }

    fn read_list<const N: usize, T>(&self, number: usize, decode: fn([u8; N]) -> T) -> Read<Vec<T>> {
        let range = self.element_range(number, N)?.unwrap_or(0..0);
        self.buffer.spend_budget(&range)?;
        let elements = self.buffer.bytes[range].chunks_exact(N);
        Ok(elements.map(|bytes| decode(bytes.try_into().expect("chunks have this size"))).collect())
    }
}
