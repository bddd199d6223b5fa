//! A slice of a night: this program in a process of its own, with a deadline.

use super::super::Result;
use engine::failure::Failure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Variable with the number of the process that started a child.
const PARENT_VARIABLE: &str = "OPCOLLECT_PARENT";

/// Ties this process to the nightly run that started it, if one did, so that it does not measure alongside the next one.
pub fn end_with_parent() -> Result<()> {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|text| text.parse().ok()) else { return Ok(()) };
    worker::end_with(parent).map_err(Failure::environment)
}

/// How often a child is looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a child may seal after it was told to end.
const SEALING: Duration = Duration::from_secs(20);
/// Longest report of a child that is kept.
const MOST_BYTES: u64 = 256 << 20;

/// How long before its deadline a child is told to end.
pub fn sealing(deadline: Duration) -> Duration {
    SEALING.min(deadline / 4)
}

/// A process under way.
pub struct Child {
    process: std::process::Child,
    stdout: JoinHandle<String>,
}

/// How it ended.
pub struct Ended {
    /// Its exit code; nothing where a signal ended it.
    pub code: Option<i32>,
    /// The document in the last line of its output.
    pub report: Option<Value>,
    /// Whether it was told to end.
    pub was_told: bool,
}

impl Child {
    /// Starts this program with other arguments; what it says to people goes where ours goes.
    pub fn start(arguments: &[String]) -> Result<Child> {
        let program = std::env::current_exe().map_err(Failure::environment)?;
        let mut command = Command::new(program);
        command.args(arguments).env(PARENT_VARIABLE, std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| Failure::environment(format!("cannot start a slice of the night: {error}")))?;
        let pipe = process.stdout.take().expect("standard output is piped");
        let stdout = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read counts, whatever ended it.
            let _ = pipe.take(MOST_BYTES).read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Child { process, stdout })
    }

    /// Waits for its end. It is told to end, so that it seals, a while before the deadline and when a signal came; then killed.
    pub fn finish(mut self, deadline: Duration, signal: &AtomicUsize) -> Result<Ended> {
        let start = Instant::now();
        let tell_at = start + deadline.saturating_sub(sealing(deadline));
        let mut kill_at = start + deadline;
        let mut was_told = false;
        let code = loop {
            if let Some(status) = self.process.try_wait().map_err(Failure::environment)? {
                break status.code();
            }
            let (now, is_stopped) = (Instant::now(), signal.load(Ordering::Relaxed) != 0);
            if !was_told && (is_stopped || now >= tell_at) {
                self.tell();
                was_told = true;
                kill_at = if is_stopped { now + SEALING } else { kill_at };
            }
            if now >= kill_at {
                self.process.kill().map_err(Failure::environment)?;
            }
            std::thread::sleep(PAUSE);
        };
        let stdout = self.stdout.join().unwrap_or_default();
        let report = stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
        Ok(Ended { code, report, was_told })
    }

    fn tell(&self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}
