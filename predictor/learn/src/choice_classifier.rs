//! Classifies what a library chooses: which of its kernels runs an operator of some sizes, one against the rest.
//!
//! That is known only after the run, so nobody can be asked for it; but where the data says it, it is learned from twice.
//! Trees that predict times see what was chosen, and other trees classify it: for each kernel that a device ran often
//! enough, how likely it is. A question is answered with the likeliest.

use super::boosted::{self, BoostingParameters};
use super::trees::Trees;
use crate::error::Result;
use samples::features::Matrix;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What was chosen less often on a device is no class.
const FEWEST: usize = 20;
/// Classes; the choices beyond are the rarest.
const MOST: usize = 128;

/// Classifies what the library of one device chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceClassifier {
    /// Each number that a choice has among the features, with trees that say how likely it is.
    pub classes: Vec<(u32, Trees)>,
}

impl ChoiceClassifier {
    /// Learns from rows that do not see the choice, and the choice of each; nothing where there is none to be made.
    pub fn fit(
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
        let parameters = BoostingParameters { threads, min_split_loss, ..parameters() };
        let class = |choice: u32| {
            let labels: Vec<f32> = chosen.iter().map(|other| f32::from(u8::from(*other == choice))).collect();
            Ok((choice, boosted::fit(matrix, &labels, &parameters, seed)?))
        };
        let classes = frequent.into_iter().map(|(choice, _)| class(choice)).collect::<Result<_>>()?;
        Ok(Some(ChoiceClassifier { classes }))
    }

    /// The numbers of its choices.
    pub fn choices(&self) -> impl Iterator<Item = u32> {
        self.classes.iter().map(|(choice, _)| *choice)
    }

    /// The number of the likeliest choice for each row.
    pub fn predict(&self, matrix: &Matrix) -> Vec<f32> {
        let mut best = vec![(f32::NEG_INFINITY, 0); matrix.rows()];
        for (choice, trees) in &self.classes {
            for (best, likely) in best.iter_mut().zip(trees.predict(matrix)) {
                if likely > best.0 {
                    *best = (likely, *choice);
                }
            }
        }
        best.into_iter().map(|(_, choice)| choice as f32).collect()
    }
}

/// Choices follow simple rules: few, coarse trees.
fn parameters() -> BoostingParameters {
    BoostingParameters {
        rounds: 80,
        learning_rate: 0.15,
        max_depth: 6,
        min_child_weight: 1.0,
        ..BoostingParameters::usual()
    }
}
