//! What lies beside this program, and in the user's cache.

use predictor::{Error, Result, published};
use std::path::{Path, PathBuf};

/// Returns the predictor that came with this program, for a device where one is named.
pub fn shipped_predictor(device: Option<&str>, is_described: bool) -> Result<PathBuf> {
    published::find(&program()?, device, is_described)
}

/// Returns all predictors that came with this program.
pub fn shipped_predictors() -> Result<Vec<PathBuf>> {
    published::all(&program()?)
}

fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    program.map_err(|error| Error::io("find", Path::new("oppredict"), error))
}

/// Returns the program `opcollect` beside this one, else the first on the search path.
pub fn collector() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("opcollect"));
    beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("opcollect"))
}

/// Returns the user's cache; None where the environment names neither a cache nor a home.
pub fn cache_folder() -> Option<PathBuf> {
    published::cache_folder(|name| std::env::var_os(name))
}
