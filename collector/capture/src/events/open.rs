//! Opening of trace files, with detection of format and compression.

use super::{Error, Event, Full, TraceContents, chrome, perfetto};
use crate::compressed::{open_uncompressed, peek_head};
use std::io::{Cursor, Read};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    Chrome,
    Perfetto,
}

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
