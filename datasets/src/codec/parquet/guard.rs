//! Converts errors and panics of the Parquet library to errors of this crate.

use crate::error::{Error, Result};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Converts panics of the library, caused by damaged files, to errors. Callers must drop the reader after an error.
pub(super) fn catch_panics<T>(path: &Path, read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    let problem = match catch_silently(read) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the structure of the file is inconsistent".to_owned(),
    };
    Err(Error::Damaged {
        file: path.to_owned(),
        problem,
        hint: Some("the file is damaged or not Parquet; copy it from its source again".to_owned()),
    })
}

fn catch_silently<T>(read: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let previous_hook = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                previous_hook(info);
            }
        }));
    });
    let before = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_GUARDED.set(before);
    result
}
