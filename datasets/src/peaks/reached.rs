//! Rates that operators reached, as lower bounds of the peaks; a rate counts only if a second attempt confirms it.

use crate::record::key::Key;
use crate::record::table::Record;
use crate::record::words::{CacheState, Outcome, Source};
use std::collections::{BTreeMap, HashMap};

/// The best rates of operators on one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// Operations per second of 32-bit floating-point contractions, by threads.
    compute: BTreeMap<u32, Rates>,
    /// Bytes per second, by threads and by the bytes moved, rounded down to a power of two.
    memory: BTreeMap<(u32, u64), Rates>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Rates(HashMap<Key, Visits>);

/// The two best rates of an experiment from different attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Visits {
    best: f64,
    /// Start of the attempt with the best rate.
    started_at_us: i64,
    second: Option<f64>,
}

impl Reached {
    /// Adds a record; only operators measured in isolation and with little scatter within the process (visit) count.
    pub fn add_record(&mut self, record: &Record) {
        /// Maximum relative half-width of the confidence interval within a process (visit).
        const QUIET: f64 = 0.02;
        let is_alone = record.outcome == Outcome::Ok && record.source == Source::Measured && record.is_alone();
        let is_quiet = record.uncertainty_within_visit().is_some_and(|uncertainty| uncertainty <= QUIET);
        let (true, Some(median_ns)) = (is_alone && is_quiet, record.median_ns) else { return };
        let threads = record.threads.and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1);
        if record.macs > Some(0) && computes_all(record) && record.dtype.as_deref() == Some("f32") {
            self.compute.entry(threads).or_default().add_record(record, count_or_zero(record.flops) / median_ns * 1e9);
        }
        let bytes =
            count_or_zero(record.bytes_in) + count_or_zero(record.bytes_out) + count_or_zero(record.bytes_weights);
        if moves_all(record) && bytes >= 1.0 {
            let of_size = self.memory.entry((threads, 1 << (bytes as u64).ilog2())).or_default();
            of_size.add_record(record, bytes / median_ns * 1e9);
        }
    }

    /// Returns the best confirmed operations per second for a number of threads.
    pub fn flops_per_second(&self, threads: u32) -> Option<f64> {
        self.compute.get(&threads).and_then(Rates::confirmed_rate)
    }

    /// Returns the best confirmed bytes per second, by threads and by power of two of the bytes moved.
    pub fn bytes_per_second(&self) -> impl Iterator<Item = ((u32, u64), f64)> {
        self.memory.iter().filter_map(|(of, rates)| Some((*of, rates.confirmed_rate()?)))
    }

    /// Returns the best operations per second of any attempt, for any number of threads.
    pub fn best_flops_per_second(&self) -> Option<f64> {
        self.compute.values().filter_map(Rates::best_rate).reduce(f64::max)
    }

    /// Returns the best bytes per second among the operators that moved the most bytes.
    pub fn best_bytes_per_second(&self) -> Option<f64> {
        self.memory.iter().max_by_key(|((_, bytes), _)| *bytes).and_then(|(_, rates)| rates.best_rate())
    }

    pub(super) fn moved_sizes(&self, threads: u32) -> impl Iterator<Item = u64> {
        self.memory.keys().filter(move |(of, _)| *of == threads).map(|(_, bytes)| *bytes)
    }
}

impl Rates {
    fn add_record(&mut self, record: &Record, rate: f64) {
        let started_at_us = record.started_at_us;
        let first = Visits { best: rate, started_at_us, second: None };
        let Some(visits) = self.0.get_mut(&record.key) else {
            self.0.insert(record.key, first);
            return;
        };
        // An attempt that is read twice, from a store and its copy, does not confirm itself.
        if visits.started_at_us == started_at_us {
            return;
        }
        *visits = match rate > visits.best {
            true => Visits { second: Some(visits.best), ..first },
            false => Visits { second: Some(visits.second.map_or(rate, |second| second.max(rate))), ..*visits },
        };
    }

    fn confirmed_rate(&self) -> Option<f64> {
        self.0.values().filter_map(|visits| visits.second).reduce(f64::max)
    }

    fn best_rate(&self) -> Option<f64> {
        self.0.values().map(|visits| visits.best).reduce(f64::max)
    }
}

/// Returns whether code computes all counted operations; false for attention, whose skipped pairs were once counted.
fn computes_all(record: &Record) -> bool {
    !record.saves_products() && record.op_kind != "attention"
}

/// Returns whether a run moves all counted bytes. Excludes strided windows, slices and masked attention, which skip
/// bytes, and runs with caches that are not warm, because a flush may leave data in the caches.
fn moves_all(record: &Record) -> bool {
    const ELEMENT_BYTES: f64 = 4.0;
    let is_alone = !record.op_name.contains('+');
    let touches_each = || {
        count_or_zero(record.flops) * ELEMENT_BYTES
            >= count_or_zero(record.bytes_in) + count_or_zero(record.bytes_weights)
    };
    match record.macs {
        _ if record.cache_state.is_some_and(|state| state != CacheState::Warm) => false,
        Some(macs) if macs > 0 => ["matmul", "dense"].contains(&record.op_kind.as_str()),
        _ => is_alone && record.flops > Some(0) && touches_each(),
    }
}

fn count_or_zero(column: Option<i64>) -> f64 {
    column.unwrap_or(0).max(0) as f64
}
