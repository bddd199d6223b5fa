//! Reading of files of limited size.

use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a regular file of at most `most` bytes. Folders of other machines may contain pipes and devices, whose reading
/// may not end.
pub fn read_regular_file(path: &Path, most: u64) -> Result<Vec<u8>> {
    let found = path.metadata()?;
    // Opening a pipe without a writer would block. Reading a folder fails with its own error.
    if !found.is_file() && !found.is_dir() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    read_bounded(path, most)
}

/// Reads a regular text file of at most `most` bytes.
pub fn read_regular_text(path: &Path, most: u64) -> Result<String> {
    into_text(read_regular_file(path, most)?)
}

/// Reads a text of at most `most` bytes from a file or pipe that the user names.
pub fn read_bounded_text(path: &Path, most: u64) -> Result<String> {
    into_text(read_bounded(path, most)?)
}

fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("the file is larger than {most} bytes")));
    }
    Ok(bytes)
}

fn into_text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))
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
        let endless = read_bounded_text(Path::new("/dev/zero"), 4).expect_err("it does not end").to_string();
        assert_eq!(endless, "the file is larger than 4 bytes");
        assert!(refused(folder.path(), 4).contains("Is a directory"));
    }
}
