//! Hashes of whole files.

use crate::error::{IoContext, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The hash of a file's content.
pub(super) fn hash_file(path: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).context("opening", path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).context("reading", path)? {
            0 => return Ok(hasher.finalize()),
            bytes => hasher.write_all(&buffer[..bytes]).context("hashing", path)?,
        }
    }
}
