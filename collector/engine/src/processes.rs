//! Runs other programs, with a deadline, a stop signal and an output limit.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(20);

/// Limits of a child process.
pub struct ProcessLimits<'a> {
    /// Time limit after which the process is killed.
    pub deadline: Duration,
    /// Largest number of bytes kept of standard output, and of standard error.
    pub max_bytes: u64,
    /// Flag that, once non-zero, causes the process to be killed.
    pub signal: &'a AtomicUsize,
    /// Function called at every check, which returns a reason to kill the process.
    pub kill_reason: &'a dyn Fn() -> Option<String>,
}

impl ProcessLimits<'static> {
    /// Creates limits with this deadline, no other reason to kill the process, and an output limit of 64 KiB.
    pub fn with_deadline(deadline: Duration) -> ProcessLimits<'static> {
        static NO_SIGNAL: AtomicUsize = AtomicUsize::new(0);
        ProcessLimits { deadline, max_bytes: 1 << 16, signal: &NO_SIGNAL, kill_reason: &|| None }
    }
}

/// Reason why a process was not started, was killed, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program is missing, or may not be started.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// The process was killed for this reason, or failed with this message.
    #[error("{0}")]
    Ended(String),
}

/// Runs a program with `input` as its standard input, and returns its standard output if it succeeds.
pub fn run_for_output(
    command: &mut Command,
    input: &[u8],
    limits: &ProcessLimits<'_>,
) -> Result<Vec<u8>, ProcessError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(ProcessError::Start)?;
    let stdin = child.stdin.take().expect("standard input is piped");
    let given = input.to_owned();
    // A failed write means that the child has ended, which its status explains.
    let writing = std::thread::spawn(move || drop({ stdin }.write_all(&given)));
    let output = read_pipe(child.stdout.take().expect("standard output is piped"), limits.max_bytes);
    let errors = read_pipe(child.stderr.take().expect("standard error is piped"), limits.max_bytes.min(1 << 16));
    let ended = wait_or_kill(&mut child, limits);
    let _ = writing.join();
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if ended?.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&errors);
    let why = errors.lines().find(|line| !line.is_empty()).unwrap_or("no reason was given");
    Err(ProcessError::Ended(why.to_owned()))
}

/// Waits for the end of a process. Kills the process, and the process group that it leads, when a limit is exceeded.
pub fn wait_or_kill(child: &mut Child, limits: &ProcessLimits<'_>) -> Result<ExitStatus, ProcessError> {
    let ended = wait_for_exit(child, limits);
    if ended.is_err() {
        // Fails if the process leads no group, or has ended in the meantime.
        let _ = i32::try_from(child.id()).map(|leader| killpg(Pid::from_raw(leader), Signal::SIGKILL));
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

fn wait_for_exit(child: &mut Child, limits: &ProcessLimits<'_>) -> Result<ExitStatus, ProcessError> {
    let start = Instant::now();
    loop {
        let cannot_read = |error| ProcessError::Ended(format!("cannot read the state of the process: {error}"));
        if let Some(status) = child.try_wait().map_err(cannot_read)? {
            return Ok(status);
        }
        if limits.signal.load(Ordering::Relaxed) != 0 {
            return Err(ProcessError::Ended("stopped by a signal".to_owned()));
        }
        if start.elapsed() > limits.deadline {
            return Err(ProcessError::Ended(format!("exceeded the time limit of {} s", limits.deadline.as_secs())));
        }
        if let Some(why) = (limits.kill_reason)() {
            return Err(ProcessError::Ended(why));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Keeps the first `max_bytes` of a pipe and discards the rest, so that the process never blocks on a full pipe.
pub fn read_pipe(mut pipe: impl Read + Send + 'static, max_bytes: u64) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(max_bytes).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(deadline: Duration) -> ProcessLimits<'static> {
        static SIGNAL: AtomicUsize = AtomicUsize::new(0);
        ProcessLimits { deadline, max_bytes: 10, signal: &SIGNAL, kill_reason: &|| None }
    }

    fn shell(script: &str, deadline: Duration) -> Result<Vec<u8>, ProcessError> {
        let limits = limits(deadline);
        run_for_output(Command::new("sh").args(["-c", script]), b"in\n", &limits)
    }

    #[test]
    fn output_is_bounded_and_a_silent_process_is_killed() {
        let output = shell("read word; echo $word 123456789012345; echo why >&2", Duration::from_secs(20)).unwrap();
        assert_eq!(output, b"in 1234567");
        let why = |script: &str| shell(script, Duration::from_secs(20)).err().map(|error| error.to_string());
        assert_eq!(why("echo; echo why >&2; echo more >&2; exit 1").as_deref(), Some("why"));
        assert_eq!(why("exit 1").as_deref(), Some("no reason was given"));
        let start = Instant::now();
        let error = shell("exec sleep 60", Duration::from_millis(200)).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("exceeded the time limit of 0 s"));
        assert!(start.elapsed() < Duration::from_secs(30));
        let mut missing = Command::new("no-such-program-of-ours");
        let missing = run_for_output(&mut missing, b"", &limits(Duration::from_secs(1)));
        assert!(matches!(missing, Err(ProcessError::Start(_))));
    }
}
