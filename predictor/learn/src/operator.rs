//! The ensemble of one operator: sets of trees, averaged; what it was trained on decides who answers.

use super::choice_classifier::ChoiceClassifier;
use super::gaussian_process::{Correction, Input};
use super::operator_statistics::OperatorStatistics;
use super::trees::Trees;
use samples::features::{FEATURES, Matrix};
use std::collections::BTreeMap;

/// Trees of each device whose leaves the forest kernel looks at: the first ones, which ask for the most important.
const TREES_OF_KERNEL: usize = 40;

/// What was learned of one operator.
#[derive(Clone, Debug, Default)]
pub struct OperatorEnsemble {
    /// Numbers that are stored as text.
    pub statistics: OperatorStatistics,
    /// Trees for the devices that were learned from; averaged.
    pub known: Vec<Trees>,
    /// Trees for other devices; averaged.
    pub transfer: Vec<Trees>,
    /// Trees of each known device by itself, where they help: a few measurements say which of them another device is like.
    pub per_device: Vec<Trees>,
    /// Classifiers of the library's choice, by device.
    pub choice_classifiers: BTreeMap<String, ChoiceClassifier>,
    /// Corrections from few measurements, by device.
    pub corrections: BTreeMap<String, Correction>,
}

impl OperatorEnsemble {
    /// Logarithms of the ratios of rows, on devices that were learned from or on others.
    pub fn log_ratios(&self, matrix: &Matrix, is_known: bool) -> Vec<f64> {
        let mut log_ratios = vec![0.0; matrix.rows()];
        for (weight, trees) in self.trees(is_known) {
            log_ratios.iter_mut().zip(trees.predict(matrix)).for_each(|(sum, log)| *sum += weight * f64::from(log));
        }
        log_ratios
    }

    /// The same for one row.
    pub fn log_ratio(&self, row: &[f32], is_known: bool) -> f64 {
        self.trees(is_known).map(|(weight, trees)| weight * f64::from(trees.predict_row(row))).sum()
    }

    /// Fills in what the libraries of the rows' devices are expected to choose.
    pub fn fill_choices(&self, matrix: &mut Matrix, column: usize, devices: &[&str]) {
        for (device, classifier) in &self.choice_classifiers {
            let rows: Vec<usize> = (0..devices.len()).filter(|row| devices[*row] == device).collect();
            let choices = classifier.predict(&matrix.select(&rows));
            rows.iter().zip(choices).for_each(|(row, choice)| matrix.set(*row, column, choice));
        }
    }

    /// Rows as corrections see them.
    pub(super) fn correction_inputs(&self, matrix: &Matrix) -> Vec<Input> {
        let ensemble = self.log_ratios(matrix, false);
        let input = |row: usize| {
            let row = matrix.row(row);
            let leaves = self.per_device.iter().flat_map(|trees| trees.leaves(row).take(TREES_OF_KERNEL)).collect();
            Input { sizes: sizes(row), deviations: Vec::new(), leaves }
        };
        let mut inputs: Vec<Input> = (0..matrix.rows()).map(input).collect();
        for member in self.transfer.iter().chain(&self.per_device) {
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

    /// All its trees, in the order of files.
    pub fn all_trees(&self) -> impl Iterator<Item = &Trees> {
        let classes = self.choice_classifiers.values().flat_map(|classifier| &classifier.classes);
        self.known.iter().chain(&self.transfer).chain(&self.per_device).chain(classes.map(|(_, trees)| trees))
    }

    /// The same to change.
    pub fn all_trees_mut(&mut self) -> impl Iterator<Item = &mut Trees> {
        let classes = self.choice_classifiers.values_mut().flat_map(|classifier| &mut classifier.classes);
        self.known
            .iter_mut()
            .chain(&mut self.transfer)
            .chain(&mut self.per_device)
            .chain(classes.map(|(_, trees)| trees))
    }

    /// The trees that answer and how much each counts: those for the other kind of device where there are none of the right
    /// kind.
    pub fn trees(&self, is_known: bool) -> impl Iterator<Item = (f64, &Trees)> {
        let is_of_transfer = (!is_known && !self.transfer.is_empty()) || self.known.is_empty();
        let weight = if self.per_device.is_empty() { 0.0 } else { self.statistics.per_device_weight };
        let (common, weight) = if is_of_transfer { (&self.transfer, weight) } else { (&self.known, 0.0) };
        let per_device = if weight > 0.0 { &self.per_device[..] } else { &[] };
        let common = if weight < 1.0 { &common[..] } else { &[] };
        let each = |weight: f64, sets: &'_ [Trees]| weight / sets.len().max(1) as f64;
        let (of_common, of_device) = (each(1.0 - weight, common), each(weight, per_device));
        let common = common.iter().map(move |trees| (of_common, trees));
        common.chain(per_device.iter().map(move |trees| (of_device, trees)))
    }
}

/// The sizes of a row, and its bound against the overhead, which stands last.
fn sizes(row: &[f32]) -> Vec<f32> {
    let sizes = FEATURES.iter().take_while(|feature| feature.unit.starts_with("log2")).count();
    let mut place = row[..sizes].to_vec();
    place.extend(row.last());
    place
}
