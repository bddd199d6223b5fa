//! Runs a user's command on a trace of each profiling cycle, like `on_trace_ready` of torch.profiler.

use crate::Result;
use crate::failure::Failure;
use crate::packing;
use capture::writer::sink::Format;
use datasets::output::Output;
use profile::{Profile, cycle, export};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Runs the command once per cycle, on a temporary trace file. Stops at the first failure and returns the reason.
pub fn hand_over(profile: &Profile, command: &str, limit_bytes: u64) -> Result<Option<String>> {
    let folder = tempfile::Builder::new().prefix("opcollect-traces-").tempdir().map_err(Failure::environment)?;
    let cycles = cycle::list_cycles(profile);
    for (place, &cycle) in cycles.iter().enumerate() {
        let path = folder.path().join(format!("cycle-{cycle}.json"));
        let output = Output::create(&path).map_err(Failure::environment)?;
        let cut = cycle::cut_cycle(profile, cycle);
        packing::write_packed(output, |out| Ok(export::write_trace(&cut, Format::Chrome, out, limit_bytes)?.0))?;
        let why = match start_command(command, &path).and_then(|mut child| wait_for_exit(&mut child)) {
            Ok(status) if status.success() => continue,
            Ok(status) => status.to_string(),
            Err(why) => why,
        };
        let left = cycles.len() - place - 1;
        return Ok(Some(format!(
            "`--on-trace-ready` failed for cycle {cycle}: {why}; {left} more cycles were not passed on"
        )));
    }
    Ok(None)
}

/// Starts the command in its own process group, with the path of a trace file as its last argument.
fn start_command(command: &str, path: &Path) -> std::result::Result<Child, String> {
    Command::new("sh")
        .args(["-c", &format!("{command} \"$1\""), "sh"])
        .arg(path)
        .stdin(Stdio::null())
        // Standard output is reserved for the results of this program.
        .stdout(std::io::stderr())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())
}

/// Waits for the command, and kills its process group at the time limit.
fn wait_for_exit(child: &mut Child) -> std::result::Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < LIMIT => std::thread::sleep(PAUSE),
            Ok(None) => {
                let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
                let _ = child.wait();
                return Err(format!("the command exceeded {} s and was stopped", LIMIT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
