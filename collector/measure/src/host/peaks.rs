//! The attainable memory bandwidth, for rooflines: plain streaming loops on one to many pinned threads.
//!
//! Peaks of arithmetic are measured with a compiled kernel elsewhere; this needs no compiler. A program built without
//! optimisation streams more slowly than the memory could; measure with a release build.

use std::{
    hint::black_box,
    sync::{Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::affinity;

use super::Facts;

/// How to stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streaming {
    /// Memory of all three arrays of all threads together; several times the last-level cache.
    pub bytes: u64,
    /// Passes per number of threads; the best counts.
    pub passes: u32,
    /// Processors to use, one per thread, in this order.
    pub cpus: Vec<usize>,
}

impl Streaming {
    /// Four times the last-level cache, at least 192 MiB, within a quarter of the memory and 4 GiB.
    pub fn for_machine(facts: &Facts) -> Self {
        let wanted = facts.last_level_cache_bytes().unwrap_or(64 << 20).saturating_mul(4).max(192 << 20);
        let most = facts.memory_bytes.unwrap_or(1 << 30) / 4;
        Self { bytes: wanted.min(most).min(4 << 30), passes: 5, cpus: facts.allowed_cpus.clone() }
    }
}

/// What a number of threads can move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Threads at work, each on a processor of its own.
    pub threads: u32,
    /// Summing one array.
    pub read_bytes_per_second: f64,
    /// `a = b + s c`, counted as three arrays; what the write reads first is not counted.
    pub triad_bytes_per_second: f64,
}

/// Why bandwidth cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum StreamingError {
    /// A thread cannot be pinned.
    #[error(transparent)]
    Affinity(#[from] affinity::AffinityError),
    /// The settings make no sense.
    #[error(
        "cannot stream {bytes} bytes in {passes} passes on {cpus} processors: each must be at least 1, and bytes 4096 per processor"
    )]
    Settings {
        /// Memory asked for.
        bytes: u64,
        /// Passes asked for.
        passes: u32,
        /// Number of processors given.
        cpus: usize,
    },
    /// A thread could not be started or its arrays not be had.
    #[error("cannot start a streaming thread or get its memory")]
    Thread,
}

/// Measures with 1, 2, 4 … and finally all processors.
pub fn bandwidth(streaming: &Streaming) -> Result<Vec<Bandwidth>, StreamingError> {
    let Streaming { bytes, passes, cpus } = streaming;
    if cpus.is_empty() || *passes == 0 || *bytes < 4096 * cpus.len() as u64 {
        return Err(StreamingError::Settings { bytes: *bytes, passes: *passes, cpus: cpus.len() });
    }
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count < cpus.len()).collect();
    counts.push(cpus.len());
    counts.into_iter().map(|count| with_threads(streaming, &cpus[..count])).collect()
}

/// Times of one thread, pass by pass: of reading and of the triad.
type Passes = Vec<[(Instant, Instant); 2]>;

fn with_threads(streaming: &Streaming, cpus: &[usize]) -> Result<Bandwidth, StreamingError> {
    let elements = usize::try_from(streaming.bytes / 3 / 8 / cpus.len() as u64).unwrap_or(usize::MAX);
    let barrier = Barrier::new(cpus.len());
    let (barrier, passes) = (&barrier, streaming.passes);
    let times: Vec<Passes> = thread::scope(|scope| {
        // Nobody may go to the barrier before all exist: one that cannot be started would be waited for for ever.
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for &cpu in cpus {
            let (start, started) = mpsc::channel();
            let work = move || match started.recv() {
                Ok(()) => stream(cpu, elements, passes, barrier),
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
    })?;
    let array_bytes = (elements * turns(elements) * 8 * cpus.len()) as f64;
    Ok(Bandwidth {
        threads: u32::try_from(cpus.len()).unwrap_or(u32::MAX),
        read_bytes_per_second: array_bytes / best(&times, 0).as_secs_f64(),
        triad_bytes_per_second: 3.0 * array_bytes / best(&times, 1).as_secs_f64(),
    })
}

/// The shortest time in which all threads did their pass, from the first start to the last end.
fn best(times: &[Passes], kind: usize) -> Duration {
    let passes = times[0].len();
    let whole = |pass: usize| {
        let of_pass = times.iter().map(|passes| passes[pass][kind]);
        let start = of_pass.clone().map(|(start, _)| start).min();
        let end = of_pass.map(|(_, end)| end).max();
        end.zip(start).map_or(Duration::MAX, |(end, start)| end - start)
    };
    (0..passes).map(whole).min().unwrap_or(Duration::MAX).max(Duration::from_nanos(1))
}

/// How often arrays of so many elements are gone through in one pass, so that a pass of little memory lasts long enough for the
/// clock.
fn turns(elements: usize) -> usize {
    const ELEMENTS_MIN: usize = 1 << 17;
    (ELEMENTS_MIN / elements.max(1)).max(1)
}

fn stream(cpu: usize, elements: usize, passes: u32, barrier: &Barrier) -> Result<Passes, StreamingError> {
    // A failure must not leave the others at the barrier, so it is kept until all have passed.
    let pinned = affinity::pin(&[cpu]);
    // Touched here, on the processor that will use them: memory lies near the one that touches it first.
    let mut sums = vec![0.0_f64; elements];
    let (left, right) = (vec![1.5_f64; elements], vec![2.5_f64; elements]);
    sums.fill(1.0);
    let mut times = Passes::with_capacity(passes as usize);
    for _ in 0..passes {
        let timed = |work: &mut dyn FnMut()| {
            barrier.wait();
            let start = Instant::now();
            work();
            (start, Instant::now())
        };
        let read = timed(&mut || {
            for _ in 0..turns(elements) {
                black_box(sum(black_box(&left)));
            }
        });
        let triad = timed(&mut || {
            for _ in 0..turns(elements) {
                for ((sum, left), right) in sums.iter_mut().zip(black_box(&left)).zip(black_box(&right)) {
                    *sum = left + 3.0 * right;
                }
                black_box(&mut sums);
            }
        });
        times.push([read, triad]);
    }
    pinned?;
    Ok(times)
}

/// Sixteen sums at once: one would wait for each addition instead of the memory.
fn sum(values: &[f64]) -> f64 {
    let mut sums = [0.0; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum::<f64>() + rest.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_threads_moves_something() {
        let cpus = affinity::allowed().expect("this thread runs somewhere");
        let streaming = Streaming { bytes: 6 << 20, passes: 2, cpus: cpus.into_iter().take(3).collect() };
        let points = bandwidth(&streaming).expect("allowed processors");
        assert_eq!(points.last().map(|point| point.threads as usize), Some(streaming.cpus.len()));
        let is_finite = |rate: f64| rate.is_finite() && rate > 0.0;
        assert!(points.iter().all(|point| is_finite(point.read_bytes_per_second)), "{points:?}");
        assert!(points.iter().all(|point| is_finite(point.triad_bytes_per_second)), "{points:?}");
    }

    #[test]
    fn a_processor_that_does_not_exist_is_an_error() {
        let cpus = affinity::allowed().expect("this thread runs somewhere");
        let refused = bandwidth(&Streaming { bytes: 1 << 20, passes: 1, cpus: vec![cpus[0], 70_000] });
        assert!(matches!(refused, Err(StreamingError::Affinity(_))), "{refused:?}");
        let refused = bandwidth(&Streaming { bytes: 1 << 20, passes: 1, cpus: vec![] });
        assert!(matches!(refused, Err(StreamingError::Settings { .. })), "{refused:?}");
    }

    #[test]
    fn the_whole_pass_counts_from_the_first_start_to_the_last_end() {
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let times =
            vec![vec![[(at(0), at(5)); 2], [(at(10), at(14)); 2]], vec![[(at(1), at(4)); 2], [(at(11), at(16)); 2]]];
        assert_eq!(best(&times, 0), Duration::from_millis(5));
    }
}
