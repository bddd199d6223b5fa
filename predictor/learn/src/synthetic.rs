//! Synthetic samples for comparing learners with another library: matrix products with times from a formula.

use samples::features::{Device, Work};
use samples::{RawSample, Samples, SamplesBuilder, Timing};
use smartcore::linalg::basic::matrix::DenseMatrix;
use std::collections::BTreeMap;

pub(super) const LEARNED: usize = 240;
const ALL: u64 = 480;

pub(super) fn synthetic_samples() -> (Samples, Vec<usize>, Vec<usize>) {
    let device = Device {
        units: 4.0,
        flops_per_cycle: 32.0,
        clock_ghz: 2.0,
        bandwidth_gb_per_s: 20.0,
        cache_bytes: 2e6,
        near_bytes: 3e4,
        memory_bytes: 0.0,
        generation: 0.0,
        peaks: None,
    };
    let mut builder = SamplesBuilder::new(vec![("here".to_owned(), device)]);
    for step in 0..ALL {
        let size = |salt: u64, most: u64| (16 + (step * 7919 + salt * 104_729) % most) as f64;
        let (rows, columns, depth) = (size(1, 293), size(2, 307), size(3, 211));
        let time_ns = 2e4 + 2.0 * (rows / 16.0).ceil() * 16.0 * columns * depth / 150.0;
        let question = RawSample {
            operator: "product".to_owned(),
            device: 0,
            model: String::new(),
            detail: String::new(),
            work: Work::contraction_work(1.0, rows, columns, depth, true),
            threads: 4.0,
            is_default: true,
            extras: BTreeMap::new(),
            choice: None,
            text: String::new(),
        };
        builder.push_sample(question, Timing::single_timing(time_ns, None));
    }
    let samples = builder.finish_samples().expect("samples");
    let (learned, asked) = ((0..LEARNED).collect(), (LEARNED..samples.rows.len()).collect());
    (samples, learned, asked)
}

pub(super) fn dense_matrix(rows: &[Vec<f64>]) -> DenseMatrix<f64> {
    DenseMatrix::from_2d_vec(&rows.to_vec()).expect("rows are equally long")
}

pub(super) fn mean_max_difference(one: &[f64], two: &[f64]) -> (f64, f64) {
    assert!(one.len() == two.len() && !one.is_empty(), "both answer every question");
    let off: Vec<f64> = one.iter().zip(two).map(|(one, two)| (one - two).abs()).collect();
    (off.iter().sum::<f64>() / off.len() as f64, off.iter().copied().fold(0.0, f64::max))
}

pub(super) fn log_times(times: &[f64]) -> Vec<f64> {
    times.iter().map(|time| time.ln()).collect()
}
