//! Wraps the Parquet library: its errors and panics become ours.

use crate::error::{Error, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread becomes an error, so that the panic message is suppressed.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a read operation and converts panics to errors.
///
/// Damaged files can make the library panic, because it asserts invariants of the format. Its state may be inconsistent
/// afterwards, so callers drop the reader after an error.
pub(super) fn guard<T>(path: &Path, read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let problem = match quietly(read) {
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

/// Catches panics without printing their message.
fn quietly<T>(read: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let told = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                told(info);
            }
        }));
    });
    let before = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(before);
    result
}
