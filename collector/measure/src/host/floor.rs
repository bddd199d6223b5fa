//! Measures the noise floor of this host: the scatter between repeated measurements (visits) of fixed workloads.

use super::Facts;
use crate::counters::NoCounters;
use crate::synthetic::{Load, Synthetic};
use crate::{HostClock, Measurement, Plan, affinity, sample_runs};
use std::convert::Infallible;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Number of rounds over all workloads, spread evenly over the duration.
pub const FLOOR_ROUNDS: u32 = 20;

#[derive(Clone, Debug, PartialEq)]
pub struct FloorVisits {
    pub load: Synthetic,
    pub threads: usize,
    /// One measurement per round; with several threads, the one of the thread with the median time.
    pub visits: Vec<Measurement>,
}

/// Measures arithmetic, cache and memory workloads, on one CPU and on all of `cpus`, for about `duration`. Calls
/// `report_round` after each round.
pub fn floor_visits(
    duration: Duration,
    facts: &Facts,
    cpus: &[usize],
    report_round: &mut dyn FnMut(u32),
) -> Result<Vec<FloorVisits>, affinity::AffinityError> {
    let cache = Synthetic::Cache {
        bytes: facts.caches.iter().find(|one| one.level == 2).map_or(256 << 10, |one| one.size_bytes / 2),
    };
    let mut found: Vec<FloorVisits> = Vec::new();
    for threads in [1, cpus.len()] {
        if found.iter().all(|known| known.threads != threads) {
            let loads = [Synthetic::Arithmetic, cache, Synthetic::Bandwidth];
            found.extend(loads.map(|load| FloorVisits { load, threads, visits: Vec::new() }));
        }
    }
    let cache_bytes = facts.last_level_cache_bytes().unwrap_or(0);
    let began = Instant::now();
    for round in 0..FLOOR_ROUNDS {
        for one in &mut found {
            one.visits.push(measure_visit(one.load, cache_bytes, &cpus[..one.threads])?);
        }
        report_round(round + 1);
        let due = duration * (round + 1) / FLOOR_ROUNDS;
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    Ok(found)
}

fn measure_visit(load: Synthetic, cache_bytes: u64, cpus: &[usize]) -> Result<Measurement, affinity::AffinityError> {
    let barrier = Barrier::new(cpus.len());
    let plan = Plan { time_budget_ns: 30_000_000, sampling_time_min_ns: 20_000_000, ..Plan::default() };
    let work = |cpu: usize| {
        let pinned = affinity::pin_thread(&[cpu]);
        let mut load = Load::new(load, cache_bytes / cpus.len() as u64);
        barrier.wait();
        pinned?;
        let mut run = |times: u32| {
            load.run_times(times);
            Ok::<(), Infallible>(())
        };
        let Ok(measured) = sample_runs(&mut run, &plan, &mut HostClock::new(), &mut NoCounters);
        Ok(measured)
    };
    let measured = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| {
                let work = &work;
                scope.spawn(move || work(cpu))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("a visit does not panic"));
        joined.collect::<Result<Vec<Measurement>, affinity::AffinityError>>()
    })?;
    Ok(Measurement::of_visits(measured).expect("there is a CPU"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_work_is_visited_in_every_round() {
        let cpus: Vec<usize> =
            affinity::allowed_cpus().expect("this thread runs somewhere").into_iter().take(2).collect();
        let mut rounds = Vec::new();
        let found =
            floor_visits(Duration::ZERO, &Facts::read_facts(), &cpus, &mut |round| rounds.push(round)).expect("pinned");
        assert_eq!(rounds.len(), FLOOR_ROUNDS as usize);
        assert_eq!(found.len(), 3 * cpus.len());
        assert!(found.iter().all(|one| one.visits.len() == FLOOR_ROUNDS as usize));
        assert!(found.iter().flat_map(|one| &one.visits).all(|visit| visit.median_ns > 0.0));
    }
}
