//! Heuristic classification of system records without a command as waits or sends, which alternate. The kind with the
//! larger total time is taken as waits, and so is every record above a threshold.

use super::chip::{Chip, Engine};
use super::pmu;
use super::record::{Label, NONE, Record};
use super::rows::Rows;

/// Duration in nanoseconds above which a system record counts as a wait, whatever its position.
const LONG_NS: i64 = 1000;

pub fn label_records(chip: Chip, engine: Engine, records: &mut [Record], rows: Rows<'_>) {
    let is_system = |record: &Record| record.command == NONE && pmu::is_system(chip, engine, rows.row(record.row));
    let mut totals = [0i64; 2];
    for (place, record) in records.iter().filter(|record| is_system(record)).enumerate() {
        totals[place % 2] += record.end - record.start;
    }
    let waits = usize::from(totals[1] > totals[0]);
    for (place, record) in records.iter_mut().filter(|record| is_system(record)).enumerate() {
        if record.label == Label::None {
            let waited = record.end - record.start > LONG_NS || place % 2 == waits;
            record.label = if waited { Label::Wait } else { Label::Send };
        }
    }
}
