//! An open Parquet file.

use crate::error::{Error, IoContext, Result};
use crate::limits::MAX_FOOTER_BYTES;
use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

type Parquet<T> = parquet::errors::Result<T>;

/// An open Parquet file. Each read names its file offset, so columns can be read independently and by several threads.
#[derive(Clone)]
pub(crate) struct PartFile {
    file: Arc<File>,
    pub(super) len: u64,
}

impl PartFile {
    pub(super) fn open(path: &Path) -> Result<PartFile> {
        let file = File::open(path).context("opening", path)?;
        let len = file.metadata().context("reading the size of", path)?.len();
        Ok(PartFile { file: Arc::new(file), len })
    }

    pub(super) fn check_frame(&self, path: &Path) -> Result<()> {
        let no_parquet = || Error::damaged(path, "the file is not Parquet or is truncated");
        if self.len < 12 {
            return Err(no_parquet());
        }
        let ends = self.read_range(0, 4).and_then(|head| Ok((head, self.read_range(self.len - 8, 8)?)));
        let (head, tail) = ends.map_err(|error| Error::damaged(path, error.to_string()))?;
        if &head[..] != b"PAR1" || &tail[4..] != b"PAR1" {
            return Err(no_parquet());
        }
        let footer_bytes = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if footer_bytes > self.len - 12 {
            return Err(no_parquet());
        }
        if footer_bytes > MAX_FOOTER_BYTES {
            return Err(Error::damaged(path, format!("the footer has {footer_bytes} bytes, more than the limit")));
        }
        Ok(())
    }

    pub(super) fn read_range(&self, start: u64, length: usize) -> Parquet<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF("an offset is beyond the end of the file".to_owned()));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

impl Length for PartFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for PartFile {
    type T = BufReader<Position>;

    fn get_read(&self, start: u64) -> Parquet<BufReader<Position>> {
        // The library parses only one short page header from each reader.
        Ok(BufReader::with_capacity(256, Position { file: Arc::clone(&self.file), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Parquet<Bytes> {
        self.read_range(start, length)
    }
}

pub(crate) struct Position {
    file: Arc<File>,
    offset: u64,
}

impl Read for Position {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
