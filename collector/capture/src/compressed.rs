//! Files that may be compressed with gzip.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

const MAX_BYTES: u64 = 1 << 40;
const HEAD_BYTES: u64 = 4096;

/// Opens a file and returns its content, which is uncompressed if the file is compressed with gzip.
pub(crate) fn open_uncompressed(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let (head, rest) = peek_head(Box::new(File::open(path)?))?;
    let is_compressed = head.starts_with(&[0x1f, 0x8b]);
    let whole = Cursor::new(head).chain(rest);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(whole).take(MAX_BYTES)) } else { Box::new(whole) })
}

/// Reads the first bytes of an input. Returns them and the rest.
pub(crate) fn peek_head(mut input: Box<dyn Read>) -> std::io::Result<(Vec<u8>, Box<dyn Read>)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((head, input))
}
