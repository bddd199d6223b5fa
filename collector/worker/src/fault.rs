//! Ways in which a job can end without a reply.

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// Outcome of a job without a reply. It is serializable because it becomes the outcome of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    #[error("worker crashed with {}{}", signal_name(*signal), stderr_note(stderr))]
    Crashed { signal: i32, stderr: String },
    /// The worker exited instead of replying. Libraries call `exit` on some internal errors.
    #[error("worker exited with code {code} instead of answering{}", stderr_note(stderr))]
    Exited { code: i32, stderr: String },
    #[error("the device was lost: {why}")]
    Lost { why: String },
    #[error("no reply within {limit_ms} ms; the worker was killed")]
    TimedOut { limit_ms: u64 },
    #[error("the worker sent an invalid reply: {why}; the worker was killed")]
    Corrupt { why: String },
    /// The handler in the worker panicked or its reply cannot be sent. This is a fault of the program, not of the job.
    #[error("the worker could not finish the job: {why}")]
    HandlerFailed { why: String },
    /// No worker could be started. A retry does not help until the cause is removed.
    #[error("cannot start a worker: {why}")]
    CannotStart { why: String },
    #[error("the request cannot be sent: {why}")]
    Unsendable { why: String },
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |known| format!("{} ({signal})", known.as_str()))
}

fn stderr_note(stderr: &str) -> String {
    if stderr.trim().is_empty() { String::new() } else { format!("; end of its output:\n{stderr}") }
}
