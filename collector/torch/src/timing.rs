//! A thread that may measure.

use crate::refusal;
use anyhow::{Context, Result, ensure};
use measure::counters::{CounterRequest, CounterSession};
use measure::{HostClock, Measurement, Method, PinnedThreads, affinity, measure};

/// A thread that may measure: its counters are open, it stays on its CPUs, and the library has as many threads.
pub struct Timing {
    counters: CounterSession,
    cpus: Vec<usize>,
}

impl Timing {
    /// Prepares the calling thread.
    pub fn open(cpus: &[usize], counters: &CounterRequest) -> Result<Timing> {
        let with_descendants = counters.with_descendants || cpus.len() > 1;
        // Before the library's pool is made, so that its threads are counted too.
        let counters = CounterSession::open(&CounterRequest { with_descendants, ..counters.clone() });
        affinity::pin(cpus)?;
        let threads = i32::try_from(cpus.len()).context("a count of CPUs is small")?;
        tch::set_num_threads(threads);
        let found = tch::get_num_threads();
        ensure!(found == threads, "asked for {threads} threads, the library takes {found}");
        Ok(Timing { counters, cpus: cpus.to_vec() })
    }

    /// Times a computation; with the result of its last run.
    pub fn measure<T>(
        &mut self,
        method: &Method,
        compute: impl Fn() -> refusal::Result<T>,
    ) -> refusal::Result<(Measurement, T)> {
        let mut latest = None;
        let mut call = |times: u32| -> refusal::Result<()> {
            for _ in 0..times {
                // The memory of the result before can serve for the next one.
                latest = None;
                latest = Some(compute()?);
            }
            Ok(())
        };
        // The library's threads take work from nobody else: they sleep when a run with cold caches begins.
        let mut clock = HostClock::with_threads(PinnedThreads::new(&self.cpus));
        let measurement = measure(&mut call, method, &mut clock, &mut self.counters)?;
        Ok((measurement, latest.expect("measuring runs at least once")))
    }
}
