//! What a library chooses: which of its kernels runs an operator of some sizes.
//!
//! That is known only after the run, so nobody can be asked for it; but where the data says it, it is learned from twice.
//! Trees that predict times see what was chosen, and other trees learn to guess it: for each kernel that a device ran often
//! enough, how likely it is. A question is answered with the likeliest.

use super::boosted::{self, Growth};
use super::trees::Trees;
use crate::error::Result;
use crate::features::Matrix;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What was chosen less often on a device is not guessed.
const FEWEST: usize = 20;
/// Choices that are guessed among; the others are the rarest.
const MOST: usize = 128;

/// Guesses what the library of one device chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chooser {
    /// Each number that a choice has among the features, with trees that say how likely it is.
    pub options: Vec<(u32, Trees)>,
}

impl Chooser {
    /// Learns from rows that do not see the choice, and the choice of each; nothing where there is none to be made.
    pub fn fit(matrix: &Matrix, chosen: &[u32], threads: usize, seed: u64) -> Result<Option<Chooser>> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        chosen.iter().filter(|choice| **choice > 0).for_each(|choice| *counts.entry(*choice).or_default() += 1);
        let mut frequent: Vec<(u32, usize)> = counts.into_iter().filter(|(_, count)| *count >= FEWEST).collect();
        if frequent.len() < 2 {
            return Ok(None);
        }
        frequent.sort_by_key(|(choice, count)| (Reverse(*count), *choice));
        frequent.truncate(MOST);
        frequent.sort_unstable();
        let growth = Growth { threads, ..growth() };
        let option = |choice: u32| {
            let labels: Vec<f32> = chosen.iter().map(|other| f32::from(u8::from(*other == choice))).collect();
            Ok((choice, boosted::fit(matrix, &labels, &growth, seed)?))
        };
        let options = frequent.into_iter().map(|(choice, _)| option(choice)).collect::<Result<_>>()?;
        Ok(Some(Chooser { options }))
    }

    /// The numbers of its choices.
    pub fn choices(&self) -> impl Iterator<Item = u32> {
        self.options.iter().map(|(choice, _)| *choice)
    }

    /// The number of the likeliest choice for each row.
    pub fn guess(&self, matrix: &Matrix) -> Vec<f32> {
        let mut best = vec![(f32::NEG_INFINITY, 0); matrix.rows()];
        for (choice, trees) in &self.options {
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
fn growth() -> Growth {
    Growth { rounds: 80, rate: 0.15, depth: 6, leaf_rows: 1.0, ..Growth::boosting() }
}
