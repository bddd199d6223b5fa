//! Stores that commands open, and what is said of those that are damaged.

use super::failure::{Failure, chain};
use super::{DONE, DONE_WITH_LOSSES, Result, tell};
use datasets::Store;
use datasets::store::Damage;
use std::path::Path;

/// Where records go when nothing is said.
pub const DEFAULT_STORE: &str = "opcollect-data";

/// The store of a flag, made if needed.
pub fn open_store(flag: Option<&Path>) -> Result<Store> {
    let path = flag.unwrap_or(Path::new(DEFAULT_STORE));
    Store::create(path).map_err(failed)
}

/// A store that must exist.
pub fn open(path: &Path) -> Result<Store> {
    Store::open(path).map_err(failed)
}

/// What is wrong with a store or file, and whose turn it is.
pub fn failed(error: datasets::Error) -> Failure {
    let text = chain(&error);
    if error.is_of_machine() { Failure::environment(text) } else { Failure::usage(text) }
}

/// Says what was left out; anything is a loss.
pub fn tell_damage(damage: &[Damage]) -> u8 {
    tell(&damage.iter().map(ToString::to_string).collect::<Vec<_>>());
    if damage.is_empty() { DONE } else { DONE_WITH_LOSSES }
}
