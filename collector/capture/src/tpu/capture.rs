//! Recording of a capture: runs a command with the environment that enables profiling, and finds the resulting folder.

use super::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::SystemTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Level of detail: 0 for records only, 1 for records and commands, 2 for records, commands and their registers.
    pub mode: Option<u8>,
    /// Maximum number of records per engine.
    pub records: Option<u64>,
    /// Firmware of the cores, required by old models.
    pub firmware: Option<PathBuf>,
}

#[derive(Debug)]
pub struct CommandRun {
    pub status: ExitStatus,
    pub captures: Vec<PathBuf>,
}

const PREFIX: &str = "cdm_profile_data_dev";

pub fn profiling_environment(request: &Request) -> Vec<(&'static str, String)> {
    let mut variables = vec![("ENABLE_ALL_PROFILE", "1".to_owned())];
    variables.extend(request.mode.map(|mode| ("PROFILE_MODE", mode.to_string())));
    variables.extend(request.records.map(|records| ("PROFILE_RECORD_SIZE", records.to_string())));
    let firmware = request.firmware.as_ref();
    variables.extend(firmware.map(|path| ("TPUKERNEL_FIRMWARE_PATH", path.display().to_string())));
    variables
}

/// Runs a command in a folder and waits for it. The command inherits the output streams.
pub fn record_command(request: &Request, directory: &Path, command: &[String]) -> Result<CommandRun> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    let before = list_captures(directory).map_err(failed(directory))?;
    let (program, arguments) = command.split_first().expect("the command line requires a command");
    let mut child = Command::new(program);
    child.args(arguments).current_dir(directory).envs(profiling_environment(request));
    let status = child.status().map_err(failed(Path::new(program)))?;
    let after = list_captures(directory).map_err(failed(directory))?;
    let mut new: Vec<(SystemTime, PathBuf)> = after.difference(&before).cloned().collect();
    new.sort();
    Ok(CommandRun { status, captures: new.into_iter().map(|(_, path)| path).collect() })
}

/// Returns the captures in a folder with their modification times, which distinguish new from old ones.
fn list_captures(directory: &Path) -> std::io::Result<BTreeSet<(SystemTime, PathBuf)>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_capture = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if let Some(modified) = is_capture.then(|| path.join("global.profile").metadata().ok()).flatten() {
            found.insert((modified.modified()?, path));
        }
    }
    Ok(found)
}
