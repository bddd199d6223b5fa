//! The thread that measures: a fresh one for each job, or for jobs that are alike, because TVM's pool belongs to the thread
//! that calls and keeps its first size.

use crate::tvm::pool;
use anyhow::{Result, anyhow, ensure};
use measure::affinity;
use measure::counters::{CounterRequest, CounterSession};

/// Runs a job on a new thread, pinned to the first CPU, with a pool on all of them and counters open.
pub(crate) fn on_fresh_thread<T: Send>(
    cpus: &[usize],
    counters: &CounterRequest,
    job: impl FnOnce(&mut CounterSession) -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let measuring = scope.spawn(move || {
            let mut counters = ready_this_thread(cpus, counters)?;
            job(&mut counters)
        });
        measuring.join().map_err(|_| anyhow!("the measuring thread panicked"))?
    })
}

/// Pins a thread without a pool to the first CPU, creates a pool on all of them and opens counters.
pub(crate) fn ready_this_thread(cpus: &[usize], counters: &CounterRequest) -> Result<CounterSession> {
    // Before the pool is made, so that its threads are counted too.
    let with_descendants = counters.with_descendants || cpus.len() > 1;
    let counters = CounterSession::open_counters(&CounterRequest { with_descendants, ..counters.clone() });
    let threads = pool::configure_pool(cpus)?;
    ensure!(threads == cpus.len(), "asked for {} threads, the pool has {threads}", cpus.len());
    affinity::pin_thread(&cpus[..1])?;
    Ok(counters)
}
