//! Interleaved comparison of several ways to do the same work. Each way runs on several threads (lanes), which start
//! together; a run lasts until the last lane ends. Lanes sleep during the phases of other ways. A failed lane continues
//! without running, so that other lanes need not wait for it.

use super::{Ratio, Together, paired_ratio, statistics};
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

pub struct Race {
    barrier: Barrier,
    ways: Vec<RaceWay>,
    is_over: AtomicBool,
}

struct RaceWay {
    lanes: usize,
    arrived: AtomicUsize,
    ended: AtomicUsize,
    is_last: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTimes {
    pub rounds_ns: Vec<f64>,
}

impl RoundTimes {
    pub fn median_ns(&self) -> Option<f64> {
        statistics::median(&self.rounds_ns)
    }

    pub fn ratio_to(&self, other: &RoundTimes) -> Option<Ratio> {
        paired_ratio(&self.rounds_ns, &other.rounds_ns)
    }
}

impl Race {
    /// Creates a race; `lanes` holds the number of lanes of each way.
    pub fn new(lanes: &[usize]) -> Race {
        let way = |&lanes: &usize| RaceWay {
            lanes,
            arrived: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            is_last: AtomicBool::new(false),
        };
        Race {
            barrier: Barrier::new(lanes.iter().sum()),
            ways: lanes.iter().map(way).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs a lane on the calling thread. Only the first lane of a way returns times, which are those of the whole way.
    pub fn run_lane<E>(
        &self,
        (way, lane): (usize, usize),
        run: &mut dyn FnMut() -> Result<(), E>,
        rule: &Together,
    ) -> Result<RoundTimes, E> {
        let began = Instant::now();
        let (mut failure, mut course) = (None, RoundTimes { rounds_ns: Vec::new() });
        let mut once = |failure: &mut Option<E>| {
            if failure.is_none()
                && let Err(error) = run()
            {
                *failure = Some(error);
            }
        };
        once(&mut failure);
        for _ in 0..rule.rounds {
            if (way, lane) == (0, 0) && elapsed_ns(began) > rule.time_limit_ns {
                self.is_over.store(true, Ordering::Relaxed);
            }
            self.barrier.wait();
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            for turn in 0..self.ways.len() {
                self.barrier.wait();
                if turn == way {
                    let samples = self.ways[way].run_phase(lane, &mut || once(&mut failure), rule);
                    course.rounds_ns.extend(statistics::median(&samples));
                }
            }
        }
        failure.map_or(Ok(course), Err)
    }
}

impl RaceWay {
    /// Runs a lane for one phase. Only the first lane of the way returns times, which exclude the phase's first run.
    fn run_phase(&self, lane: usize, run: &mut dyn FnMut(), rule: &Together) -> Vec<f64> {
        let (mut samples, began) = (Vec::new(), Instant::now());
        for time in 0usize.. {
            // The last lane to arrive releases the others. The count only grows, so consecutive barriers cannot mix.
            let own = self.arrived.fetch_add(1, Ordering::AcqRel);
            let all = (own / self.lanes + 1) * self.lanes;
            spin_until(|| self.arrived.load(Ordering::Acquire) >= all);
            let start = Instant::now();
            run();
            self.ended.fetch_add(1, Ordering::AcqRel);
            spin_until(|| self.ended.load(Ordering::Acquire) >= all);
            if lane == 0 {
                if time > 0 {
                    samples.push(elapsed_ns(start) as f64);
                }
                let is_enough = samples.len() >= rule.samples_min as usize && elapsed_ns(began) >= rule.phase_ns;
                self.is_last.store(is_enough, Ordering::Release);
            }
            // All lanes must read the end of the phase before another run begins.
            let own = self.arrived.fetch_add(1, Ordering::AcqRel);
            let all = (own / self.lanes + 1) * self.lanes;
            spin_until(|| self.arrived.load(Ordering::Acquire) >= all);
            self.ended.fetch_add(1, Ordering::AcqRel);
            spin_until(|| self.ended.load(Ordering::Acquire) >= all);
            if self.is_last.load(Ordering::Acquire) {
                break;
            }
        }
        samples
    }
}

fn elapsed_ns(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Spins until `is_over`; yields occasionally, because there may be more lanes than cores.
fn spin_until(mut is_over: impl FnMut() -> bool) {
    const ALONE: u32 = 10_000;
    let mut polls = 0u32;
    while !is_over() {
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(ALONE) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn rule() -> Together {
        Together { rounds: 3, phase_ns: 1_000, samples_min: 2, ..Together::default() }
    }

    #[test]
    fn lanes_run_equally_often_and_ways_in_turns() {
        let (race, counts, running) = (Race::new(&[2, 1]), [const { AtomicU32::new(0) }; 3], AtomicU32::new(0));
        let courses: Vec<RoundTimes> = std::thread::scope(|scope| {
            let lane = |place: (usize, usize), number: usize| {
                let (race, counts, running) = (&race, &counts, &running);
                scope.spawn(move || {
                    let mut run = || {
                        counts[number].fetch_add(1, Ordering::Relaxed);
                        // A running lane of the other way would set its bit.
                        let bit = 1 << (8 * place.0);
                        running.fetch_add(bit, Ordering::SeqCst);
                        let seen = running.load(Ordering::SeqCst);
                        running.fetch_sub(bit, Ordering::SeqCst);
                        let is_warm = counts[number].load(Ordering::Relaxed) > 1;
                        if is_warm && seen & 0xff != 0 && seen >> 8 != 0 { Err("both ways at once") } else { Ok(()) }
                    };
                    race.run_lane(place, &mut run, &rule()).expect("nothing fails")
                })
            };
            let lanes = [lane((0, 0), 0), lane((0, 1), 1), lane((1, 0), 2)];
            lanes.into_iter().map(|lane| lane.join().expect("no panic")).collect()
        });
        let seen = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(seen[0], seen[1], "lanes of a way begin together each time");
        assert!(seen[0] > 3 * 3 && seen[2] > 3 * 3, "{seen:?}");
        assert_eq!((courses[0].rounds_ns.len(), courses[2].rounds_ns.len()), (3, 3));
        assert!(courses[0].ratio_to(&courses[2]).is_some_and(|ratio| ratio.median > 0.0));
        assert_eq!(RoundTimes { rounds_ns: vec![] }.median_ns(), None);
    }

    #[test]
    fn who_fails_keeps_nobody_waiting() {
        let race = Race::new(&[2]);
        std::thread::scope(|scope| {
            let whole = scope.spawn(|| race.run_lane((0, 0), &mut || Ok::<(), &str>(()), &rule()));
            let broken = scope.spawn(|| race.run_lane((0, 1), &mut || Err("broken"), &rule()));
            assert!(whole.join().expect("no panic").is_ok());
            assert_eq!(broken.join().expect("no panic"), Err("broken"));
        });
    }
}
