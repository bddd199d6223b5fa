//! Classifies which kernel of a vendor library will run an operator of given sizes, one class against the rest.
//!
//! The library's choice is only known after the run, so a query cannot contain it. The trees that predict times use
//! the recorded choice in training; for a query, this classifier supplies the most likely one.

use super::boosted::{self, BoostingParameters};
use super::trees::Trees;
use crate::error::Result;
use samples::features::Matrix;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Minimum number of rows of a choice on a device; rarer choices get no class.
const FEWEST: usize = 20;
/// Maximum number of classes; the rarest choices are dropped.
const MOST: usize = 128;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceClassifier {
    /// Value of the choice feature for each class, with the trees that compute the score of the class.
    pub classes: Vec<(u32, Trees)>,
}

impl ChoiceClassifier {
    /// Fits a classifier to rows and their choices; None if fewer than two choices are frequent enough.
    pub fn fit_classifier(
        matrix: &Matrix,
        chosen: &[u32],
        usual: &BoostingParameters,
        seed: u64,
    ) -> Result<Option<ChoiceClassifier>> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        chosen.iter().filter(|choice| **choice > 0).for_each(|choice| *counts.entry(*choice).or_default() += 1);
        let mut frequent: Vec<(u32, usize)> = counts.into_iter().filter(|(_, count)| *count >= FEWEST).collect();
        if frequent.len() < 2 {
            return Ok(None);
        }
        frequent.sort_by_key(|(choice, count)| (Reverse(*count), *choice));
        frequent.truncate(MOST);
        frequent.sort_unstable();
        let (threads, min_split_loss) = (usual.threads, usual.min_split_loss);
        let parameters = BoostingParameters { threads, min_split_loss, ..tree_parameters() };
        let class = |choice: u32| {
            let labels: Vec<f32> = chosen.iter().map(|other| f32::from(u8::from(*other == choice))).collect();
            Ok((choice, boosted::fit_trees(matrix, &labels, &parameters, seed)?))
        };
        let classes = frequent.into_iter().map(|(choice, _)| class(choice)).collect::<Result<_>>()?;
        Ok(Some(ChoiceClassifier { classes }))
    }

    pub fn choice_values(&self) -> impl Iterator<Item = u32> {
        self.classes.iter().map(|(choice, _)| *choice)
    }

    pub fn predict_choices(&self, matrix: &Matrix) -> Vec<f32> {
        let mut best = vec![(f32::NEG_INFINITY, 0); matrix.row_count()];
        for (choice, trees) in &self.classes {
            for (best, likely) in best.iter_mut().zip(trees.predict_rows(matrix)) {
                if likely > best.0 {
                    *best = (likely, *choice);
                }
            }
        }
        best.into_iter().map(|(_, choice)| choice as f32).collect()
    }
}

/// Returns hyperparameters for few shallow trees, because libraries choose by simple rules.
fn tree_parameters() -> BoostingParameters {
    BoostingParameters {
        rounds: 80,
        learning_rate: 0.15,
        max_depth: 6,
        min_child_weight: 1.0,
        ..BoostingParameters::default_parameters()
    }
}
