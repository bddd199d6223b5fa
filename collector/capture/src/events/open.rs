//! Opening of trace files, with detection of format and compression.

use super::{Error, Event, Full, TraceContents, chrome, perfetto};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    Chrome,
    Perfetto,
}

const MAX_BYTES: u64 = 1 << 40;
const HEAD_BYTES: u64 = 4096;

/// Opens a file and returns its format and its uncompressed content.
pub fn open_trace(path: &Path) -> Result<(TraceFormat, Box<dyn Read>), Error> {
    let opened = open_uncompressed(path).and_then(peek_head);
    let (head, rest) = opened.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let format = match head.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => TraceFormat::Chrome,
        Some(_) if head[0] == perfetto::FIRST_BYTE => TraceFormat::Perfetto,
        None => return Err(Error::Format { path: path.to_owned(), why: "the file is empty".to_owned() }),
        Some(_) => {
            let why = "the file starts neither like JSON nor like a Perfetto trace".to_owned();
            return Err(Error::Format { path: path.to_owned(), why });
        }
    };
    Ok((format, Box::new(Cursor::new(head).chain(rest))))
}

/// Opens a file and returns its content, which is uncompressed if the file is compressed with gzip.
pub(crate) fn open_uncompressed(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let (head, rest) = peek_head(Box::new(File::open(path)?))?;
    let is_compressed = head.starts_with(&[0x1f, 0x8b]);
    let whole = Cursor::new(head).chain(rest);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(whole).take(MAX_BYTES)) } else { Box::new(whole) })
}

fn peek_head(mut input: Box<dyn Read>) -> std::io::Result<(Vec<u8>, Box<dyn Read>)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((head, input))
}

pub fn read_from(
    path: &Path,
    format: TraceFormat,
    input: Box<dyn Read>,
    take: &mut dyn FnMut(Event<'_>) -> Result<(), Full>,
) -> Result<TraceContents, Error> {
    let read = match format {
        TraceFormat::Chrome => chrome::read_events(input, take),
        TraceFormat::Perfetto => perfetto::read_events(input, take),
    };
    let read = read.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    read.map_err(|Full(limit, what)| Error::Large { path: path.to_owned(), limit, what })
}
