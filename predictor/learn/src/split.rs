//! Splits samples into training and test rows by whole groups, such as shapes, never by single rows.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use samples::Samples;
use std::collections::BTreeMap;

/// Number of folds over shapes. Operators with fewer shapes cannot be cross-validated.
pub const PARTS: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    pub name: String,
    pub train: Vec<usize>,
    pub test: Vec<usize>,
}

/// Splits whole groups into `count` folds, shuffled by the seed.
pub fn by_group(groups: &[u64], count: usize, seed: u64) -> Vec<Fold> {
    let mut distinct: Vec<u64> = groups.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let fold_of: BTreeMap<u64, usize> =
        distinct.iter().enumerate().map(|(place, group)| (*group, place % count)).collect();
    let folds = (0..count.min(distinct.len())).map(|fold| {
        let (test, train) = (0..groups.len()).partition(|row| fold_of[&groups[*row]] == fold);
        Fold { name: format!("fold {}", fold + 1), train, test }
    });
    folds.collect()
}

pub fn held_out_fifth(samples: &Samples, rows: &[usize], seed: u64) -> (Vec<usize>, Vec<usize>) {
    let shapes: Vec<u64> = rows.iter().map(|row| samples.rows[*row].shape).collect();
    let pick = |places: &[usize]| places.iter().map(|place| rows[*place]).collect::<Vec<_>>();
    by_group(&shapes, PARTS, seed).first().map_or_else(Default::default, |fold| (pick(&fold.train), pick(&fold.test)))
}

pub fn one_out(labels: &[u32], names: &[String]) -> Vec<Fold> {
    let held = (0..names.len() as u32).filter(|label| labels.contains(label));
    let folds = held.map(|label| {
        let (test, train) = (0..labels.len()).partition(|row| labels[*row] == label);
        Fold { name: names[label as usize].clone(), train, test }
    });
    folds.collect()
}

pub fn shape_groups(samples: &Samples) -> Vec<u64> {
    samples.rows.iter().map(|sample| sample.shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_group_is_on_both_sides(groups in prop::collection::vec(0u64..40, 2..200), count in 2usize..8, seed: u64) {
            let folds = by_group(&groups, count, seed);
            let mut asked = vec![0; groups.len()];
            for fold in &folds {
                for row in &fold.test {
                    asked[*row] += 1;
                    prop_assert!(fold.train.iter().all(|other| groups[*other] != groups[*row]));
                }
                prop_assert_eq!(fold.train.len() + fold.test.len(), groups.len());
            }
            prop_assert!(asked.iter().all(|times| *times == 1));
        }
    }
}
