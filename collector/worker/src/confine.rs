//! Bounds a worker from the inside, before it loads a library or runs generated code.
//!
//! The supervisor's deadlines end a worker that hangs; these limits are for what a deadline cannot do: a worker must
//! not outlive its supervisor, write core files, or take the machine's memory. Limits are kept for the process and
//! inherited by what it starts.

use nix::sys::{
    prctl::set_pdeathsig,
    resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit},
    signal::Signal,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::{Arc, atomic::AtomicBool};

/// What a worker may use. `None` leaves a limit as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Private writable memory (heap, stacks, anonymous mappings). Address space would be the wrong measure: the
    /// compiler's library alone maps hundreds of megabytes that it never touches.
    pub memory_bytes: Option<u64>,
    /// Processor time of one job over all threads, a second fuse beside the deadline: it also burns while the
    /// supervisor is stopped. The worker dies by SIGXCPU.
    pub cpu_seconds_per_job: Option<u64>,
    /// The CPUs it may run on.
    pub cpus: Option<Vec<usize>>,
}

/// Why a worker could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A system call was refused.
    #[error("cannot set {what}: {errno}")]
    Refused {
        /// What was to be set.
        what: &'static str,
        /// The system's reason.
        errno: nix::errno::Errno,
    },
    /// The signals that ask a whole job to end could not be left to the supervisor.
    #[error("cannot leave signals to the supervisor: {0}")]
    Signals(std::io::Error),
    /// A CPU may not be used.
    #[error(transparent)]
    Affinity(measure::affinity::AffinityError),
    /// The supervisor ended before the parent-death signal was in place, or a wrapper stands in between.
    #[error("parent process is {found}, not the supervisor {expected}: it has ended, or a wrapper forked in between")]
    Orphan {
        /// The supervisor's process id.
        expected: i32,
        /// The parent found.
        found: i32,
    },
}

/// Makes the kernel kill the calling process when its parent ends.
///
/// The parent-death signal is sent when the *thread* that started the worker ends, not only when the process does.
/// [`super::Supervisor`] therefore starts all workers from one thread that lasts as long as the process; anyone who
/// spawns a worker by other means must see to the same.
pub fn end_with(supervisor_pid: i32) -> Result<(), ConfineError> {
    let refused = |errno| ConfineError::Refused { what: "the parent-death signal", errno };
    set_pdeathsig(Signal::SIGKILL).map_err(refused)?;
    // The supervisor may have ended before the line above, and then no signal will ever come.
    let found = nix::unistd::getppid().as_raw();
    if found == supervisor_pid { Ok(()) } else { Err(ConfineError::Orphan { expected: supervisor_pid, found }) }
}

/// Ties the calling process to its supervisor and sets its limits. Call it first thing in a worker.
pub fn confine(limits: &Limits, supervisor_pid: i32) -> Result<(), ConfineError> {
    let refused = |what| move |errno| ConfineError::Refused { what, errno };
    end_with(supervisor_pid)?;
    outlast_requests().map_err(ConfineError::Signals)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(refused("the core file size"))?;
    if let Some(memory_bytes) = limits.memory_bytes {
        lower(Resource::RLIMIT_DATA, memory_bytes).map_err(refused("the memory limit"))?;
    }
    if let Some(cpus) = &limits.cpus {
        measure::affinity::pin(cpus).map_err(ConfineError::Affinity)?;
    }
    // When the whole machine runs out of memory, the worker is the one to lose. Only a hint, so a refusal is no error.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    Ok(())
}

/// Schedulers and service managers ask every process of a job to end. The supervisor hears it, too, and lets what is in
/// flight come to its end; a worker that died of it would look like one that its operator crashed.
fn outlast_requests() -> std::io::Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    [SIGTERM, SIGINT, SIGHUP]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&unread)).map(drop))
}

/// Gives the coming job its full share of processor time: the limit of the system counts from the process's start.
pub(super) fn arm_cpu_fuse(limits: &Limits) -> Result<(), ConfineError> {
    let Some(seconds) = limits.cpu_seconds_per_job else { return Ok(()) };
    let refused = |errno| ConfineError::Refused { what: "the processor-time limit", errno };
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(refused)?;
    let used = u64::try_from(usage.user_time().tv_sec() + usage.system_time().tv_sec()).unwrap_or(0);
    // Whole seconds are cut off twice, once per kind of time: one more each keeps the share from being short.
    lower(Resource::RLIMIT_CPU, used.saturating_add(seconds).saturating_add(2)).map_err(refused)
}

/// Sets the soft limit, as far as the hard one allows, and leaves the hard one alone.
fn lower(resource: Resource, soft: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(hard), hard)
}
