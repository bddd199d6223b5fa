//! Prepares a thread for measurements of library calls.

use crate::refusal;
use anyhow::{Context, Result, ensure};
use measure::counters::{CounterRequest, CounterSession};
use measure::{HostClock, Measurement, Method, PinnedThreads, affinity, measure_runs};

/// A thread prepared for measurements: pinned to its CPUs, with open counters and one library thread per CPU.
pub struct LibraryTiming {
    counters: CounterSession,
    cpus: Vec<usize>,
}

impl LibraryTiming {
    pub fn open_session(cpus: &[usize], counters: &CounterRequest) -> Result<LibraryTiming> {
        let with_descendants = counters.with_descendants || cpus.len() > 1;
        // Counters are opened before the library creates its pool, so that they include its
        // threads.
        let counters = CounterSession::open_counters(&CounterRequest { with_descendants, ..counters.clone() });
        affinity::pin_thread(cpus)?;
        let threads = i32::try_from(cpus.len()).context("too many CPUs")?;
        tch::set_num_threads(threads);
        let found = tch::get_num_threads();
        ensure!(found == threads, "requested {threads} threads, but PyTorch uses {found}");
        Ok(LibraryTiming { counters, cpus: cpus.to_vec() })
    }

    pub fn time_runs<T>(
        &mut self,
        method: &Method,
        compute: impl Fn() -> refusal::Result<T>,
    ) -> refusal::Result<(Measurement, T)> {
        let mut latest = None;
        let mut call = |times: u32| -> refusal::Result<()> {
            for _ in 0..times {
                // The previous result is freed first, so that its memory can be reused.
                latest = None;
                latest = Some(compute()?);
            }
            Ok(())
        };
        // The library's threads are idle between runs: they sleep when a run with cold caches
        // begins.
        let mut clock = HostClock::with_threads(PinnedThreads::new(&self.cpus));
        let measurement = measure_runs(&mut call, method, &mut clock, &mut self.counters)?;
        Ok((measurement, latest.expect("measuring runs at least once")))
    }
}
