//! `--on-trace-ready`: a command for the trace of each cycle.

use super::super::Result;
use capture::writer::sink::Format;
use datasets::output::Output;
use engine::failure::Failure;
use profile::{Profile, cycle, export};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the command may take for one trace.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Writes a trace for each cycle, and lets the command have it; ends with the first that it fails for, and says which. The
/// files are gone when this is done.
pub fn hand_over(profile: &Profile, command: &str, limit: u64) -> Result<Option<String>> {
    let folder = tempfile::Builder::new().prefix("opcollect-traces-").tempdir().map_err(Failure::environment)?;
    let cycles = cycle::cycles(profile);
    for (place, &cycle) in cycles.iter().enumerate() {
        let path = folder.path().join(format!("cycle-{cycle}.json"));
        let output = Output::create(&path).map_err(Failure::environment)?;
        let cut = cycle::cut(profile, cycle);
        super::super::packing::write(output, |out| Ok(export::write(&cut, Format::Chrome, out, limit)?.0))?;
        let failed = |why: String| {
            let left = cycles.len() - place - 1;
            Ok(Some(format!(
                "`--on-trace-ready` failed for cycle {cycle}: {why}; {left} more cycles were not handed over"
            )))
        };
        let child = Command::new("sh")
            .args(["-c", &format!("{command} \"$1\""), "sh"])
            .arg(&path)
            .stdin(Stdio::null())
            // Standard output is for what we say.
            .stdout(std::io::stderr())
            .process_group(0)
            .spawn();
        match child.map_err(|error| error.to_string()).and_then(|mut child| wait(&mut child)) {
            Ok(status) if status.success() => {}
            Ok(status) => return failed(status.to_string()),
            Err(why) => return failed(why),
        }
    }
    Ok(None)
}

/// Waits for it, and ends it when its time is over.
fn wait(child: &mut Child) -> std::result::Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < LIMIT => std::thread::sleep(PAUSE),
            Ok(None) => {
                // Its own process group: what it started ends with it.
                let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
                let _ = child.wait();
                return Err(format!("it took longer than {} s and was ended", LIMIT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
