//! A random forest of full-depth regression trees on bootstrap samples.
//!
//! Features are quantised into at most 256 bins once. Large nodes build histograms, small nodes sort their rows; both
//! find the split with the largest reduction of the squared error.

use super::trees::{Grown, Trees};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use samples::features::Matrix;

const TREES: usize = 100;
const SPLIT_ROWS: usize = 2;
const BINS: usize = 256;
/// Minimum number of rows for building a histogram; smaller nodes sort their rows.
const COUNTED_ROWS: usize = 128;
const MAX_DEPTH: usize = 64;

struct Binned {
    bins: Vec<Vec<u8>>,
    values: Vec<Vec<(f32, f32)>>,
}

/// A split between two non-empty bins, with only empty bins in between.
#[derive(Clone, Copy)]
struct Cut {
    feature: usize,
    left: u8,
    right: u8,
}

pub fn fit_forest(matrix: &Matrix, labels: &[f32], seed: u64) -> Trees {
    let binned = bin_features(matrix);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut grown = Vec::with_capacity(TREES);
    for _ in 0..TREES {
        let mut rows: Vec<u32> = (0..labels.len()).map(|_| random.random_range(0..labels.len()) as u32).collect();
        let mut nodes = Vec::new();
        grow_tree(&binned, labels, &mut rows, &mut nodes, &mut random);
        grown.push(nodes);
    }
    Trees::of_grown(matrix.column_count(), &grown)
}

fn bin_features(matrix: &Matrix) -> Binned {
    let mut binned = Binned { bins: Vec::new(), values: Vec::new() };
    for column in 0..matrix.column_count() {
        // Missing values sort below all others.
        let value = |row: usize| Some(matrix.row(row)[column]).filter(|value| !value.is_nan()).unwrap_or(f32::MIN);
        let mut sorted: Vec<f32> = (0..matrix.row_count()).map(value).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let mut distinct = sorted.clone();
        distinct.dedup();
        let edges: Vec<f32> = if distinct.len() <= BINS {
            distinct.windows(2).map(|pair| midpoint_above(pair[0], pair[1])).collect()
        } else {
            let mut edges: Vec<f32> = (1..BINS).map(|bin| sorted[bin * sorted.len() / BINS]).collect();
            edges.dedup();
            edges
        };
        let bin = |value: f32| edges.partition_point(|edge| *edge <= value);
        let mut values = vec![(f32::INFINITY, f32::NEG_INFINITY); edges.len() + 1];
        for value in distinct {
            let (low, high) = &mut values[bin(value)];
            (*low, *high) = (low.min(value), high.max(value));
        }
        binned.bins.push((0..matrix.row_count()).map(|row| bin(value(row)) as u8).collect());
        binned.values.push(values);
    }
    binned
}

fn midpoint_above(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if middle > low { middle } else { high }
}

/// Grows one tree by splitting nodes until all labels of a node agree; children follow their parents in the array.
fn grow_tree(binned: &Binned, labels: &[f32], rows: &mut [u32], nodes: &mut Vec<Grown>, random: &mut ChaCha8Rng) {
    let mean = |rows: &[u32]| {
        (rows.iter().map(|row| f64::from(labels[*row as usize])).sum::<f64>() / rows.len() as f64) as f32
    };
    let leaf =
        |rows: &[u32]| Grown { feature: 0, threshold: 0.0, left: 0, value: mean(rows), cover: rows.len() as f32 };
    nodes.push(leaf(rows));
    let mut features: Vec<usize> = (0..binned.bins.len()).collect();
    let mut open = vec![(0usize, 0usize, rows.len(), 0usize)];
    while let Some((place, begin, end, depth)) = open.pop() {
        let rows = &mut rows[begin..end];
        if rows.len() < SPLIT_ROWS || depth == MAX_DEPTH {
            continue;
        }
        // With few rows, many features give the same gain; a random order makes the trees differ.
        features.shuffle(random);
        let Some(cut) = best_split(binned, labels, rows, &features) else { continue };
        let bins = &binned.bins[cut.feature];
        rows.sort_unstable_by_key(|row| bins[*row as usize] > cut.left);
        let left = rows.partition_point(|row| bins[*row as usize] <= cut.left);
        let values = &binned.values[cut.feature];
        let child = nodes.len();
        nodes.push(leaf(&rows[..left]));
        nodes.push(leaf(&rows[left..]));
        nodes[place] = Grown {
            feature: cut.feature as u16,
            // The threshold is the midpoint between the node's own rows, in the interval without data.
            threshold: midpoint_above(values[usize::from(cut.left)].1, values[usize::from(cut.right)].0),
            left: child as u32,
            ..nodes[place]
        };
        open.push((child, begin, begin + left, depth + 1));
        open.push((child + 1, begin + left, end, depth + 1));
    }
}

/// Returns the split with the largest error reduction; ties go to the first feature.
fn best_split(binned: &Binned, labels: &[f32], rows: &[u32], features: &[usize]) -> Option<Cut> {
    let total: f64 = rows.iter().map(|row| f64::from(labels[*row as usize])).sum();
    let count = rows.len() as f64;
    // Gains within the rounding error are ignored.
    let mut best_gain = 1e-9 * count.max(1.0);
    let mut best = None;
    let mut consider = |cut: Cut, sum: f64, left: f64| {
        let gain = sum * sum / left + (total - sum) * (total - sum) / (count - left) - total * total / count;
        if gain > best_gain {
            best_gain = gain;
            best = Some(cut);
        }
    };
    let mut sorted: Vec<(u8, f32)> = Vec::new();
    for feature in features.iter().copied() {
        let bins = &binned.bins[feature];
        if binned.values[feature].len() < 2 {
            continue;
        }
        let (mut sum, mut left) = (0.0, 0.0);
        if rows.len() < COUNTED_ROWS {
            sorted.clear();
            sorted.extend(rows.iter().map(|row| (bins[*row as usize], labels[*row as usize])));
            sorted.sort_unstable_by_key(|(bin, _)| *bin);
            for pair in sorted.windows(2) {
                sum += f64::from(pair[0].1);
                left += 1.0;
                if pair[0].0 != pair[1].0 {
                    consider(Cut { feature, left: pair[0].0, right: pair[1].0 }, sum, left);
                }
            }
            continue;
        }
        let mut counted = [(0.0f64, 0.0f64); BINS];
        for row in rows {
            let (sum, count) = &mut counted[usize::from(bins[*row as usize])];
            *sum += f64::from(labels[*row as usize]);
            *count += 1.0;
        }
        let mut before = None;
        for (bin, (of_bin, rows)) in (0u8..=u8::MAX).zip(&counted).filter(|(_, (_, rows))| *rows > 0.0) {
            if let Some(before) = before.replace(bin) {
                consider(Cut { feature, left: before, right: bin }, sum, left);
            }
            sum += of_bin;
            left += rows;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};

    /// Number of seeds per library. The spread between seeds gives the tolerance for the difference of means.
    const SEEDS: u64 = 12;

    #[test]
    fn forests_answer_as_smartcores_do() {
        let (samples, learned, asked) = synthetic::synthetic_samples();
        // With redundant features the choice of split is random, so only three independent sizes are used.
        let column = |name: &str| samples.names.iter().position(|known| known == name).expect("a feature");
        let columns = ["rows", "columns", "depth"].map(column);
        let logs: Vec<f32> = learned.iter().map(|row| samples.rows[*row].time_ns.ln() as f32).collect();
        let truth: Vec<f64> = asked.iter().map(|row| samples.rows[*row].time_ns.ln()).collect();
        let matrix = |rows: &[usize]| samples.features.select_rows(rows).select_columns(&columns);
        let dense = |matrix: &Matrix| {
            let row = |row: usize| matrix.row(row).iter().map(|value| f64::from(*value)).collect();
            synthetic::dense_matrix(&(0..matrix.row_count()).map(row).collect::<Vec<_>>())
        };
        let (given, questions) = (matrix(&learned), matrix(&asked));
        let (given_dense, questions_dense) = (dense(&given), dense(&questions));
        let logs_dense: Vec<f64> = logs.iter().map(|log| f64::from(*log)).collect();
        let of_ours = |seed: u64| -> Vec<f64> {
            fit_forest(&given, &logs, seed).predict_rows(&questions).into_iter().map(f64::from).collect()
        };
        let of_theirs = |seed: u64| -> Vec<f64> {
            let parameters = RandomForestRegressorParameters::default()
                .with_n_trees(TREES)
                .with_m(columns.len())
                .with_min_samples_leaf(1)
                .with_min_samples_split(SPLIT_ROWS)
                .with_seed(seed);
            let forest = RandomForestRegressor::fit(&given_dense, &logs_dense, parameters).expect("a forest");
            forest.predict(&questions_dense).expect("answers")
        };
        let ours: Vec<Vec<f64>> = (0..SEEDS).map(of_ours).collect();
        let theirs: Vec<Vec<f64>> = (0..SEEDS).map(of_theirs).collect();
        // First compares the mean error of both libraries.
        let off = |runs: &[Vec<f64>]| {
            Spread::of(&runs.iter().map(|run| synthetic::mean_max_difference(run, &truth).0).collect::<Vec<f64>>())
        };
        let (one, two) = (off(&ours), off(&theirs));
        assert!(one.errors_from(&two) < 3.0, "off by {one:?}, theirs by {two:?}");
        // Then compares the predictions for each query.
        let answers =
            |runs: &[Vec<f64>], place: usize| Spread::of(&runs.iter().map(|run| run[place]).collect::<Vec<f64>>());
        let squares = (0..asked.len()).map(|place| answers(&ours, place).errors_from(&answers(&theirs, place)).powi(2));
        let typical = (squares.sum::<f64>() / asked.len() as f64).sqrt();
        assert!(typical < 1.5, "{typical} standard errors apart");
    }

    #[derive(Debug)]
    struct Spread {
        mean: f64,
        standard_error: f64,
    }

    impl Spread {
        fn of(values: &[f64]) -> Spread {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            Spread { mean, standard_error: (variance / count).sqrt() }
        }

        fn errors_from(&self, other: &Spread) -> f64 {
            (self.mean - other.mean).abs() / self.standard_error.hypot(other.standard_error)
        }
    }
}
