//! Reads text files of bounded size.

use models::error::{Error, Result};
use std::io::Read;
use std::path::Path;

/// Opens a regular file. Checks the file type before opening, because opening a pipe blocks until it has a writer.
pub(crate) fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    std::fs::File::open(path)
}

pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String> {
    let unreadable = |reason: String| Error::Unreadable { file: path.display().to_string(), reason };
    let file = open_regular(path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > limit {
        return Err(unreadable(format!("the file has more than {limit} bytes")));
    }
    Ok(text)
}
