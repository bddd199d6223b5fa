//! What was learned of one operator, as it answers.

use super::chooser::Chooser;
use super::facts::Facts;
use super::gaussian_process::{Correction, Input};
use super::trees::Trees;
use crate::features::{FEATURES, Matrix};
use std::collections::BTreeMap;

/// Trees of each device whose leaves the forest kernel looks at: the first ones, which ask for the most important.
const TREES_OF_KERNEL: usize = 40;

/// What was learned of one operator.
#[derive(Clone, Debug, Default)]
pub struct OfOperator {
    /// Numbers that are stored as text.
    pub facts: Facts,
    /// Trees for the devices that were learned from; averaged.
    pub known: Vec<Trees>,
    /// Trees for other devices; averaged.
    pub transfer: Vec<Trees>,
    /// Trees of each known device alone, where they help: a few measurements say which of them another device is like.
    pub alone: Vec<Trees>,
    /// What guesses the library's choice, by device.
    pub choosers: BTreeMap<String, Chooser>,
    /// Corrections from few measurements, by device.
    pub corrections: BTreeMap<String, Correction>,
}

impl OfOperator {
    /// Logarithms of the ratios of rows, on devices that were learned from or on others.
    pub fn logs(&self, matrix: &Matrix, is_known: bool) -> Vec<f64> {
        let mut logs = vec![0.0; matrix.rows()];
        for (weight, trees) in self.trees(is_known) {
            logs.iter_mut().zip(trees.predict(matrix)).for_each(|(sum, log)| *sum += weight * f64::from(log));
        }
        logs
    }

    /// The same for one row.
    pub fn log(&self, row: &[f32], is_known: bool) -> f64 {
        self.trees(is_known).map(|(weight, trees)| weight * f64::from(trees.predict_row(row))).sum()
    }

    /// Fills in what the libraries of the rows' devices are expected to choose.
    pub fn guess(&self, matrix: &mut Matrix, column: usize, devices: &[&str]) {
        for (device, chooser) in &self.choosers {
            let rows: Vec<usize> = (0..devices.len()).filter(|row| devices[*row] == device).collect();
            let guesses = chooser.guess(&matrix.select(&rows));
            rows.iter().zip(guesses).for_each(|(row, guess)| matrix.set(*row, column, guess));
        }
    }

    /// Rows as corrections see them.
    pub(super) fn correction_inputs(&self, matrix: &Matrix) -> Vec<Input> {
        let ensemble = self.logs(matrix, false);
        let input = |row: usize| {
            let row = matrix.row(row);
            let leaves = self.alone.iter().flat_map(|trees| trees.leaves(row).take(TREES_OF_KERNEL)).collect();
            Input { sizes: sizes(row), deviations: Vec::new(), leaves }
        };
        let mut inputs: Vec<Input> = (0..matrix.rows()).map(input).collect();
        for member in self.transfer.iter().chain(&self.alone) {
            for (input, (log, ensemble)) in inputs.iter_mut().zip(member.predict(matrix).iter().zip(&ensemble)) {
                input.deviations.push((f64::from(*log) - ensemble) as f32);
            }
        }
        inputs
    }

    /// What measurements of a device add to the logarithms of rows on it.
    pub fn corrected_by(&self, correction: &Correction, matrix: &Matrix) -> Vec<f64> {
        self.correction_inputs(matrix).iter().map(|input| correction.mean(input)).collect()
    }

    /// The trees that answer and how much each counts: those for the other kind of device where there are none of the right
    /// kind.
    pub(crate) fn trees(&self, is_known: bool) -> impl Iterator<Item = (f64, &Trees)> {
        let is_of_transfer = (!is_known && !self.transfer.is_empty()) || self.known.is_empty();
        let share = if self.alone.is_empty() { 0.0 } else { self.facts.share_of_alone };
        let (common, share) = if is_of_transfer { (&self.transfer, share) } else { (&self.known, 0.0) };
        let alone = if share > 0.0 { &self.alone[..] } else { &[] };
        let common = if share < 1.0 { &common[..] } else { &[] };
        let weighed = |share: f64, sets: &'_ [Trees]| share / sets.len().max(1) as f64;
        let (of_common, of_alone) = (weighed(1.0 - share, common), weighed(share, alone));
        let common = common.iter().map(move |trees| (of_common, trees));
        common.chain(alone.iter().map(move |trees| (of_alone, trees)))
    }
}

/// The sizes of a row, and its bound against the overhead, which stands last.
fn sizes(row: &[f32]) -> Vec<f32> {
    let sizes = FEATURES.iter().take_while(|feature| feature.unit.starts_with("log2")).count();
    let mut place = row[..sizes].to_vec();
    place.extend(row.last());
    place
}
