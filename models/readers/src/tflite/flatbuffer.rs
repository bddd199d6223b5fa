//! Tables and vectors of a flatbuffer, every offset checked.
//!
//! A table begins with the distance back to its list of fields; each entry of the list says how far into the table a
//! field stands, or 0 where it has its default. Vectors and tables inside of a table are reached by distances forward.
//! Nothing stops a hostile file from pointing at one vector a million times, so what is read is counted.

use std::cell::Cell;
use std::ops::Range;

/// Why a file is refused, in words.
pub(super) type Read<T> = Result<T, String>;

/// A file being read.
pub(super) struct Buffer<'a> {
    bytes: &'a [u8],
    /// Bytes of vectors that may still be read.
    budget: Cell<usize>,
}

impl<'a> Buffer<'a> {
    /// A file may be read a few times over: writers share equal vectors.
    pub(super) fn new(bytes: &'a [u8]) -> Buffer<'a> {
        Buffer { bytes, budget: Cell::new(bytes.len().saturating_mul(4).saturating_add(1 << 16)) }
    }

    /// The outermost table, behind the identifier of the format.
    pub(super) fn root(&self, identifier: &[u8; 4]) -> Read<FlatTable<'_>> {
        if self.bytes.get(4..8) != Some(identifier) {
            return Err(format!(
                "it does not have `{}` at its fifth byte; is it a TFLite model?",
                String::from_utf8_lossy(identifier)
            ));
        }
        self.table(self.forward(0)?)
    }

    fn take<const N: usize>(&self, at: usize) -> Read<[u8; N]> {
        let end = at.checked_add(N);
        let found = end.and_then(|end| self.bytes.get(at..end)).and_then(|bytes| bytes.try_into().ok());
        found.ok_or_else(|| format!("offset {at} is outside of its {} bytes", self.bytes.len()))
    }

    /// The place a distance points to.
    fn forward(&self, at: usize) -> Read<usize> {
        let distance = u32::from_le_bytes(self.take(at)?) as usize;
        at.checked_add(distance)
            .filter(|&to| to < self.bytes.len())
            .ok_or_else(|| format!("offset {at} points {distance} bytes on, outside of its {} bytes", self.bytes.len()))
    }

    fn table(&self, at: usize) -> Read<FlatTable<'_>> {
        let back = i64::from(i32::from_le_bytes(self.take(at)?));
        let fields = i64::try_from(at).ok().and_then(|at| usize::try_from(at - back).ok());
        let fields = fields.ok_or_else(|| format!("the table at {at} has its fields outside of the file"))?;
        let length = u16::from_le_bytes(self.take(fields)?) as usize;
        Ok(FlatTable { buffer: self, at, fields, count: length.saturating_sub(4) / 2 })
    }

    /// Where the elements of a vector lie.
    fn vector(&self, at: usize, element_bytes: usize) -> Read<Range<usize>> {
        let count = u32::from_le_bytes(self.take(at)?) as usize;
        let start = at.checked_add(4).expect("four bytes were read here");
        let length = count.checked_mul(element_bytes);
        let end = length.and_then(|length| start.checked_add(length)).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| format!("the vector at {at} has {count} elements, more than the file can hold"))?;
        Ok(start..end)
    }

    /// Pays for reading a vector.
    fn spend(&self, range: &Range<usize>) -> Read<()> {
        match self.budget.get().checked_sub(range.len()) {
            Some(left) => {
                self.budget.set(left);
                Ok(())
            }
            None => Err("its parts overlap: the same bytes are used again and again".to_owned()),
        }
    }
}

/// One table.
#[derive(Clone, Copy)]
pub(super) struct FlatTable<'a> {
    buffer: &'a Buffer<'a>,
    at: usize,
    fields: usize,
    count: usize,
}

impl<'a> FlatTable<'a> {
    /// Where a field stands, if it is given.
    fn field(&self, number: usize) -> Read<Option<usize>> {
        if number >= self.count {
            return Ok(None);
        }
        let entry = u16::from_le_bytes(self.buffer.take(self.fields + 4 + 2 * number)?) as usize;
        Ok(if entry == 0 { None } else { Some(self.at + entry) })
    }

    fn scalar<const N: usize, T>(&self, number: usize, default: T, decode: fn([u8; N]) -> T) -> Read<T> {
        match self.field(number)? {
            Some(at) => Ok(decode(self.buffer.take(at)?)),
            None => Ok(default),
        }
    }

    pub(super) fn bool(&self, number: usize) -> Read<bool> {
        self.scalar(number, false, |[byte]| byte != 0)
    }

    pub(super) fn i8(&self, number: usize, default: i8) -> Read<i8> {
        self.scalar(number, default, i8::from_le_bytes)
    }

    pub(super) fn i32(&self, number: usize, default: i32) -> Read<i32> {
        self.scalar(number, default, i32::from_le_bytes)
    }

    pub(super) fn u32(&self, number: usize) -> Read<u32> {
        self.scalar(number, 0, u32::from_le_bytes)
    }

    pub(super) fn u64(&self, number: usize) -> Read<u64> {
        self.scalar(number, 0, u64::from_le_bytes)
    }

    pub(super) fn f32(&self, number: usize) -> Read<f32> {
        self.scalar(number, 0.0, f32::from_le_bytes)
    }

    pub(super) fn table(&self, number: usize) -> Read<Option<FlatTable<'a>>> {
        self.field(number)?.map(|at| self.buffer.table(self.buffer.forward(at)?)).transpose()
    }

    /// The tables of a vector of tables.
    pub(super) fn tables(&self, number: usize) -> Read<Vec<FlatTable<'a>>> {
        let buffer = self.buffer;
        let range = self.range(number, 4)?.unwrap_or(0..0);
        buffer.spend(&range)?;
        range.step_by(4).map(|at| buffer.table(buffer.forward(at)?)).collect()
    }

    /// Where the bytes of a vector of bytes lie; they are not read.
    pub(super) fn bytes(&self, number: usize) -> Read<Option<Range<usize>>> {
        self.range(number, 1)
    }

    pub(super) fn text(&self, number: usize) -> Read<String> {
        let range = self.range(number, 1)?.unwrap_or(0..0);
        self.buffer.spend(&range)?;
        Ok(String::from_utf8_lossy(&self.buffer.bytes[range]).into_owned())
    }

    pub(super) fn i32s(&self, number: usize) -> Read<Vec<i32>> {
        self.list(number, i32::from_le_bytes)
    }

    /// Numbers of 16 bits as wider ones.
    pub(super) fn u16s(&self, number: usize) -> Read<Vec<i32>> {
        self.list(number, |bytes| u16::from_le_bytes(bytes).into())
    }

    /// Numbers of 8 bits as wider ones.
    pub(super) fn u8s(&self, number: usize) -> Read<Vec<i32>> {
        self.list(number, |[byte]| byte.into())
    }

    pub(super) fn i64s(&self, number: usize) -> Read<Vec<i64>> {
        self.list(number, i64::from_le_bytes)
    }

    pub(super) fn f32s(&self, number: usize) -> Read<Vec<f32>> {
        self.list(number, f32::from_le_bytes)
    }

    fn range(&self, number: usize, element_bytes: usize) -> Read<Option<Range<usize>>> {
        self.field(number)?.map(|at| self.buffer.vector(self.buffer.forward(at)?, element_bytes)).transpose()
    }

    fn list<const N: usize, T>(&self, number: usize, decode: fn([u8; N]) -> T) -> Read<Vec<T>> {
        let range = self.range(number, N)?.unwrap_or(0..0);
        self.buffer.spend(&range)?;
        let elements = self.buffer.bytes[range].chunks_exact(N);
        Ok(elements.map(|bytes| decode(bytes.try_into().expect("chunks have this size"))).collect())
    }
}
