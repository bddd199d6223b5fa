//! Demand of operators on shared resources, and capacity of a machine, from records and measured peaks.

use datasets::{Peaks, Record};
use models::Task;
use planners::interference::{Demand, Machine};

/// A time with its 90 % interval, whose ends are NaN if they are unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    pub time_ns: f64,
    pub low_ns: f64,
    /// NaN for a lower bound of a time, which has no upper end.
    pub high_ns: f64,
    pub source: TimeSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    Measured,
    Predicted,
    /// A lower bound, because the training data lacks the operator.
    Bound,
}

/// Assumed size of the last-level cache if no record states it.
const CACHE_BYTES: f64 = 32e6;

/// Returns the memory bandwidth of all cores, or an estimate if it was not measured.
pub fn bytes_per_ns(peaks: &Peaks, cores: usize) -> f64 {
    let rate = peaks.bytes_per_second(cores as f64, f64::INFINITY).map(|rate| rate * 1e-9);
    rate.filter(|rate| *rate > 0.0).unwrap_or(10.0 * cores as f64)
}

pub fn cache_bytes(records: &[Record]) -> f64 {
    let bytes = records.iter().filter_map(|record| record.l3_bytes.or(record.l2_bytes)).max();
    bytes.filter(|bytes| *bytes > 0).map_or(CACHE_BYTES, |bytes| bytes as f64)
}

/// Returns the demand of a task. Its times are multiplied by `crowding`, the slowdown by core count while all other
/// cores are busy. A task whose data fits into the last-level cache has no memory traffic.
pub fn task_demand(task: &Task, times: &[Time], machine: &Machine, crowding: &[f64]) -> Demand {
    let bytes = task.work().map_or(0.0, |work| work.total_bytes() as f64);
    let is_resident = bytes <= machine.cache_bytes;
    Demand {
        alone_ns: times.iter().zip(crowding).map(|(time, factor)| time.time_ns * factor).collect(),
        bytes: if is_resident { 0.0 } else { bytes },
        footprint_bytes: bytes,
        reused_bytes: if is_resident { bytes } else { 0.0 },
        profile: None,
    }
}
