//! Processes that may crash, hang or lie, and the supervisor that turns each of these into a value.
//!
//! Compiling and running generated code can end a process at any moment, so the orchestrator does neither: it keeps
//! workers (`opcollect-worker build|run`), speaks to them in frames over a socket, and gives every job a deadline.
//! What happened to a job is a reply or a [`Fault`]; after a fault the next call starts a fresh worker. Time in which the
//! orchestrator itself stood still counts for no deadline.
//!
//! * [`frame`] is the wire: length, then content, with a cap.
//! * [`Supervisor`] is the orchestrator's side, over whatever stream of bytes a [`Place`] has; [`enter`] and [`Entry::serve`] the worker's.
//! * [`confine()`] bounds the worker from the inside: it dies with its supervisor and within its limits.
//! * [`RunnerProcess`] is what a worker must hold to run machine code; only a confined one can.
//!
//! Nothing here knows what a job is: requests and replies are any serde types that postcard can carry (no
//! self-describing formats, no skipped fields).

mod awake;
mod confine;
mod fault;
pub mod frame;
mod launch;
pub mod libraries;
mod peer;
mod process;
mod serve;
mod stderr;
mod supervisor;

pub use confine::{ConfineError, Limits, confine, end_with};
pub use fault::Fault;
pub use peer::{Peer, Place, Stream};
pub use process::Worker;
pub use serve::{Entry, RunnerProcess, ServeError, end, enter, enter_alone};
pub use supervisor::{Counts, Recycle, Supervisor, Waiting, WorkerSpec, wait_any};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the conversation below; both sides must agree exactly, since both come from one build.
pub const PROTOCOL: u32 = 2;

/// The first frame of a conversation, from the supervisor: what the worker must know before it does anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    protocol: u32,
    /// Process id of the supervisor, so that the worker can tell whether it is an orphan already.
    supervisor_pid: i32,
    limits: Limits,
}

/// The first frame from a worker, sent when it is confined and its libraries are loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The conversation the worker speaks, [`PROTOCOL`] of its build.
    pub protocol: u32,
    /// Process id of the worker.
    pub pid: i32,
    /// Library name to version, as loaded in the worker; they belong into the record.
    pub versions: BTreeMap<String, String>,
    /// Resident memory when ready.
    pub rss_bytes: u64,
}

/// A request with its number; the answer carries the same one, so an answer can never be taken for another's.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<Body> {
    number: u64,
    body: Body,
}

/// What a worker sends back for each request.
#[derive(Debug, Serialize, Deserialize)]
struct Answer<Reply> {
    /// Resident memory after the job, for recycling.
    rss_bytes: u64,
    /// The reply, or the text of the panic that took its place.
    result: Result<Reply, String>,
}

/// High-water mark of this process's resident memory; 0 where procfs has none.
pub fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Resident memory of the calling process; 0 where procfs is not available.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    pages * u64::try_from(page).unwrap_or(4096)
}

#[cfg(test)]
mod tests;
