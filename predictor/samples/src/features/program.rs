//! Features of the scheduled program and its machine code, relative to the operator's work.
//!
//! Counts grow with the operator, so they are divided by the number of multiply-adds or of output elements, whichever
//! is larger. The collector's estimate of the cycles is compared with the roofline bound.

use super::device::Device;
use super::work::{Form, Work};
use std::collections::BTreeMap;

const PREFIXES: [&str; 2] = ["code.code_", "code.store_"];
/// Prefixes of counts that do not grow with the operator's size.
const PLAIN: [&str; 7] = [
    "code_hot_",
    "code_loops",
    "code_pieces",
    "store_main_vectorized",
    "store_main_unrolled",
    "store_main_parallel",
    "store_places",
];

/// Replaces counts in `extras` by logarithms relative to the work. Returns the estimated time of a contraction's code.
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
    // Without multiply-adds, the counts of loops with run-time bounds are unknown.
    matches!(work.form, Form::Contraction | Form::Convolution).then_some(estimated_ns)
}
