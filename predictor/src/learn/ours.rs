//! Boosted trees on utilisation: measured time over what is attainable, launch overhead included.
//!
//! What is attainable is the roofline plus what the smallest operators cost on the device at all; trees learn the
//! logarithm of the ratio, per operator. Outside of the data a tree holds the value of its boundary, so utilisation
//! never grows past what was measured, and no time falls below the bound times the best ratio ever seen.

use super::boosted::{self, Growth};
use super::trees::Trees;
use super::{Fitted, by_operator, median, predict_by_operator, quantile};
use crate::error::Result;
use crate::features::Matrix;
use crate::samples::Samples;
use std::collections::BTreeMap;

/// The share of an operator's times that lie below its overhead.
const OVERHEAD_SHARE: f64 = 0.01;

/// What was learned.
pub struct Ours {
    /// Time of the smallest operators, by operator and device.
    overheads: BTreeMap<(u32, u32), f64>,
    operators: BTreeMap<u32, OfOperator>,
}

struct OfOperator {
    /// Overhead on devices that were not seen: the middle of those that were.
    overhead_ns: f64,
    trees: Vec<Trees>,
    /// The smallest ratio that was measured, as a logarithm.
    best_log: f32,
}

/// Learns from some samples.
pub fn fit(samples: &Samples, train: &[usize], seed: u64) -> Result<Ours> {
    let mut fitted = Ours { overheads: overheads(samples, train), operators: BTreeMap::new() };
    for (operator, rows) in by_operator(samples, train) {
        let known = fitted.overheads.range((operator, 0)..=(operator, u32::MAX)).map(|(_, ns)| *ns);
        let overhead_ns = median(&mut known.collect::<Vec<_>>());
        let empty = OfOperator { overhead_ns, trees: Vec::new(), best_log: 0.0 };
        fitted.operators.insert(operator, empty);
        let matrix = fitted.matrix(samples, &rows);
        let labels: Vec<f32> = rows
            .iter()
            .map(|row| (samples.rows[*row].time_ns / fitted.attainable_ns(samples, *row)).ln() as f32)
            .collect();
        let trees = vec![boosted::fit(&matrix, &labels, None, &Growth::boosting(), seed)?];
        let best_log = labels.iter().copied().fold(f32::INFINITY, f32::min);
        fitted.operators.insert(operator, OfOperator { overhead_ns, trees, best_log });
    }
    Ok(fitted)
}

fn overheads(samples: &Samples, train: &[usize]) -> BTreeMap<(u32, u32), f64> {
    let mut times: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for row in train {
        let sample = &samples.rows[*row];
        times.entry((sample.operator, sample.device)).or_default().push(sample.time_ns);
    }
    times.into_iter().map(|(group, mut times)| (group, quantile(&mut times, OVERHEAD_SHARE))).collect()
}

impl Ours {
    fn overhead_ns(&self, samples: &Samples, row: usize) -> f64 {
        let sample = &samples.rows[row];
        let known = self.overheads.get(&(sample.operator, sample.device)).copied();
        known.or_else(|| self.operators.get(&sample.operator).map(|known| known.overhead_ns)).unwrap_or(0.0)
    }

    fn attainable_ns(&self, samples: &Samples, row: usize) -> f64 {
        samples.rows[row].attainable_ns + self.overhead_ns(samples, row)
    }

    /// The table's features and how the bound compares with the overhead.
    fn matrix(&self, samples: &Samples, rows: &[usize]) -> Matrix {
        let mut matrix = Matrix::new(samples.features.columns() + 1);
        let mut features = Vec::new();
        for row in rows {
            features.clear();
            features.extend_from_slice(samples.features.row(*row));
            let share = samples.rows[*row].attainable_ns / self.overhead_ns(samples, *row);
            features.push(share.log2() as f32);
            matrix.push(&features);
        }
        matrix
    }
}

impl Fitted for Ours {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let known = self.operators.get(&operator)?;
            let matrix = self.matrix(samples, rows);
            let mut logs = vec![0.0; rows.len()];
            for trees in &known.trees {
                logs.iter_mut().zip(trees.predict(&matrix)).for_each(|(sum, log)| *sum += log);
            }
            let time = |(row, log): (&usize, f32)| {
                let log = (log / known.trees.len() as f32).max(known.best_log);
                self.attainable_ns(samples, *row) * f64::from(log).exp()
            };
            Some(rows.iter().zip(logs).map(time).collect())
        })
    }
}
