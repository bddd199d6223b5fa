//! The ensemble of one operator: sets of trees for known and for other devices, whose predictions are averaged.

use super::choice_classifier::ChoiceClassifier;
use super::gaussian_process::{Correction, Input};
use super::operator_statistics::OperatorStatistics;
use super::trees::Trees;
use samples::features::{FEATURES, Matrix};
use std::collections::BTreeMap;

/// Trees per set that the forest kernel uses; the first trees split on the most important features.
const TREES_OF_KERNEL: usize = 40;

#[derive(Clone, Debug, Default)]
pub struct OperatorEnsemble {
    pub statistics: OperatorStatistics,
    /// Sets of trees for devices in the training data; their predictions are averaged.
    pub known: Vec<Trees>,
    pub transfer: Vec<Trees>,
    /// One set of trees per known device, if useful. Their deviations show which known device a new device resembles.
    pub per_device: Vec<Trees>,
    pub choice_classifiers: BTreeMap<String, ChoiceClassifier>,
    pub corrections: BTreeMap<String, Correction>,
}

impl OperatorEnsemble {
    pub fn log_ratios(&self, matrix: &Matrix, is_known: bool) -> Vec<f64> {
        let mut log_ratios = vec![0.0; matrix.row_count()];
        for (weight, trees) in self.weighted_trees(is_known) {
            log_ratios
                .iter_mut()
                .zip(trees.predict_rows(matrix))
                .for_each(|(sum, log)| *sum += weight * f64::from(log));
        }
        log_ratios
    }

    pub fn log_ratio(&self, row: &[f32], is_known: bool) -> f64 {
        self.weighted_trees(is_known).map(|(weight, trees)| weight * f64::from(trees.predict_row(row))).sum()
    }

    pub fn fill_choices(&self, matrix: &mut Matrix, column: usize, devices: &[&str]) {
        for (device, classifier) in &self.choice_classifiers {
            let rows: Vec<usize> = (0..devices.len()).filter(|row| devices[*row] == device).collect();
            let choices = classifier.predict_choices(&matrix.select_rows(&rows));
            rows.iter().zip(choices).for_each(|(row, choice)| matrix.set(*row, column, choice));
        }
    }

    pub(super) fn correction_inputs(&self, matrix: &Matrix) -> Vec<Input> {
        let ensemble = self.log_ratios(matrix, false);
        let input = |row: usize| {
            let row = matrix.row(row);
            let leaves =
                self.per_device.iter().flat_map(|trees| trees.reached_leaves(row).take(TREES_OF_KERNEL)).collect();
            Input { sizes: log_sizes(row), leaves, ..Input::default() }
        };
        let mut inputs: Vec<Input> = (0..matrix.row_count()).map(input).collect();
        for member in self.transfer.iter().chain(&self.per_device) {
            for (input, (log, ensemble)) in inputs.iter_mut().zip(member.predict_rows(matrix).iter().zip(&ensemble)) {
                input.deviations.push((f64::from(*log) - ensemble) as f32);
            }
        }
        inputs
    }

    pub fn corrected_by(&self, correction: &Correction, matrix: &Matrix) -> Vec<f64> {
        self.correction_inputs(matrix).iter().map(|input| correction.posterior_mean(input)).collect()
    }

    pub fn all_trees(&self) -> impl Iterator<Item = &Trees> {
        let classes = self.choice_classifiers.values().flat_map(|classifier| &classifier.classes);
        self.known.iter().chain(&self.transfer).chain(&self.per_device).chain(classes.map(|(_, trees)| trees))
    }

    pub fn all_trees_mut(&mut self) -> impl Iterator<Item = &mut Trees> {
        let classes = self.choice_classifiers.values_mut().flat_map(|classifier| &mut classifier.classes);
        self.known
            .iter_mut()
            .chain(&mut self.transfer)
            .chain(&mut self.per_device)
            .chain(classes.map(|(_, trees)| trees))
    }

    /// Returns the weighted trees for known or for other devices; if one of these sets is missing, uses the other set.
    pub fn weighted_trees(&self, is_known: bool) -> impl Iterator<Item = (f64, &Trees)> {
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

/// Returns the logarithms of the sizes, followed by the log ratio of bound to overhead.
fn log_sizes(row: &[f32]) -> Vec<f32> {
    let sizes = FEATURES.iter().take_while(|feature| feature.unit.starts_with("log2")).count();
    let mut place = row[..sizes].to_vec();
    place.extend(row.last());
    place
}
