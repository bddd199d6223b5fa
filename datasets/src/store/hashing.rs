//! Hashes of whole files.

use crate::error::{IoContext, Result};
use std::fs::File;
use std::path::Path;

pub(super) fn hash_file(path: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path).context("opening", path)?).context("reading", path)?;
    Ok(hasher.finalize())
}
