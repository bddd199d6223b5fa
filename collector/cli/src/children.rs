//! Runs other programs for one answer, with a deadline, an end at a signal to this process, and a bound on what is read.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at a child.
const PAUSE: Duration = Duration::from_millis(20);

/// Bounds on a child.
pub struct Bounds<'a> {
    /// Longest time until it ends.
    pub deadline: Duration,
    /// Bytes of its standard output, and of its standard error, that are kept.
    pub most_bytes: u64,
    /// Called at every look; returns a reason to kill the child.
    pub look: &'a dyn Fn() -> Option<String>,
}

/// Why a child gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program is missing, or may not be started.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// The child was killed for this reason, or failed with this message.
    #[error("{0}")]
    Ended(String),
}

/// Starts a program with something to read, and returns its standard output if it succeeds.
pub fn ask(command: &mut Command, input: &[u8], bounds: &Bounds<'_>) -> Result<Vec<u8>, ChildError> {
    let signal = super::signals::watch_signals().map_err(|failure| ChildError::Ended(failure.to_string()))?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(ChildError::Start)?;
    let stdin = child.stdin.take().expect("standard input is piped");
    let given = input.to_owned();
    // A failed write means that the child has ended, which its status explains.
    let writing = std::thread::spawn(move || drop({ stdin }.write_all(&given)));
    let output = reading(child.stdout.take().expect("standard output is piped"), bounds.most_bytes);
    let errors = reading(child.stderr.take().expect("standard error is piped"), bounds.most_bytes.min(1 << 16));
    let ended = wait(&mut child, &signal, bounds);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let _ = writing.join();
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if ended?.success() {
        return Ok(output);
    }
    let errors = String::from_utf8_lossy(&errors);
    let why = errors.lines().find(|line| !line.is_empty()).unwrap_or("it did not say why");
    Err(ChildError::Ended(why.to_owned()))
}

fn wait(child: &mut Child, signal: &Arc<AtomicUsize>, bounds: &Bounds<'_>) -> Result<ExitStatus, ChildError> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(ChildError::Start)? {
            return Ok(status);
        }
        if signal.load(Ordering::Relaxed) != 0 {
            return Err(ChildError::Ended("a signal asked to stop".to_owned()));
        }
        if start.elapsed() > bounds.deadline {
            return Err(ChildError::Ended(format!("no answer within {} s", bounds.deadline.as_secs())));
        }
        if let Some(why) = (bounds.look)() {
            return Err(ChildError::Ended(why));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Keeps the first `most_bytes` of a pipe, and reads on to its end, so that the child never waits for a full pipe.
fn reading(mut pipe: impl Read + Send + 'static, most_bytes: u64) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(most_bytes).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Result<Vec<u8>, ChildError> {
        let bounds = Bounds { deadline, most_bytes: 10, look: &|| None };
        ask(Command::new("sh").args(["-c", script]), b"in\n", &bounds)
    }

    #[test]
    fn answers_are_bounded_and_a_silent_child_is_ended() {
        let output = shell("read word; echo $word 123456789012345; echo why >&2", Duration::from_secs(20)).unwrap();
        assert_eq!(output, b"in 1234567");
        let why = |script: &str| shell(script, Duration::from_secs(20)).err().map(|error| error.to_string());
        assert_eq!(why("echo; echo why >&2; echo more >&2; exit 1").as_deref(), Some("why"));
        assert_eq!(why("exit 1").as_deref(), Some("it did not say why"));
        let start = Instant::now();
        let error = shell("exec sleep 60", Duration::from_millis(200)).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("no answer within 0 s"));
        assert!(start.elapsed() < Duration::from_secs(30));
        let missing = ask(
            &mut Command::new("no-such-program-of-ours"),
            b"",
            &Bounds { deadline: Duration::from_secs(1), most_bytes: 1, look: &|| None },
        );
        assert!(matches!(missing, Err(ChildError::Start(_))));
    }
}
