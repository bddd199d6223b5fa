//! `build` and `run`: compile here, measure there.
//!
//! A folder of artifacts holds `plan.json` and one object file per schedule. Everything a runner needs is in it; the
//! folder appears whole or not at all.

use super::arguments::{Models, Sweep};
use super::failure::{Failure, chain};
use super::{DONE, Result, machine, print, settings};
use std::path::Path;

/// Compiles a model's tasks into a folder.
pub fn build(_models: &Models, _sweep: &Sweep, _out: &Path) -> Result<u8> {
    let _ = (machine::guess()?, settings::allowed_cpus()?, print(""), chain as fn(&dyn std::error::Error) -> String);
    Err(Failure::usage("not yet"))
}

/// Measures a folder of artifacts.
pub fn run(_dir: &Path, _store: Option<&Path>, _again: bool, _json: bool) -> Result<u8> {
    Ok(DONE)
}
