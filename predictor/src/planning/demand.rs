//! What operators ask of a machine, from their times and what they move; what a machine has, from records and peaks.

use datasets::{Peaks, Record};
use models::Task;
use planners::interference::{Demand, Machine};

/// A time and the interval it is known to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    /// The time.
    pub time_ns: f64,
    /// From here …
    pub low_ns: f64,
    /// … to here.
    pub high_ns: f64,
    /// Whether it was measured, not predicted.
    pub is_measured: bool,
}

/// Without a record of it, a host has a last cache of so many bytes.
const CACHE_BYTES: f64 = 32e6;

/// What all cores move to and from memory, as far as that was measured.
pub fn bytes_per_ns(peaks: &Peaks, cores: usize) -> f64 {
    let rate = peaks.bytes_per_second(cores as f64, f64::INFINITY).map(|rate| rate * 1e-9);
    rate.filter(|rate| *rate > 0.0).unwrap_or(10.0 * cores as f64)
}

/// The last cache of the host that records are of.
pub fn cache_bytes(records: &[Record]) -> f64 {
    let bytes = records.iter().filter_map(|record| record.l3_bytes.or(record.l2_bytes)).max();
    bytes.filter(|bytes| *bytes > 0).map_or(CACHE_BYTES, |bytes| bytes as f64)
}

/// What a task asks of a machine where it takes these times alone, and so many times longer while other cores are busy. It
/// moves its bytes from memory only where they do not fit the last cache.
pub fn demand(task: &Task, times: &[Time], machine: &Machine, crowding: &[f64]) -> Demand {
    let bytes = task.work().map_or(0.0, |work| work.bytes() as f64);
    let is_resident = bytes <= machine.cache_bytes;
    Demand {
        alone_ns: times.iter().zip(crowding).map(|(time, factor)| time.time_ns * factor).collect(),
        bytes: if is_resident { 0.0 } else { bytes },
        footprint_bytes: bytes,
        reused_bytes: if is_resident { bytes } else { 0.0 },
        profile: None,
    }
}
