//! From an operator and a device to the numbers a learner sees.

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

pub use device::Device;
pub use matrix::Matrix;
pub use table::{FEATURES, Feature, Origin, Situation};
pub use tiling::Revision;
pub use view::{CHOICE, KNOWN, View};
pub use words::in_words;
pub use work::{Form, Work};

/// Time in nanoseconds that no implementation can beat: the longer of arithmetic at peak and compulsory bytes at full
/// bandwidth.
pub fn attainable_ns(work: &Work, device: &Device, threads: f64) -> f64 {
    let (arithmetic_ns, memory_ns) = roofline_ns(work, device, threads);
    arithmetic_ns.max(memory_ns)
}

/// Both sides of the roofline: the time of the arithmetic and that of the bytes.
pub fn roofline_ns(work: &Work, device: &Device, threads: f64) -> (f64, f64) {
    let situation = Situation { work, device, threads, attainable_ns: 1.0 };
    (table::compute_ns(&situation), table::memory_ns(&situation))
}

/// What follows from knobs and figures of code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    /// Threads that the schedule gives something to do.
    pub busy_threads: f64,
    /// What the instructions of a contraction should take, where that is known.
    pub estimated_ns: Option<f64>,
}

/// Adds to knobs and figures of code what they mean for the operator.
pub fn derive(
    work: &Work,
    device: &Device,
    threads: f64,
    revision: Revision,
    extras: &mut BTreeMap<String, f64>,
) -> Derived {
    tiling::add(work, device, threads, revision, extras);
    let busy_threads = tiling::busy_threads(threads, revision, extras);
    let attainable_ns = attainable_ns(work, device, threads);
    Derived { busy_threads, estimated_ns: program::relate(work, device, busy_threads, attainable_ns, extras) }
}

/// Appends the table's features of one situation.
pub fn describe(work: &Work, device: &Device, threads: f64, row: &mut Vec<f32>) {
    let situation = Situation { work, device, threads, attainable_ns: attainable_ns(work, device, threads) };
    row.extend(FEATURES.iter().map(|feature| (feature.of)(&situation) as f32));
}
