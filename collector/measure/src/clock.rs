//! The clock, and what else is read around a batch: a seam, so that the logic of measuring is tested without time.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use crate::counters::Usage;
use crate::flush::{CallingThread, Flusher, RunThreads};

/// What measuring needs from the machine.
pub trait Clock {
    /// A clock that never goes back.
    fn now_ns(&mut self) -> u64;
    /// The smallest difference the clock can show, its own cost included.
    fn precision_ns(&self) -> u64;
    /// What this process and thread have used so far.
    fn usage(&mut self) -> Usage;
    /// Time of a fixed piece of arithmetic: when it changes, the processor's clock has.
    fn speed_probe_ns(&mut self) -> u64;
    /// Lets time pass.
    fn sleep(&mut self, duration: Duration);
    /// Replaces the content of the caches of all processors of a run, if `bytes` fill a last-level cache. Does nothing if the
    /// timed code empties caches itself.
    fn empty_caches(&mut self, bytes: u64);
}

/// The clock of this machine.
pub struct HostClock {
    origin: Instant,
    precision_ns: u64,
    /// The threads whose caches are emptied.
    threads: Box<dyn RunThreads>,
    flusher: Option<Flusher>,
}

impl HostClock {
    /// A clock that starts at zero; measures its own precision, which takes some microseconds.
    pub fn new() -> Self {
        Self::since(Instant::now())
    }

    /// A clock that was zero at that moment.
    pub fn since(origin: Instant) -> Self {
        Self { origin, precision_ns: precision_ns(origin), threads: Box::new(CallingThread::new()), flusher: None }
    }

    /// A clock for runs on these threads.
    pub fn with_threads(threads: impl RunThreads + 'static) -> Self {
        Self { threads: Box::new(threads), ..Self::new() }
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock {
    fn now_ns(&mut self) -> u64 {
        since(self.origin)
    }

    fn precision_ns(&self) -> u64 {
        self.precision_ns
    }

    fn usage(&mut self) -> Usage {
        Usage::now()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        // The least of several: interruptions only ever add.
        (0..16).map(|_| probe_ns()).min().expect("sixteen probes")
    }

    fn sleep(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn empty_caches(&mut self, bytes: u64) {
        let known = self.flusher.take().filter(|flusher| flusher.is_for(bytes));
        let flusher = known.unwrap_or_else(|| Flusher::new(bytes, self.threads.as_mut()));
        flusher.flush(self.threads.as_mut());
        self.flusher = Some(flusher);
    }
}

fn since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The median difference of neighbouring readings, or the smallest that is not zero when most are.
fn precision_ns(origin: Instant) -> u64 {
    let readings: Vec<u64> = (0..257).map(|_| since(origin)).collect();
    let mut steps: Vec<u64> = readings.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let median = steps[steps.len() / 2];
    if median > 0 { median } else { steps.into_iter().find(|&step| step > 0).unwrap_or(1) }
}

/// Some 15 microseconds of multiplications, each waiting for the one before: no memory, no parallelism.
fn probe_ns() -> u64 {
    let start = Instant::now();
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for step in 0..10_000_u64 {
        state = (state ^ step).wrapping_mul(0xd129_42f0_fe4d_31a5);
    }
    black_box(state);
    since(start)
}
