//! What the scheduled program and its machine code say, seen against the work that was asked for.
//!
//! Counts of a program grow with the operator, so they are taken per multiply-add, or per element of the result where there
//! are none: how many bytes are read for one says how well a schedule does, whatever the sizes. The collector's estimate
//! of the cycles is compared with the bound.

use super::device::Device;
use super::work::{Form, Work};
use std::collections::BTreeMap;

/// Record prefixes of program and code figures.
const PREFIXES: [&str; 2] = ["code.code_", "code.store_"];
/// Counts that do not scale with the operator.
const PLAIN: [&str; 7] = [
    "code_hot_",
    "code_loops",
    "code_pieces",
    "store_main_vectorized",
    "store_main_unrolled",
    "store_main_parallel",
    "store_places",
];

/// Divides counts among the extras by the work. Returns the estimated time of a contraction's instructions on the
/// busy threads, if their cycles are estimated.
pub fn relate_counts(
    work: &Work,
    device: &Device,
    threads: f64,
    attainable_ns: f64,
    extras: &mut BTreeMap<String, f64>,
) -> Option<f64> {
    let unit = (work.flops / 2.0).max(work.output.iter().product()).max(1.0);
    let cycles = extras.get("code.code_cycles").copied();
    for (name, value) in extras.iter_mut().filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix))) {
        let own = &name["code.".len()..];
        *value = match () {
            () if own.ends_with("_share") => *value,
            () if PLAIN.iter().any(|plain| own.starts_with(plain)) => (1.0 + value.max(0.0)).log2(),
            () => (value.max(1e-3) / unit).log2(),
        };
    }
    let estimated_ns = cycles?.max(1.0) / device.clock_ghz / threads.min(device.units).max(1.0);
    extras.insert("code.estimated_of_attainable".to_owned(), (estimated_ns / attainable_ns).log2());
    extras.insert("code.estimated".to_owned(), estimated_ns.log2());
    // Without multiply-adds nothing says how often loops turn whose counts are decided while running.
    matches!(work.form, Form::Contraction | Form::Convolution).then_some(estimated_ns)
}
