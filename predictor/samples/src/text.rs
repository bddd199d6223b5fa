//! Reads text files with a limit on their length.

use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::path::Path;

/// Reads a text file of at most `most` bytes; a longer file is an error.
pub fn read_bounded(path: &Path, most: u64) -> Result<String> {
    models::files::read_bounded_text(path, most).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            Error::table_error(path, format!("the file is larger than the limit of {} MiB", most >> 20))
        }
        _ => Error::io_error("read", path, error),
    })
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
