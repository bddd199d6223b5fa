//! The thread that measures: a new one for each job, or for a series of similar jobs, because TVM's thread pool
//! belongs to the calling thread and keeps its first size.

use crate::tvm::pool;
use anyhow::{Result, anyhow, ensure};
use measure::affinity;
use measure::counters::{CounterRequest, CounterSession};

pub(crate) fn run_on_new_thread<T: Send>(
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

/// Pins a thread that has no pool yet to the first CPU, creates a pool of threads on all CPUs, and opens counters.
pub(crate) fn ready_this_thread(cpus: &[usize], counters: &CounterRequest) -> Result<CounterSession> {
    // Counters are opened before the pool is created, so that the threads of the pool are counted, too.
    let with_descendants = counters.with_descendants || cpus.len() > 1;
    let counters = CounterSession::open_counters(&CounterRequest { with_descendants, ..counters.clone() });
    let threads = pool::configure_pool(cpus)?;
    ensure!(threads == cpus.len(), "requested {} threads, but TVM's pool has {threads}", cpus.len());
    affinity::pin_thread(&cpus[..1])?;
    Ok(counters)
}
