//! Puts the caches of all CPUs of a run into a state. To flush them, every CPU writes its own buffer, because a thread
//! evicts lines only from caches that it uses. Pool threads fall asleep meanwhile, so they are woken afterwards, outside
//! of the timed run.

use crate::Cache;
use crate::affinity;
use crate::host::Topology;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// Smallest size of a cache line on any supported processor.
const LINE_BYTES: usize = 64;

pub trait RunThreads {
    fn cpus(&self) -> &[usize];

    /// Calls `work` on every thread, with the thread's index into `cpus`, and waits until all are done.
    fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync));

    /// Wakes the threads, so that they poll for work when the next run begins.
    fn wake_threads(&mut self) {
        self.run_on_each(&|_| ());
    }
}

/// Threads that are started and pinned for each flush, for libraries whose pool cannot run other work or be woken.
pub struct PinnedThreads(Vec<usize>);

impl PinnedThreads {
    pub fn new(cpus: &[usize]) -> PinnedThreads {
        PinnedThreads(cpus.to_vec())
    }
}

impl RunThreads for PinnedThreads {
    fn cpus(&self) -> &[usize] {
        &self.0
    }

    fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        thread::scope(|scope| {
            for (place, &cpu) in self.0.iter().enumerate() {
                scope.spawn(move || {
                    // The runner has checked its CPUs already. An unpinned thread still does its work.
                    let _ = affinity::pin_thread(&[cpu]);
                    work(place);
                });
            }
        });
    }

    fn wake_threads(&mut self) {}
}

pub(crate) struct CallingThread(Vec<usize>);

impl CallingThread {
    pub(crate) fn new() -> CallingThread {
        CallingThread(affinity::allowed_cpus().ok().and_then(|cpus| cpus.first().copied()).into_iter().collect())
    }
}

impl RunThreads for CallingThread {
    fn cpus(&self) -> &[usize] {
        &self.0
    }

    fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        (0..self.0.len()).for_each(work);
    }
}

pub(crate) struct Flusher {
    parts: Vec<Mutex<Vec<u8>>>,
    cache: Cache,
}

impl Flusher {
    /// Allocates the buffers for a state, each touched by its thread to be on the thread's NUMA node.
    pub(crate) fn new(cache: Cache, threads: &mut dyn RunThreads) -> Flusher {
        let cpus = threads.cpus();
        let sizes = match cache {
            Cache::Warm => vec![0; cpus.len()],
            Cache::Cold { flush_bytes } => Topology::read_topology(cpus).flush_shares(cpus, flush_bytes),
            Cache::Network { between_bytes } => vec![between_bytes.div_ceil(cpus.len().max(1) as u64); cpus.len()],
        };
        let parts: Vec<Mutex<Vec<u8>>> = sizes.iter().map(|_| Mutex::new(Vec::new())).collect();
        threads.run_on_each(&|place| {
            // Nonzero, because a zeroed buffer would map one shared page.
            let part = vec![1; usize::try_from(sizes[place]).unwrap_or(usize::MAX)];
            *parts[place].lock().expect("no thread panics with the lock") = part;
        });
        Flusher { parts, cache }
    }

    pub(crate) fn is_for(&self, cache: Cache) -> bool {
        self.cache == cache
    }

    pub(crate) fn prepare_caches(&self, activations: &[&[AtomicU8]], threads: &mut dyn RunThreads) {
        match self.cache {
            Cache::Warm => return,
            Cache::Cold { .. } => self.flush_caches(threads),
            Cache::Network { .. } => self.pass_by(activations, threads),
        }
        threads.wake_threads();
    }

    fn flush_caches(&self, threads: &mut dyn RunThreads) {
        threads.run_on_each(&|place| {
            let mut part = self.parts[place].lock().expect("no thread panics with the lock");
            for byte in part.iter_mut().step_by(LINE_BYTES) {
                *byte = byte.wrapping_add(1);
            }
            black_box(&mut *part);
        });
    }

    /// Does to the caches what other operators of a network do: each thread reads its share of the data, and then
    /// writes its share of the activations, without changing them.
    fn pass_by(&self, activations: &[&[AtomicU8]], threads: &mut dyn RunThreads) {
        let count = self.parts.len();
        threads.run_on_each(&|place| {
            let part = self.parts[place].lock().expect("no thread panics with the lock");
            black_box(part.iter().step_by(LINE_BYTES).fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
            for bytes in activations {
                let share = &bytes[bytes.len() * place / count..bytes.len() * (place + 1) / count];
                for byte in share.iter().step_by(LINE_BYTES) {
                    byte.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct RecordedThreads {
        cpus: Vec<usize>,
        calls: Vec<&'static str>,
    }

    impl RunThreads for RecordedThreads {
        fn cpus(&self) -> &[usize] {
            &self.cpus
        }

        fn run_on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
            self.calls.push("work");
            (0..self.cpus.len()).for_each(work);
        }

        fn wake_threads(&mut self) {
            self.calls.push("wake");
        }
    }

    #[test]
    fn a_flush_writes_every_buffer_and_then_wakes_the_threads() {
        // CPUs without topology count as sharing one cache.
        let mut threads = RecordedThreads { cpus: vec![60_001, 60_002, 60_003], ..RecordedThreads::default() };
        let flusher = Flusher::new(Cache::Cold { flush_bytes: 3 << 16 }, &mut threads);
        flusher.prepare_caches(&[], &mut threads);
        flusher.prepare_caches(&[], &mut threads);
        assert_eq!(threads.calls, ["work", "work", "wake", "work", "wake"]);
        for part in &flusher.parts {
            let part = part.lock().expect("a part");
            assert_eq!(part.len(), 1 << 16);
            assert!(part.iter().step_by(LINE_BYTES).all(|byte| *byte == 3), "each line was written twice");
        }
    }

    #[test]
    fn a_network_passes_by_without_a_change_of_data() {
        let mut threads = RecordedThreads { cpus: vec![60_001, 60_002, 60_003], ..RecordedThreads::default() };
        let flusher = Flusher::new(Cache::Network { between_bytes: 1000 }, &mut threads);
        let bytes: Vec<AtomicU8> = (0..=255).map(AtomicU8::new).collect();
        flusher.prepare_caches(&[&bytes, &[]], &mut threads);
        assert_eq!(threads.calls, ["work", "work", "wake"]);
        let sizes: Vec<usize> = flusher.parts.iter().map(|part| part.lock().expect("a part").len()).collect();
        assert_eq!(sizes, [334; 3], "a thread's share");
        assert!((0..=255).zip(&bytes).all(|(wanted, byte)| byte.load(Ordering::Relaxed) == wanted));
    }

    #[test]
    fn pinned_threads_work_on_their_own_processors() {
        let cpus = affinity::allowed_cpus().expect("this thread runs somewhere");
        let seen: Vec<Mutex<Vec<usize>>> = cpus.iter().map(|_| Mutex::default()).collect();
        PinnedThreads::new(&cpus).run_on_each(&|place| {
            *seen[place].lock().expect("a place") = affinity::allowed_cpus().expect("readable");
        });
        let seen: Vec<Vec<usize>> = seen.into_iter().map(|place| place.into_inner().expect("a place")).collect();
        assert_eq!(seen, cpus.iter().map(|cpu| vec![*cpu]).collect::<Vec<_>>());
    }
}
