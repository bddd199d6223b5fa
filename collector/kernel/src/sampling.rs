//! Samples the instruction pointer while compiled code runs, to find out which instructions take time.

use crate::tvm::network::{Calls, PlacedFunction};
use anyhow::Result;
use job::listing::{Hit, Samples, Sampling};
use measure::counters::Sampler;
use measure::{Clock, HostClock};
use std::collections::BTreeMap;

pub fn sample_run(
    calls: &mut Calls<'_>,
    sampler: &mut Sampler,
    sampling: Sampling,
    functions: &[PlacedFunction],
) -> Result<Samples> {
    let mut clock = HostClock::new();
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    let mut lost = 0;
    let started_ns = clock.now_ns();
    sampler.set_enabled(true);
    while clock.now_ns().saturating_sub(started_ns) < sampling.budget_ns {
        calls.run_times(1)?;
        lost += sampler.take_samples(|address| *found.entry(address).or_default() += 1);
    }
    sampler.set_enabled(false);
    lost += sampler.take_samples(|address| *found.entry(address).or_default() += 1);
    let hits: Vec<Hit> = found.iter().filter_map(|(address, count)| find_hit(functions, *address, *count)).collect();
    let taken = found.values().sum::<u64>();
    let elsewhere = taken - hits.iter().map(|hit| hit.count).sum::<u64>();
    Ok(Samples { event: sampler.event.to_owned(), hertz: sampling.hertz, taken, lost, elsewhere, hits })
}

/// Finds the function that contains an address. `functions` must be sorted by address.
fn find_hit(functions: &[PlacedFunction], address: u64, count: u64) -> Option<Hit> {
    let place = functions.partition_point(|function| function.start <= address).checked_sub(1)?;
    let function = functions.get(place).filter(|function| address < function.end)?;
    Some(Hit { code: function.code, function: function.name.clone(), offset: address - function.start, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_their_functions() {
        let function = |code, start, end| PlacedFunction { code, name: format!("f{code}"), start, end };
        let functions = [function(0, 100, 200), function(1, 200, 250), function(2, 400, 500)];
        let found = |address| find_hit(&functions, address, 1).map(|hit| (hit.code, hit.offset));
        assert_eq!(found(99), None);
        assert_eq!((found(100), found(199), found(200)), (Some((0, 0)), Some((0, 99)), Some((1, 0))));
        assert_eq!((found(250), found(400), found(500)), (None, Some((2, 0)), None));
    }
}
