//! What lies beside this program, and in the user's cache.

use predictor::{Error, Result, published};
use std::path::{Path, PathBuf};

/// Returns the predictor that came with this program, for a device where one is named.
pub fn shipped_predictor(device: Option<&str>, is_described: bool) -> Result<PathBuf> {
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    let program = program.map_err(|error| Error::io("find", Path::new("oppredict"), error))?;
    published::find(&program, device, is_described)
}

/// Returns the program `opcollect` beside this one, else the first on the search path.
pub fn collector() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("opcollect"));
    beside.filter(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("opcollect"))
}

/// Returns the user's cache; None where the environment names neither a cache nor a home.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))
}
