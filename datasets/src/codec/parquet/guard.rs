//! The border to the Parquet library: its errors and panics become ours.

use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs a piece of reading.
///
/// Damaged files can make the library panic (it asserts what a sane file keeps); such a file is an error like any
/// other. What the piece had borrowed may be left inconsistent, so callers give up the file after an error.
pub(super) fn guard<T>(path: &Path, read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let problem = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its structure contradicts itself".to_owned(),
    };
    Err(Error::Damaged {
        file: path.to_owned(),
        problem,
        hint: Some("the file is damaged or not Parquet; copy it again from where it came".to_owned()),
    })
}
