//! The predictors that come with the programs, and what is known of this machine beside them.
//!
//! They lie in `datasets/published` of a checkout, or where the wheel puts them, `published` beside the folder of programs; so the
//! first question needs no file of one's own. A calibration of this machine is kept in the user's cache.

use crate::bundle;
use crate::error::{Error, Result};
use crate::this_host::Calibration;
use learn::predictor::Predictor;
use std::path::{Path, PathBuf};

/// The predictor for CPUs.
pub const CPU: &str = "cpu.opp";
/// The predictor for GPUs.
pub const GPU: &str = "gpu.opp";

/// Where the one for a device lies, seen from where a program does: that for GPUs where a GPU of its own is named, or a device that
/// a mapping describes, else that for CPUs.
pub fn find(program: &Path, device: Option<&str>, is_described: bool) -> Result<PathBuf> {
    let installed = program.ancestors().nth(2).map(|folder| folder.join("published"));
    let checkouts = program.ancestors().skip(1).map(|folder| folder.join("datasets/published"));
    let folder = installed.into_iter().chain(checkouts).find(|folder| folder.join(CPU).is_file()).ok_or_else(|| {
        Error::Query(format!(
            "no predictor came with `{}`: give one with --predictor FILE, which `oppredict train` writes",
            program.display()
        ))
    })?;
    let (cpu, gpu) = (folder.join(CPU), folder.join(GPU));
    let Some(device) = device.filter(|_| gpu.is_file()) else { return Ok(cpu) };
    let knows = |file: &Path| Ok::<_, Error>(bundle::devices(file)?.iter().any(|known| known == device));
    let is_of_gpu = knows(&gpu)? || (is_described && !knows(&cpu)?);
    Ok(if is_of_gpu { gpu } else { cpu })
}

/// Where what is known of a class of hosts is kept, below the user's cache.
pub fn calibration_file(cache: &Path, host_class: &str) -> PathBuf {
    cache.join("opcollect/calibrations").join(format!("{host_class}.json"))
}

/// What is known of a class of hosts, where that was measured for this very predictor.
pub fn calibration(predictor: &Predictor, cache: Option<&Path>, host_class: &str) -> Result<Option<Calibration>> {
    let kept = cache.map(|cache| calibration_file(cache, host_class));
    let Some(path) = kept.filter(|path| path.is_file()) else { return Ok(None) };
    let known = Calibration::read(&path)?;
    Ok((known.data_hash == predictor.about.data_hash).then_some(known))
}
