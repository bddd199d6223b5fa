//! Takes a capture: runs a command with the environment its runtime looks at, and finds the folder it wrote.

use super::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::SystemTime;

/// What the runtime is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Detail: 0 records only, 1 commands too, 2 their registers too.
    pub mode: Option<u8>,
    /// Records each engine may write.
    pub records: Option<u64>,
    /// The firmware of the cores, for old models.
    pub firmware: Option<PathBuf>,
}

/// A command that was run, and the captures it wrote.
#[derive(Debug)]
pub struct Taken {
    /// How the command ended.
    pub status: ExitStatus,
    /// The captures, the newest last.
    pub captures: Vec<PathBuf>,
}

/// Names of captures begin so.
const PREFIX: &str = "cdm_profile_data_dev";

/// The variables of the environment.
pub fn environment(request: &Request) -> Vec<(&'static str, String)> {
    let mut variables = vec![("ENABLE_ALL_PROFILE", "1".to_owned())];
    variables.extend(request.mode.map(|mode| ("PROFILE_MODE", mode.to_string())));
    variables.extend(request.records.map(|records| ("PROFILE_RECORD_SIZE", records.to_string())));
    let firmware = request.firmware.as_ref();
    variables.extend(firmware.map(|path| ("TPUKERNEL_FIRMWARE_PATH", path.display().to_string())));
    variables
}

/// Runs a command in a folder and waits for it; its output is the caller's.
pub fn take(request: &Request, directory: &Path, command: &[String]) -> Result<Taken> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    let before = captures(directory).map_err(failed(directory))?;
    let (program, arguments) = command.split_first().expect("the command line asks for one");
    let mut child = Command::new(program);
    child.args(arguments).current_dir(directory).envs(environment(request));
    let status = child.status().map_err(failed(Path::new(program)))?;
    let after = captures(directory).map_err(failed(directory))?;
    let mut new: Vec<(SystemTime, PathBuf)> = after.difference(&before).cloned().collect();
    new.sort();
    Ok(Taken { status, captures: new.into_iter().map(|(_, path)| path).collect() })
}

/// Captures in a folder with the time of their description: one that is written again counts as new.
fn captures(directory: &Path) -> std::io::Result<BTreeSet<(SystemTime, PathBuf)>> {
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
