//! Measures the bandwidth of each memory level for rooflines, on pinned threads. Debug builds measure too little.

use super::Topology;
use super::streams::{self, Kind, LINE, LINE_BYTES};
use crate::affinity;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streaming {
    pub cpus: Vec<usize>,
    /// Sizes of the working sets in bytes, each summed over all threads.
    pub working_sets: Vec<u64>,
    /// Cache levels, L1 first, each with the total size of its caches in bytes.
    levels: Vec<(u32, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StreamRate {
    pub working_set_bytes: u64,
    /// Memory level: `L1`, `L2`, `L3` or `DRAM`.
    pub level: String,
    /// Kind of access: `read`, `write`, `copy` or `triad`.
    pub kind: &'static str,
    pub bytes_per_second: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum StreamingError {
    #[error(transparent)]
    Affinity(#[from] affinity::AffinityError),
    #[error("there is no processor to measure memory bandwidth on")]
    NoProcessor,
    #[error("cannot start a thread that measures memory bandwidth, or allocate its memory")]
    Thread,
}

impl Streaming {
    /// Plans working sets from half of the L1 caches to four times the last-level caches, if memory permits.
    pub fn for_cpus(cpus: &[usize], memory_bytes: u64) -> Streaming {
        let levels = Topology::read_topology(cpus).cache_levels(cpus);
        Streaming { cpus: cpus.to_vec(), working_sets: working_sets(&levels, memory_bytes), levels }
    }

    fn level_name(&self, working_set_bytes: u64) -> String {
        match self.levels.iter().find(|(_, bytes)| working_set_bytes <= *bytes) {
            Some((level, _)) => format!("L{level}"),
            None => "DRAM".to_owned(),
        }
    }
}

fn working_sets(levels: &[(u32, u64)], memory_bytes: u64) -> Vec<u64> {
    /// Default size of the first cache level, if sysfs lists no caches.
    const FIRST_BYTES: u64 = 32 << 10;
    const LAST_BYTES: u64 = 32 << 20;
    const BYTES_MAX: u64 = 4 << 30;
    let first = levels.first().map_or(FIRST_BYTES, |(_, bytes)| *bytes);
    let last = levels.last().map_or(LAST_BYTES, |(_, bytes)| *bytes);
    let most = last.saturating_mul(4).min(memory_bytes / 4).min(BYTES_MAX);
    let (least, most) = ((first / 2).max(1 << 12).ilog2(), most.max(1).ilog2());
    (least..=most).map(|power| 1 << power).collect()
}

#[derive(Clone, Copy)]
struct PassPlan {
    elements: usize,
    /// Repetitions within a timed pass, so that the pass is long compared with the skew between threads.
    repeats: usize,
    passes: usize,
}

impl PassPlan {
    fn for_working_set(working_set_bytes: u64, threads: u64) -> PassPlan {
        const PASS_BYTES: u64 = 32 << 20;
        /// Target number of bytes per thread over all passes.
        const ALL_BYTES: u64 = 512 << 20;
        let own_bytes = (working_set_bytes / threads).max(3 * LINE_BYTES as u64);
        let repeats = PASS_BYTES.div_ceil(own_bytes);
        let passes = (ALL_BYTES / (repeats * own_bytes)).clamp(4, 16);
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        PassPlan { elements: number(own_bytes) / size_of::<f64>(), repeats: number(repeats), passes: number(passes) }
    }

    fn pass_bytes(&self, kind: Kind) -> u64 {
        let elements = streams::elements_per_array(kind, self.elements) * kind.array_count();
        (elements * size_of::<f64>() * self.repeats) as u64
    }
}

/// Start and end of each pass of one thread, by working set, kind and pass.
type Passes = Vec<(Instant, Instant)>;

pub fn stream_rates(streaming: &Streaming) -> Result<Vec<StreamRate>, StreamingError> {
    let Streaming { cpus, working_sets, .. } = streaming;
    if cpus.is_empty() {
        return Err(StreamingError::NoProcessor);
    }
    let plans: Vec<PassPlan> =
        working_sets.iter().map(|bytes| PassPlan::for_working_set(*bytes, cpus.len() as u64)).collect();
    let times = all_threads(cpus, &plans)?;
    let mut rates = Vec::new();
    let mut first = 0;
    for (&working_set_bytes, plan) in working_sets.iter().zip(&plans) {
        for kind in Kind::ALL {
            let best = shortest_pass(&times, first..first + plan.passes);
            let moved = plan.pass_bytes(kind) * cpus.len() as u64;
            first += plan.passes;
            rates.push(StreamRate {
                working_set_bytes,
                level: streaming.level_name(working_set_bytes),
                kind: kind.stream_name(),
                bytes_per_second: moved as f64 / best.as_secs_f64(),
            });
        }
    }
    Ok(rates)
}

fn all_threads(cpus: &[usize], plans: &[PassPlan]) -> Result<Vec<Passes>, StreamingError> {
    let barrier = &SpinBarrier { arrived: AtomicUsize::new(0), threads: cpus.len() };
    thread::scope(|scope| {
        // No thread may enter the barrier before all exist; otherwise a failed start would block the others forever.
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for &cpu in cpus {
            let (start, started) = mpsc::channel();
            let work = move || match started.recv() {
                Ok(()) => run_passes(cpu, plans, barrier),
                Err(mpsc::RecvError) => Err(StreamingError::Thread),
            };
            threads.push(thread::Builder::new().spawn_scoped(scope, work).map_err(|_| StreamingError::Thread)?);
            starts.push(start);
        }
        for start in starts {
            start.send(()).map_err(|_| StreamingError::Thread)?;
        }
        let times = threads.into_iter().map(|thread| thread.join().map_err(|_| StreamingError::Thread)?);
        times.collect::<Result<_, StreamingError>>()
    })
}

/// A barrier that spins at first, because waking a sleeping thread would take as long as a pass over a cache.
struct SpinBarrier {
    arrived: AtomicUsize,
    threads: usize,
}

impl SpinBarrier {
    fn wait_for_round(&self, round: usize) {
        /// Number of polls before the thread sleeps: the others do not come at once if other processes use their CPUs.
        const PATIENCE: usize = 1 << 16;
        const NAP: Duration = Duration::from_micros(50);
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut polled: usize = 0;
        while self.arrived.load(Ordering::Acquire) < round * self.threads {
            polled += 1;
            match polled > PATIENCE {
                true => thread::sleep(NAP),
                false => std::hint::spin_loop(),
            }
        }
    }
}

fn run_passes(cpu: usize, plans: &[PassPlan], barrier: &SpinBarrier) -> Result<Passes, StreamingError> {
    // A failure is returned after all passes, so that the other threads do not block at the barrier.
    let pinned = affinity::pin_thread(&[cpu]);
    let most = plans.iter().map(|plan| plan.elements).max().unwrap_or(0);
    let mut memory: Vec<f64> = Vec::new();
    let has_memory = memory.try_reserve_exact(most + LINE).is_ok();
    // First touch on the thread's own CPU places the pages on its NUMA node.
    memory.resize(if has_memory { most + LINE } else { LINE }, 1.5);
    let first = memory.as_ptr().align_offset(LINE_BYTES).min(LINE);
    let memory = &mut memory[first..];
    let mut times = Passes::new();
    for plan in plans {
        let own = plan.elements.min(memory.len());
        for kind in Kind::ALL {
            for _ in 0..plan.passes {
                barrier.wait_for_round(times.len() + 1);
                let start = Instant::now();
                for _ in 0..plan.repeats {
                    black_box(streams::run_pass(kind, black_box(&mut memory[..own])));
                }
                times.push((start, Instant::now()));
            }
        }
    }
    pinned?;
    if has_memory { Ok(times) } else { Err(StreamingError::Thread) }
}

/// Returns the duration of the shortest pass, each timed from the first start to the last end of all threads.
fn shortest_pass(times: &[Passes], passes: std::ops::Range<usize>) -> Duration {
    let whole = |pass: usize| {
        let of_pass = times.iter().map(|passes| passes[pass]);
        let start = of_pass.clone().map(|(start, _)| start).min();
        let end = of_pass.map(|(_, end)| end).max();
        end.zip(start).map_or(Duration::MAX, |(end, start)| end - start)
    };
    passes.map(whole).min().unwrap_or(Duration::MAX).max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_moves_something_at_every_level() {
        let cpus: Vec<usize> =
            affinity::allowed_cpus().expect("this thread runs somewhere").into_iter().take(3).collect();
        let levels = vec![(1, 32 << 10), (2, 1 << 20)];
        let working_sets = vec![1 << 14, 1 << 18, 1 << 22];
        let streaming = Streaming { cpus, working_sets, levels };
        let rates = stream_rates(&streaming).expect("allowed processors");
        let found: Vec<(u64, &str, &str)> =
            rates.iter().map(|rate| (rate.working_set_bytes, rate.level.as_str(), rate.kind)).collect();
        let sets = [(1 << 14, "L1"), (1 << 18, "L2"), (1 << 22, "DRAM")];
        let wanted: Vec<(u64, &str, &str)> =
            sets.iter().flat_map(|(bytes, level)| Kind::ALL.map(|kind| (*bytes, *level, kind.stream_name()))).collect();
        assert_eq!(found, wanted);
        assert!(rates.iter().all(|rate| rate.bytes_per_second.is_finite() && rate.bytes_per_second > 0.0), "{rates:?}");
    }

    #[test]
    fn working_sets_go_beyond_the_last_cache_and_stay_within_memory() {
        let ends = |levels: &[(u32, u64)], memory_bytes| {
            let sets = working_sets(levels, memory_bytes);
            (sets[0], sets[sets.len() - 1])
        };
        let desktop = [(1, 48 << 10), (2, 1 << 20), (3, 32 << 20)];
        assert_eq!(ends(&desktop, 16 << 30), (1 << 14, 128 << 20));
        assert_eq!(ends(&desktop, 128 << 20), (1 << 14, 32 << 20), "a quarter of the memory");
        let server = [(1, 64 * (48 << 10)), (2, 64 << 21), (3, 260 << 20)];
        assert_eq!(ends(&server, 1 << 40), (1 << 20, 1 << 30));
        let board = [(1, 2 * (32 << 10)), (2, 512 << 10)];
        assert_eq!(ends(&board, 512 << 20), (32 << 10, 2 << 20));
        assert_eq!(ends(&[], 16 << 30), (1 << 14, 128 << 20), "nothing is told");
        assert!(working_sets(&desktop, 0).is_empty(), "there is no memory for any");
    }

    #[test]
    fn a_processor_that_does_not_exist_is_an_error() {
        let cpus = affinity::allowed_cpus().expect("this thread runs somewhere");
        let on = |cpus| Streaming { cpus, working_sets: vec![1 << 14], levels: Vec::new() };
        let refused = stream_rates(&on(vec![cpus[0], 70_000]));
        assert!(matches!(refused, Err(StreamingError::Affinity(_))), "{refused:?}");
        assert!(matches!(stream_rates(&on(vec![])), Err(StreamingError::NoProcessor)));
    }

    #[test]
    fn the_whole_pass_counts_from_the_first_start_to_the_last_end() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let times = vec![vec![(at(0), at(5)), (at(10), at(14))], vec![(at(1), at(4)), (at(11), at(16))]];
        assert_eq!(shortest_pass(&times, 0..2), Duration::from_millis(5));
        assert_eq!(shortest_pass(&times, 1..2), Duration::from_millis(6));
    }
}
