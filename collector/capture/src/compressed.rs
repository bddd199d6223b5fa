//! Files that may be compressed with gzip.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{Cursor, ErrorKind, Read};
use std::path::Path;

const MAX_BYTES: u64 = 1 << 40;
const HEAD_BYTES: u64 = 4096;

/// A compressed file, which ends where it was cut off.
struct Cut<R>(R);

impl<R: Read> Read for Cut<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

/// Opens a file and returns its content, which is uncompressed if the file is compressed with gzip. A file that was cut
/// off yields the content before the cut, as an uncompressed one does.
pub(crate) fn open_uncompressed(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let (head, rest) = peek_head(Box::new(File::open(path)?))?;
    let is_compressed = head.starts_with(&[0x1f, 0x8b]);
    let whole = Cursor::new(head).chain(rest);
    Ok(if is_compressed { Box::new(Cut(MultiGzDecoder::new(whole)).take(MAX_BYTES)) } else { Box::new(whole) })
}

/// Reads the first bytes of an input. Returns them and the rest.
pub(crate) fn peek_head(mut input: Box<dyn Read>) -> std::io::Result<(Vec<u8>, Box<dyn Read>)> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((head, input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn a_file_that_was_cut_off_yields_what_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.json.gz");
        let text: String = (0..20_000).map(|number| format!("{number},")).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).expect("written bytes");
        let packed = encoder.finish().expect("packed bytes");
        for length in [packed.len(), packed.len() - 4, packed.len() / 2, 12] {
            std::fs::write(&path, &packed[..length]).expect("a file");
            let mut read = String::new();
            open_uncompressed(&path).expect("a file").read_to_string(&mut read).expect("text");
            assert!(text.starts_with(&read) && (length < packed.len() - 4 || read == text), "{length}: {}", read.len());
        }
        let mut damaged = packed.clone();
        damaged[100..200].fill(0);
        std::fs::write(&path, &damaged).expect("a file");
        assert!(open_uncompressed(&path).expect("a file").read_to_end(&mut Vec::new()).is_err());
    }
}
