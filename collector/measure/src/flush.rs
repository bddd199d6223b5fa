//! Makes caches cold by writing other data, on every processor that takes part in a run.
//!
//! What one thread writes reaches its own caches and those that it shares. So each processor of a run writes a part of its
//! own. Writing takes longer than idle threads poll for work, so they are woken afterwards: their waking up is no part of a
//! run whose caches are cold.

use crate::affinity;
use crate::host::Topology;
use std::hint::black_box;
use std::sync::Mutex;
use std::thread;

/// Distance of the writes: no cache has shorter lines.
const LINE_BYTES: usize = 64;

/// The threads of a run, each on a processor of its own.
pub trait Crew {
    /// The processors, one for each thread.
    fn cpus(&self) -> &[usize];

    /// Does `work` on all threads at once, each given its place among the processors; returns when all have ended.
    fn on_each(&mut self, work: &(dyn Fn(usize) + Sync));

    /// Leaves the threads polling for work, as a run finds them that follows another at once.
    fn wake(&mut self) {
        self.on_each(&|_| ());
    }
}

/// Threads that are started for each piece of work: for runs on threads that take work from nobody else. Those cannot be
/// woken.
pub struct PinnedThreads(Vec<usize>);

impl PinnedThreads {
    /// A thread on each of these processors.
    pub fn new(cpus: &[usize]) -> PinnedThreads {
        PinnedThreads(cpus.to_vec())
    }
}

impl Crew for PinnedThreads {
    fn cpus(&self) -> &[usize] {
        &self.0
    }

    fn on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        thread::scope(|scope| {
            for (place, &cpu) in self.0.iter().enumerate() {
                scope.spawn(move || {
                    // The processors of a run are checked before; on another one the part is written all the same.
                    let _ = affinity::pin(&[cpu]);
                    work(place);
                });
            }
        });
    }

    fn wake(&mut self) {}
}

/// The calling thread alone.
pub(crate) struct ThisThread(Vec<usize>);

impl ThisThread {
    pub(crate) fn new() -> ThisThread {
        ThisThread(affinity::allowed().ok().and_then(|cpus| cpus.first().copied()).into_iter().collect())
    }
}

impl Crew for ThisThread {
    fn cpus(&self) -> &[usize] {
        &self.0
    }

    fn on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
        (0..self.0.len()).for_each(work);
    }
}

/// Data that pushes everything else out of the caches of some processors.
pub(crate) struct Flusher {
    parts: Vec<Mutex<Vec<u8>>>,
    /// Bytes that fill a last-level cache.
    bytes: u64,
}

impl Flusher {
    /// Data for the processors of a crew, where so many bytes fill a last-level cache. Each part is touched by the thread
    /// that writes it, so that it lies near and writing never waits for the system.
    pub(crate) fn new(bytes: u64, crew: &mut dyn Crew) -> Flusher {
        let topology = Topology::read(crew.cpus());
        let sizes = topology.flush_shares(crew.cpus(), bytes);
        let parts: Vec<Mutex<Vec<u8>>> = sizes.iter().map(|_| Mutex::new(Vec::new())).collect();
        crew.on_each(&|place| {
            // Not zeros: a zeroed buffer would be one shared page of the system.
            let part = vec![1; usize::try_from(sizes[place]).unwrap_or(usize::MAX)];
            *parts[place].lock().expect("nobody panics with a part") = part;
        });
        Flusher { parts, bytes }
    }

    /// Whether this is the data for so many bytes.
    pub(crate) fn is_for(&self, bytes: u64) -> bool {
        self.bytes == bytes
    }

    /// Writes every line of every part, and wakes the crew.
    pub(crate) fn flush(&self, crew: &mut dyn Crew) {
        crew.on_each(&|place| {
            let mut part = self.parts[place].lock().expect("nobody panics with a part");
            for byte in part.iter_mut().step_by(LINE_BYTES) {
                *byte = byte.wrapping_add(1);
            }
            black_box(&mut *part);
        });
        crew.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crew of made-up processors that does its work here, and keeps what was asked of it.
    #[derive(Default)]
    struct Listed {
        cpus: Vec<usize>,
        asked: Vec<&'static str>,
    }

    impl Crew for Listed {
        fn cpus(&self) -> &[usize] {
            &self.cpus
        }

        fn on_each(&mut self, work: &(dyn Fn(usize) + Sync)) {
            self.asked.push("work");
            (0..self.cpus.len()).for_each(work);
        }

        fn wake(&mut self) {
            self.asked.push("wake");
        }
    }

    #[test]
    fn every_processor_writes_its_part_and_is_awake_afterwards() {
        // Of such numbers nothing is known, so all share one cache.
        let mut crew = Listed { cpus: vec![60_001, 60_002, 60_003], ..Listed::default() };
        let flusher = Flusher::new(3 << 16, &mut crew);
        flusher.flush(&mut crew);
        flusher.flush(&mut crew);
        assert_eq!(crew.asked, ["work", "work", "wake", "work", "wake"]);
        for part in &flusher.parts {
            let part = part.lock().expect("a part");
            assert_eq!(part.len(), 1 << 16);
            assert!(part.iter().step_by(LINE_BYTES).all(|byte| *byte == 3), "each line was written twice");
        }
    }

    #[test]
    fn pinned_threads_work_on_their_own_processors() {
        let cpus = affinity::allowed().expect("this thread runs somewhere");
        let seen: Vec<Mutex<Vec<usize>>> = cpus.iter().map(|_| Mutex::default()).collect();
        PinnedThreads::new(&cpus).on_each(&|place| {
            *seen[place].lock().expect("a place") = affinity::allowed().expect("readable");
        });
        let seen: Vec<Vec<usize>> = seen.into_iter().map(|place| place.into_inner().expect("a place")).collect();
        assert_eq!(seen, cpus.iter().map(|cpu| vec![*cpu]).collect::<Vec<_>>());
    }
}
