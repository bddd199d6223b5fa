//! Locates files next to this program, and the user's cache.

use predictor::{Error, Result, published};
use std::path::{Path, PathBuf};

/// Returns the given predictor file, else the built-in predictor for the device or the mapping, else that for CPUs.
pub fn predictor_file(given: Option<&Path>, device: Option<&str>, has_mapping: bool) -> Result<PathBuf> {
    given.map_or_else(|| published::find_predictor(&own_program()?, device, has_mapping), |file| Ok(file.to_owned()))
}

pub fn shipped_predictors() -> Result<Vec<PathBuf>> {
    published::list_predictors(&own_program()?)
}

fn own_program() -> Result<PathBuf> {
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    program.map_err(|error| Error::io_error("find", Path::new("oppredict"), error))
}

/// Returns the path of `opcollect` next to this program, else its bare name, for the search path.
pub fn find_collector() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("opcollect"));
    beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("opcollect"))
}

/// Returns the user's cache folder; None if the environment names neither a cache nor a home folder.
pub fn cache_folder() -> Option<PathBuf> {
    published::cache_folder(|name| std::env::var_os(name))
}
