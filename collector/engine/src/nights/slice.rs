//! A slice of a nightly run: a child process of `opcollect` with a deadline.

use crate::Result;
use crate::failure::Failure;
use crate::processes::read_pipe;
use measure::host::parent::bind_child;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);
/// Time between SIGTERM and the deadline, in which a slice seals its records.
const SEALING_TIME: Duration = Duration::from_secs(20);
/// Largest size of a slice's output that is kept.
const MAX_BYTES: u64 = 256 << 20;

pub fn sealing_time(deadline: Duration) -> Duration {
    SEALING_TIME.min(deadline / 4)
}

pub struct SliceProcess {
    process: std::process::Child,
    stdout: JoinHandle<Vec<u8>>,
}

pub struct SliceEnd {
    /// Exit code; None if a signal ended the process.
    pub code: Option<i32>,
    /// JSON document in the last line of the slice's output; None if there is none.
    pub report: Option<Value>,
    /// Whether this process sent SIGTERM to the slice.
    pub was_terminated: bool,
}

impl SliceProcess {
    /// Starts the program. It inherits the standard error of this process.
    pub fn start(program: &Path, arguments: &[String]) -> Result<SliceProcess> {
        let mut command = Command::new(program);
        bind_child(&mut command).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| Failure::environment(format!("cannot start a slice of the nightly run: {error}")))?;
        let stdout = read_pipe(process.stdout.take().expect("standard output is piped"), MAX_BYTES);
        Ok(SliceProcess { process, stdout })
    }

    /// Waits for the end of the process. It receives SIGTERM some time before the deadline, or when
    /// `signal` becomes non-zero, so that it can seal its records. It is killed at the deadline.
    pub fn finish(mut self, deadline: Duration, signal: &AtomicUsize) -> Result<SliceEnd> {
        let start = Instant::now();
        let terminate_at = start + deadline.saturating_sub(sealing_time(deadline));
        let mut kill_at = start + deadline;
        let mut was_terminated = false;
        let code = loop {
            if let Some(status) = self.process.try_wait().map_err(Failure::environment)? {
                break status.code();
            }
            let (now, is_stopped) = (Instant::now(), signal.load(Ordering::Relaxed) != 0);
            if !was_terminated && (is_stopped || now >= terminate_at) {
                self.send_sigterm();
                was_terminated = true;
                kill_at = if is_stopped { now + SEALING_TIME } else { kill_at };
            }
            if now >= kill_at {
                self.process.kill().map_err(Failure::environment)?;
            }
            std::thread::sleep(PAUSE);
        };
        let stdout = self.stdout.join().unwrap_or_default();
        let report = String::from_utf8_lossy(&stdout).lines().last().and_then(|line| serde_json::from_str(line).ok());
        Ok(SliceEnd { code, report, was_terminated })
    }

    fn send_sigterm(&self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // The slice may have ended in the meantime.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}
