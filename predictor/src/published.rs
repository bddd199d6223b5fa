//! Finds the predictors that are shipped with the programs, and the calibration of this machine.
//!
//! The predictors are in `datasets/published` of a checkout, or next to a wheel's folder of programs.

use crate::bundle;
use crate::devices::resolve_device;
use crate::error::{Error, Result};
use crate::this_host::Calibration;
use learn::predictor::Predictor;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub const CPU: &str = "cpu.opp";
pub const GPU: &str = "gpu.opp";

const BUILT_FROM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/published");

/// Returns the paths of the CPU and the GPU predictor, searched relative to the program. The GPU file may not exist.
fn predictor_paths(program: &Path) -> Result<[PathBuf; 2]> {
    let installed = program.ancestors().nth(2).map(|folder| folder.join("published"));
    let checkouts = program.ancestors().skip(1).map(|folder| folder.join("datasets/published"));
    let folder = installed
        .into_iter()
        .chain(checkouts)
        .chain([PathBuf::from(BUILT_FROM)])
        .find(|folder| folder.join(CPU).is_file())
        .ok_or_else(|| {
            Error::Query(format!(
                "no predictor is installed with `{}`; give --predictor FILE, as written by `oppredict train`",
                program.display()
            ))
        })?;
    Ok([CPU, GPU].map(|name| folder.join(name)))
}

pub fn list_predictors(program: &Path) -> Result<Vec<PathBuf>> {
    Ok(predictor_paths(program)?.into_iter().filter(|file| file.is_file()).collect())
}

/// Returns the path of the GPU predictor if it was trained on the device or a mapping describes the query; otherwise
/// the path of the CPU predictor.
pub fn find_predictor(program: &Path, device: Option<&str>, is_described: bool) -> Result<PathBuf> {
    let [cpu, gpu] = predictor_paths(program)?;
    let Some(device) = device.filter(|_| gpu.is_file()) else {
        return Ok(if is_described && gpu.is_file() { gpu } else { cpu });
    };
    let devices = |file: &Path| -> Result<Vec<String>> {
        Ok(bundle::read_about(file)?.map_or_else(Vec::new, |about| about.devices.into_keys().collect()))
    };
    let (of_cpu, of_gpu) = (devices(&cpu)?, devices(&gpu)?);
    let knows = |devices: &[String]| resolve_device(devices.iter().map(String::as_str), device).is_ok();
    match (knows(&of_gpu), knows(&of_cpu)) {
        (true, _) => Ok(gpu),
        (false, true) => Ok(cpu),
        // The mapping may describe the device.
        (false, false) if is_described => Ok(gpu),
        (false, false) => resolve_device(of_gpu.iter().chain(&of_cpu).map(String::as_str), device).map(|_| gpu),
    }
}

pub fn calibration_file(cache: &Path, host_class: &str) -> PathBuf {
    cache.join("opcollect/calibrations").join(format!("{host_class}.json"))
}

/// Returns the user's cache folder from environment variables; None if neither cache nor home folder is set.
pub fn cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))
}

/// Applies the calibration of this machine, if `adapt` stored one for exactly this predictor.
pub fn apply_calibration(predictor: &mut Predictor, cache: Option<&Path>, host_class: &str, cpus: usize) -> Result<()> {
    let kept = cache.map(|cache| calibration_file(cache, host_class));
    let Some(path) = kept.filter(|path| path.is_file()) else { return Ok(()) };
    let known = Calibration::read_file(&path)?;
    let is_of_this = known.data_hash == predictor.about.data_hash;
    predictor.this_host = is_of_this.then(|| known.host_translation(cpus));
    Ok(())
}
