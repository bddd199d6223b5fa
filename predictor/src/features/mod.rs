//! From an operator and a device to the numbers a learner sees.

pub mod device;
pub mod matrix;
pub mod program;
pub mod table;
pub mod tiling;
pub mod view;
pub mod work;

pub use device::Device;
pub use matrix::Matrix;
pub use table::{FEATURES, Feature, Origin, Situation};
pub use view::{KNOWN, View};
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

/// Appends the table's features of one situation.
pub fn describe(work: &Work, device: &Device, threads: f64, row: &mut Vec<f32>) {
    let situation = Situation { work, device, threads, attainable_ns: attainable_ns(work, device, threads) };
    row.extend(FEATURES.iter().map(|feature| (feature.of)(&situation) as f32));
}
