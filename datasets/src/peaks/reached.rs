//! What operators of the records reached, below which no peak can be.

use crate::record::table::Record;
use crate::record::words::{Outcome, Source};
use std::collections::BTreeMap;

/// The best rates of operators of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// Operations per second of contractions of 32-bit floats, by threads.
    pub compute: BTreeMap<u32, f64>,
    /// Bytes per second, by threads and by the power of two that is at most the bytes moved.
    pub memory: BTreeMap<(u32, u64), f64>,
}

impl Reached {
    /// Takes a record into account. Only operators that were measured alone and are known well say what a host can do.
    pub fn take(&mut self, record: &Record) {
        let is_alone = record.outcome == Outcome::Ok && record.source == Source::Measured && record.is_alone();
        let (true, Some(median_ns)) = (is_alone && record.is_known_well(), record.median_ns) else { return };
        let threads = record.threads.and_then(|threads| u32::try_from(threads).ok()).unwrap_or(1);
        if record.macs > Some(0) && computes_all(record) && record.dtype.as_deref() == Some("f32") {
            let best = self.compute.entry(threads).or_default();
            *best = best.max(number(record.flops) / median_ns * 1e9);
        }
        let bytes = number(record.bytes_in) + number(record.bytes_out) + number(record.bytes_weights);
        if moves_all(record) && bytes >= 1.0 {
            let best = self.memory.entry((threads, 1 << (bytes as u64).ilog2())).or_default();
            *best = best.max(bytes / median_ns * 1e9);
        }
    }
}

/// Whether it surely computes every product that is counted. Rows of attention may come from a program that counted the
/// pairs which are skipped.
fn computes_all(record: &Record) -> bool {
    !record.saves_products() && record.op_kind != "attention"
}

/// Whether it surely needs every byte that is counted: windows with steps, slices and attention with a mask leave some out.
fn moves_all(record: &Record) -> bool {
    /// Bytes of the elements that operations are counted of.
    const ELEMENT_BYTES: f64 = 4.0;
    let is_alone = !record.op_name.contains('+');
    let touches_each =
        || number(record.flops) * ELEMENT_BYTES >= number(record.bytes_in) + number(record.bytes_weights);
    match record.macs {
        Some(macs) if macs > 0 => ["matmul", "dense"].contains(&record.op_kind.as_str()),
        _ => is_alone && record.flops > Some(0) && touches_each(),
    }
}

fn number(column: Option<i64>) -> f64 {
    column.unwrap_or(0).max(0) as f64
}
