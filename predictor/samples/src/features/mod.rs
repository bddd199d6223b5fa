//! Computes the features of an operator on a device, which learners use.

pub mod device;
pub mod matrix;
pub mod movement;
pub mod program;
pub mod table;
pub mod tiling;
pub mod view;
mod words;
pub mod work;

use std::collections::BTreeMap;

pub use datasets::Peaks;
pub use device::Device;
pub use matrix::Matrix;
pub use table::{FEATURES, Feature, Origin, Situation};
pub use tiling::Revision;
pub use view::{CHOICE, KNOWN, View};
pub use words::in_words;
pub use work::{Form, Work};

/// Returns a lower bound of the time: the larger of arithmetic at peak rate and compulsory traffic.
pub fn attainable_ns(work: &Work, device: &Device, threads: f64) -> f64 {
    let (arithmetic_ns, memory_ns) = roofline_ns(work, device, threads);
    arithmetic_ns.max(memory_ns)
}

/// Returns the time of the arithmetic at peak rate, and the time of the compulsory traffic at full bandwidth.
pub fn roofline_ns(work: &Work, device: &Device, threads: f64) -> (f64, f64) {
    let situation = Situation { work, device, threads, attainable_ns: 1.0 };
    (table::compute_ns(&situation), table::memory_ns(&situation))
}

/// Like `roofline_ns`, by peak rates alone; None without a peak of either kind.
pub fn roofline_by_peaks(work: &Work, peaks: &Peaks, threads: f64) -> Option<(f64, f64)> {
    let (compute, memory) = (peaks.flops_per_second(threads)?, peaks.bytes_per_second(threads, work.bytes())?);
    Some((1e9 * work.flops / compute, 1e9 * work.bytes() / memory))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    pub busy_threads: f64,
    pub estimated_ns: Option<f64>,
}

/// Adds schedule features to `extras`, and divides the counts of the generated code by the operator's size.
pub fn derive_features(
    work: &Work,
    device: &Device,
    threads: f64,
    revision: Revision,
    extras: &mut BTreeMap<String, f64>,
) -> Derived {
    tiling::add_features(work, device, threads, revision, extras);
    let busy_threads = tiling::busy_threads(threads, revision, extras);
    let attainable_ns = attainable_ns(work, device, threads);
    Derived { busy_threads, estimated_ns: program::relate_counts(work, device, busy_threads, attainable_ns, extras) }
}

pub fn push_features(work: &Work, device: &Device, threads: f64, row: &mut Vec<f32>) {
    let situation = Situation { work, device, threads, attainable_ns: attainable_ns(work, device, threads) };
    row.extend(FEATURES.iter().map(|feature| (feature.compute)(&situation) as f32));
}
