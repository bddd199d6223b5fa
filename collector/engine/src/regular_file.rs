//! Reading of files from the command line. Pipes and devices are refused, because reading them may not end.

use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a regular file of at most `most` bytes.
pub fn read_regular_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    // Opening a pipe without a writer would block.
    if !path.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("the file is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a regular text file of at most `most` bytes.
pub fn read_regular_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_regular_file(path, most)?).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_folders_and_large_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").expect("it can be written");
        assert_eq!(read_regular_text(&path, 5).expect("it fits"), "12345");
        let refused = |path: &Path, most| read_regular_file(path, most).expect_err("it is refused").to_string();
        assert_eq!(refused(&path, 4), "the file is larger than 4 bytes");
        assert_eq!(refused(Path::new("/dev/zero"), 4), "not a regular file");
        assert_eq!(refused(folder.path(), 4), "not a regular file");
    }
}
