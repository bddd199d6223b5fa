//! Reads text files with a limit on their length.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a text file of at most `most` bytes; a longer file is an error.
pub fn read_bounded(path: &Path, most: u64) -> Result<String> {
    let failed = |error| Error::io_error("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(Error::table_error(path, format!("the file is larger than the limit of {} MiB", most >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

/// Returns the name of a file without its folder, for titles and notes.
pub fn file_label(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("text");
        std::fs::write(&path, vec![b'a'; 1 << 20]).expect("written");
        assert_eq!(read_bounded(&path, 1 << 20).expect("as long as it may be").len(), 1 << 20);
        std::fs::write(&path, vec![b'a'; (1 << 20) + 1]).expect("written");
        let refused = read_bounded(&path, 1 << 20).expect_err("longer").to_string();
        assert!(refused.contains("larger than the limit of 1 MiB"), "{refused}");
    }
}
