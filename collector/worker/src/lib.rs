//! Worker processes that may crash, hang or send malformed data, and the supervisor that turns each of these into a
//! value. The orchestrator starts workers (`opcollect-worker build|run`), exchanges frames with them over a socket and
//! gives every job a deadline. A job ends with a reply or a [`Fault`]; after a fault the next job starts a new worker.
//! Requests and replies are serde types that postcard supports (no self-describing formats, no skipped fields).
//!
//! * [`frame`] defines the length-prefixed encoding.
//! * [`Supervisor`] is the orchestrator's side, over the stream of any [`PeerSource`].
//! * [`enter_worker`] and [`Entry::serve_requests`] are the worker's side.
//! * [`confine_process`] sets the worker's limits and ties its life to the supervisor's.
//! * [`RunnerProcess`] is a capability that running machine code requires. Only confined workers can create it.

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

pub use confine::{ConfineError, ProcessLimits, confine_process, die_with_parent};
pub use fault::Fault;
pub use peer::{Peer, PeerSource, PeerStream};
pub use process::Worker;
pub use serve::{Entry, RunnerProcess, ServeError, enter_alone, enter_worker, exit_code};
pub use supervisor::{Recycle, Supervisor, SupervisorCounts, Waiting, WorkerSpec, wait_any};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the protocol. Both sides must have the same version, since they come from one build.
pub const PROTOCOL: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Start {
    protocol: u32,
    /// Process id of the supervisor, by which a worker detects that its supervisor has already ended.
    supervisor_pid: i32,
    limits: ProcessLimits,
}

/// First frame of a worker, sent when it is confined and has loaded its libraries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub pid: i32,
    pub versions: BTreeMap<String, String>,
    pub rss_bytes: u64,
}

/// A message with the number of its request, so that replies cannot be mixed up.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<Body> {
    number: u64,
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
struct WorkerAnswer<Reply> {
    rss_bytes: u64,
    /// Reply of the handler, or the message of its panic.
    result: Result<Reply, String>,
}

/// Returns the peak resident memory of this process; 0 without procfs.
pub fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

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
