//! Runs a user's command on a trace of each profiling cycle, like `on_trace_ready` of torch.profiler.

use crate::Result;
use crate::failure::Failure;
use crate::packing;
use crate::processes::{ProcessError, ProcessLimits, wait_or_kill};
use capture::writer::sink::Format;
use datasets::output::Output;
use profile::{Profile, cycle, export};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs the user's command on a temporary trace file of each cycle. Stops at the first failure and returns the reason.
pub fn run_on_cycles(profile: &Profile, command: &str, limit_bytes: u64) -> Result<Option<String>> {
    let folder = tempfile::Builder::new().prefix("opcollect-traces-").tempdir().map_err(Failure::environment)?;
    let cycles = cycle::list_cycles(profile);
    for (place, &cycle) in cycles.iter().enumerate() {
        let path = folder.path().join(format!("cycle-{cycle}.json"));
        let output = Output::create(&path).map_err(Failure::environment)?;
        let cut = cycle::cut_cycle(profile, cycle);
        packing::write_packed(output, |out| Ok(export::write_trace(&cut, Format::Chrome, out, limit_bytes)?.0))?;
        let why = match start_command(command, &path)
            .and_then(|mut child| wait_or_kill(&mut child, &ProcessLimits::with_deadline(LIMIT)))
        {
            Ok(status) if status.success() => continue,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let left = cycles.len() - place - 1;
        return Ok(Some(format!(
            "`--on-trace-ready` failed for cycle {cycle}: {why}; {left} more cycles were not passed on"
        )));
    }
    Ok(None)
}

/// Starts the user's command in its own process group, with the path of a trace file as its last argument.
fn start_command(command: &str, path: &Path) -> std::result::Result<Child, ProcessError> {
    Command::new("sh")
        .args(["-c", &format!("{command} \"$1\""), "sh"])
        .arg(path)
        .stdin(Stdio::null())
        // Standard output is reserved for the results of this program.
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(ProcessError::Start)
}
