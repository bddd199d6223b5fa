//! The thread that measures: a fresh one for each job, because TVM's pool belongs to the thread that calls and keeps its
//! first size.

use crate::tvm::pool;
use anyhow::{Result, anyhow, ensure};
use measure::affinity;
use measure::counters::{CounterRequest, CounterSession};

/// Does this on a thread of its own, pinned to the first of these CPUs, with a pool on all of them and counters open.
pub(crate) fn on_fresh_thread<T: Send>(
    cpus: &[usize],
    counters: &CounterRequest,
    job: impl FnOnce(&mut CounterSession) -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let measuring = scope.spawn(move || {
            // Before the pool is made, so that its threads are counted too.
            let with_descendants = counters.with_descendants || cpus.len() > 1;
            let mut counters = CounterSession::open(&CounterRequest { with_descendants, ..counters.clone() });
            let threads = pool::configure(cpus)?;
            ensure!(threads == cpus.len(), "asked for {} threads, the pool has {threads}", cpus.len());
            affinity::pin(&cpus[..1])?;
            job(&mut counters)
        });
        measuring.join().map_err(|_| anyhow!("the measuring thread panicked"))?
    })
}
