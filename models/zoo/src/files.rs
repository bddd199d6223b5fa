//! Reads text files of bounded size.

use models::error::{Error, Result};
use std::io::Read;
use std::path::Path;

pub(crate) fn text(path: &Path, limit: u64) -> Result<String> {
    let unreadable = |reason: String| Error::Unreadable { file: path.display().to_string(), reason };
    // Opening a pipe waits for its writer.
    if !path.metadata().map_err(|error| unreadable(error.to_string()))?.is_file() {
        return Err(unreadable("it is not a file".to_owned()));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    file.take(limit + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > limit {
        return Err(unreadable(format!("it has more than {limit} bytes")));
    }
    Ok(text)
}
