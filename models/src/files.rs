//! Reading of files of limited size.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Opens a regular file. Folders of other machines may contain pipes and devices, whose reading may not end.
pub fn open_regular(path: &Path) -> Result<File> {
    let found = path.metadata()?;
    // Opening a pipe without a writer would block. Reading a folder fails with its own error.
    match found.is_file() || found.is_dir() {
        true => File::open(path),
        false => Err(Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Reads a regular file of at most `most` bytes.
pub fn read_regular(path: &Path, most: u64) -> Result<Vec<u8>> {
    read_at_most(open_regular(path)?, most)
}

/// Reads a regular text file of at most `most` bytes.
pub fn read_regular_text(path: &Path, most: u64) -> Result<String> {
    into_text(read_regular(path, most)?)
}

/// Reads at most `most` bytes of a file or pipe that the user names.
pub fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>> {
    read_at_most(File::open(path)?, most)
}

/// Reads a text of at most `most` bytes from a file or pipe that the user names.
pub fn read_bounded_text(path: &Path, most: u64) -> Result<String> {
    into_text(read_bounded(path, most)?)
}

fn read_at_most(file: File, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("the file is larger than {most} bytes"))),
        false => Ok(bytes),
    }
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
        let refused = |path: &Path, most| read_regular(path, most).expect_err("it is refused").to_string();
        assert_eq!(refused(&path, 4), "the file is larger than 4 bytes");
        assert_eq!(refused(Path::new("/dev/zero"), 4), "not a regular file");
        let endless = read_bounded_text(Path::new("/dev/zero"), 4).expect_err("it does not end").to_string();
        assert_eq!(endless, "the file is larger than 4 bytes");
        assert!(refused(folder.path(), 4).contains("Is a directory"));
    }
}
