//! Restoration of the order and the times of one stream's records.
//! Counters are 32-bit and wrap around within seconds. When a ring buffer was overrun, its first record is not the
//! oldest one. Both appear as a single backward step of time. To distinguish them, the gap at the step is compared
//! with the gap from the last to the first record.

use super::record::Record;

const RANGE: i64 = 1 << 32;
/// Backward step of the counter above which it has wrapped around. A smaller step means records out of order.
const HALF: i64 = 1 << 31;
/// Maximum number of wrap-arounds of a valid capture.
const MAX_TURNS: i64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    pub kept: usize,
    /// Number of numbered commands: the highest command number of the kept records plus one.
    pub numbered: u64,
}

/// Rotates an overrun ring buffer such that its oldest record comes first. With `compat`, every wrap is an overrun.
pub fn rotate_overrun(records: &mut [Record], compat: bool) -> Option<Overrun> {
    if count_regressions(records.iter()) == 0 {
        return None;
    }
    let (turn, _) = records.iter().enumerate().min_by_key(|(_, record)| record.start)?;
    if turn == 0 {
        return None;
    }
    let (before, after) = records.split_at(turn);
    if count_regressions(after.iter().chain(before)) > 0 {
        return None;
    }
    let gap = |from: &Record, to: &Record| (to.start - from.end).rem_euclid(RANGE);
    let is_overrun = gap(&records[records.len() - 1], &records[0]) < gap(&records[turn - 1], &records[turn]);
    if !is_overrun && !compat {
        return None;
    }
    records.rotate_left(turn);
    let numbered = records.iter().map(|record| record.id).max().unwrap_or(0) + 1;
    Some(Overrun { kept: records.len(), numbered })
}

fn count_regressions<'a>(records: impl Iterator<Item = &'a Record>) -> usize {
    let mut latest = i64::MIN;
    let mut count = 0;
    for record in records {
        count += usize::from(record.start < latest);
        latest = latest.max(record.end);
    }
    count
}

/// Extends 16-bit command numbers beyond wrap-arounds.
pub fn lift_ids(records: &mut [Record]) {
    let (mut previous, mut lift) = (0, 0);
    for record in records {
        if (65001..=65535).contains(&previous) && record.id < 1000 {
            lift += 65536;
        }
        previous = record.id;
        record.id += lift;
    }
}

/// Swaps adjacent records that SDMA wrote late, detected by their times.
pub fn swap_late(records: &mut [Record]) {
    for index in 1..records.len().saturating_sub(1) {
        let end = records[index - 1].end;
        let (here, next) = (records[index].start - end, records[index + 1].start - end);
        let swap = next < here && here > 0 && next > 0
            || here < 0 && next > 0 && records[index + 1].start > records[index + 1].end;
        if swap {
            records.swap(index, index + 1);
        }
    }
}

/// Swaps adjacent SDMA records whose numbers are out of order.
pub fn swap_ids(records: &mut [Record]) {
    for index in 1..records.len() {
        let id = records[index].id;
        if id >= records[index - 1].id {
            continue;
        }
        if index >= 2 && id == records[index - 2].id + 1 {
            records.swap(index, index - 1);
        } else if index + 1 < records.len() && records[index + 1].id == records[index - 1].id + 1 {
            records.swap(index, index + 1);
        }
    }
}

/// Extends times beyond wrap-arounds; with `compat`, every step back from the upper half of the range counts as one.
pub fn lift_times(records: &mut [Record], compat: bool) {
    let (mut last, mut lift) = (0, 0);
    for record in records {
        let start = record.start + lift;
        let turned = if compat { start < last && last > HALF } else { last - start > HALF };
        if turned && lift < RANGE * MAX_TURNS {
            lift += RANGE;
        }
        record.start += lift;
        record.end += lift;
        if record.end < record.start {
            record.end += RANGE;
        }
        last = record.end;
    }
}

/// Extends the times of a port's records beyond wrap-arounds. These records may overlap.
pub fn lift_port_times(records: &mut [Record], compat: bool) {
    let mut lift = 0;
    let mut previous: Option<(i64, i64)> = None;
    for record in records {
        let (start, end) = (record.start + lift, record.end + lift);
        let turned = previous.is_some_and(|(before_start, before_end)| {
            if compat { start < before_start && end < before_end } else { before_start - start > HALF }
        });
        if turned && lift < RANGE * MAX_TURNS {
            lift += RANGE;
        }
        record.start += lift;
        record.end += lift;
        if !compat && record.end < record.start {
            record.end += RANGE;
        }
        previous = Some((record.start, record.end));
    }
}

pub fn to_ns(records: &mut [Record], mhz: f64) {
    for record in records {
        record.cycles = record.end - record.start + 1;
        record.start = cycles_to_ns(record.start, mhz);
        record.end = cycles_to_ns(record.end, mhz);
    }
}

fn cycles_to_ns(cycles: i64, mhz: f64) -> i64 {
    // The order of operations determines the last digit and matches the vendor's tool.
    (cycles as f64 / mhz * 1000.0).round_ties_even() as i64
}
