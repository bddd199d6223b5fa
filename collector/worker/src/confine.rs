//! Confinement of a worker from the inside, before it loads a library or runs generated code: it must not outlive its
//! supervisor, write core dumps or exhaust the machine's memory. Child processes inherit the limits.

use nix::sys::{
    prctl::set_pdeathsig,
    resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit},
    signal::Signal,
};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::{Arc, atomic::AtomicBool};

/// Resource limits of a worker. `None` keeps the inherited limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Limit on private writable memory, not on address space, since the compiler's library maps large unused regions.
    pub memory_bytes: Option<u64>,
    /// Limit on a job's processor time over all threads, enforced by SIGXCPU even while the supervisor is stopped.
    pub cpu_seconds_per_job: Option<u64>,
    pub cpus: Option<Vec<usize>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("cannot set {what}: {errno}")]
    Refused { what: &'static str, errno: nix::errno::Errno },
    #[error("cannot ignore termination signals: {0}")]
    Signals(std::io::Error),
    #[error(transparent)]
    Affinity(measure::affinity::AffinityError),
    #[error("parent process is {found}, not the supervisor {expected}: it has ended, or a wrapper forked in between")]
    Orphan {
        expected: i32,
        /// Actual parent process id.
        found: i32,
    },
}

/// Makes the kernel kill the calling process when the *thread* that started it ends, so workers must be started from a
/// thread that lives as long as the process, as [`super::Supervisor`] does.
pub fn die_with_parent(supervisor_pid: i32) -> Result<(), ConfineError> {
    let refused = |errno| ConfineError::Refused { what: "the parent-death signal", errno };
    set_pdeathsig(Signal::SIGKILL).map_err(refused)?;
    // If the supervisor ended before the previous line, the signal will never arrive.
    let found = nix::unistd::getppid().as_raw();
    if found == supervisor_pid { Ok(()) } else { Err(ConfineError::Orphan { expected: supervisor_pid, found }) }
}

/// Ties the calling process to its supervisor and sets its limits. Must be the first action of a worker.
pub fn confine_process(limits: &ProcessLimits, supervisor_pid: i32) -> Result<(), ConfineError> {
    let refused = |what| move |errno| ConfineError::Refused { what, errno };
    die_with_parent(supervisor_pid)?;
    ignore_termination_signals().map_err(ConfineError::Signals)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(refused("the core file size"))?;
    if let Some(memory_bytes) = limits.memory_bytes {
        lower_limit(Resource::RLIMIT_DATA, memory_bytes).map_err(refused("the memory limit"))?;
    }
    if let Some(cpus) = &limits.cpus {
        measure::affinity::pin_thread(cpus).map_err(ConfineError::Affinity)?;
    }
    // If the machine runs out of memory, the worker should be killed first. This is only a hint, so errors are
    // ignored.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    Ok(())
}

/// Ignores termination signals, which every process of a job gets: the supervisor lets jobs in flight finish.
fn ignore_termination_signals() -> std::io::Result<()> {
    let unread = Arc::new(AtomicBool::new(false));
    [SIGTERM, SIGINT, SIGHUP]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&unread)).map(drop))
}

/// Raises the limit of processor time for the next job, since the kernel counts from the start of the process.
pub(super) fn arm_cpu_fuse(limits: &ProcessLimits) -> Result<(), ConfineError> {
    let Some(seconds) = limits.cpu_seconds_per_job else { return Ok(()) };
    let refused = |errno| ConfineError::Refused { what: "the processor-time limit", errno };
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(refused)?;
    let used = u64::try_from(usage.user_time().tv_sec() + usage.system_time().tv_sec()).unwrap_or(0);
    // User and system time are both rounded down. Each may lose up to a second.
    lower_limit(Resource::RLIMIT_CPU, used.saturating_add(seconds).saturating_add(2)).map_err(refused)
}

/// Sets the soft limit of a resource, within the hard limit, which stays unchanged.
fn lower_limit(resource: Resource, soft: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(hard), hard)
}
