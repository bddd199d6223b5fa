//! The clock and the resource usage of the process, read around a batch of runs; [`Clock`] can be faked in tests.

use std::{
    hint::black_box,
    sync::atomic::AtomicU8,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::Cache;
use crate::counters::Usage;
use crate::flush::{CallingThread, Flusher, RunThreads};

pub trait Clock {
    fn now_ns(&mut self) -> u64;
    /// Returns the smallest measurable time difference, including the cost of reading the clock.
    fn precision_ns(&self) -> u64;
    fn read_usage(&mut self) -> Usage;
    /// Returns the time of a fixed computation, which depends only on the processor's clock rate.
    fn speed_probe_ns(&mut self) -> u64;
    /// Returns the time of the same computation, done once between two samples; `None` without access to the processor.
    fn quick_probe_ns(&mut self) -> Option<u64> {
        None
    }
    fn sleep(&mut self, duration: Duration);
    /// Puts the caches of all CPUs of a run into a state, unless the timed code does.
    fn prepare_caches(&mut self, cache: Cache);
}

/// Returns the wall-clock time of a clock's time zero, in nanoseconds since 1970.
pub fn wall_clock_start_ns(clock: &mut impl Clock) -> Option<i64> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_nanos()).ok()?.checked_sub_unsigned(clock.now_ns())
}

pub struct HostClock<'a> {
    origin: Instant,
    precision_ns: u64,
    threads: Box<dyn RunThreads>,
    /// Memory of the operands that other operators of a network would have written.
    activations: Vec<&'a [AtomicU8]>,
    flusher: Option<Flusher>,
}

impl<'a> HostClock<'a> {
    pub fn new() -> Self {
        Self::with_origin(Instant::now())
    }

    pub fn with_origin(origin: Instant) -> Self {
        Self {
            origin,
            precision_ns: precision_ns(origin),
            threads: Box::new(CallingThread::new()),
            activations: Vec::new(),
            flusher: None,
        }
    }

    pub fn with_threads(threads: impl RunThreads + 'static) -> Self {
        Self { threads: Box::new(threads), ..Self::new() }
    }

    pub fn with_activations(self, activations: Vec<&'a [AtomicU8]>) -> Self {
        Self { activations, ..self }
    }
}

impl Default for HostClock<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock<'_> {
    fn now_ns(&mut self) -> u64 {
        elapsed_ns(self.origin)
    }

    fn precision_ns(&self) -> u64 {
        self.precision_ns
    }

    fn read_usage(&mut self) -> Usage {
        Usage::now()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        // Uses the minimum, because interruptions only add time.
        (0..16).map(|_| probe_ns()).min().expect("sixteen probes")
    }

    fn quick_probe_ns(&mut self) -> Option<u64> {
        Some(probe_ns())
    }

    fn sleep(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn prepare_caches(&mut self, cache: Cache) {
        if cache == Cache::Warm {
            return;
        }
        let threads = self.threads.as_mut();
        let known = self.flusher.take().filter(|flusher| flusher.is_for(cache));
        let flusher = known.unwrap_or_else(|| Flusher::new(cache, threads));
        flusher.prepare_caches(&self.activations, threads);
        self.flusher = Some(flusher);
    }
}

fn elapsed_ns(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the median difference of consecutive clock readings, or the smallest nonzero one if the median is zero.
fn precision_ns(origin: Instant) -> u64 {
    let readings: Vec<u64> = (0..257).map(|_| elapsed_ns(origin)).collect();
    let mut steps: Vec<u64> = readings.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_unstable();
    let median = steps[steps.len() / 2];
    if median > 0 { median } else { steps.into_iter().find(|&step| step > 0).unwrap_or(1) }
}

/// Times a chain of dependent multiplications, without memory accesses or parallelism.
fn probe_ns() -> u64 {
    let start = Instant::now();
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for step in 0..10_000_u64 {
        state = (state ^ step).wrapping_mul(0xd129_42f0_fe4d_31a5);
    }
    black_box(state);
    elapsed_ns(start)
}
