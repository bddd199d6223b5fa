//! Reads text files of bounded size.

use models::error::{Error, Result};
use std::path::Path;

pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String> {
    models::files::read_regular_text(path, limit)
        .map_err(|error| Error::Unreadable { file: path.display().to_string(), reason: error.to_string() })
}
