//! The ways in which a job ends without a reply.

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// What became of a job that got no reply. Serialisable, since it becomes the outcome of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// The worker died of a signal.
    #[error("worker crashed with {}{}", signal_name(*signal), said(stderr))]
    Crashed {
        /// The signal's number.
        signal: i32,
        /// The end of its standard error.
        stderr: String,
    },
    /// The worker ended by itself instead of answering; libraries call `exit` on some internal errors.
    #[error("worker exited with code {code} instead of answering{}", said(stderr))]
    Exited {
        /// The exit code.
        code: i32,
        /// The end of its standard error.
        stderr: String,
    },
    /// The device that was at it has gone, or its session has; what was seen of it says why.
    #[error("the device was lost: {why}")]
    Lost {
        /// What was seen.
        why: String,
    },
    /// No reply within the job's deadline; the worker was killed.
    #[error("no reply within {limit_ms} ms; the worker was killed")]
    TimedOut {
        /// The deadline of the job.
        limit_ms: u64,
    },
    /// The worker sent something that is not an answer to this job; it was killed.
    #[error("the worker's answer is damaged: {why}; it was killed")]
    Corrupt {
        /// What was wrong with the answer.
        why: String,
    },
    /// The handler inside the worker panicked, or its reply cannot be sent. A fault of the program, not of the job.
    #[error("the worker could not finish the job: {why}")]
    HandlerFailed {
        /// The panic's place and message, or why the reply cannot be sent.
        why: String,
    },
    /// No worker could be started. Trying again will not help before the reason is removed.
    #[error("cannot start a worker: {why}")]
    CannotStart {
        /// The program and the reason.
        why: String,
    },
    /// The request is too large to send; the worker never saw it.
    #[error("the request cannot be sent: {why}")]
    Unsendable {
        /// The encoder's reason.
        why: String,
    },
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |known| format!("{} ({signal})", known.as_str()))
}

fn said(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!("; its last words:\n{stderr}") }
}
