//! A random forest: each tree is grown to its leaves on rows drawn with replacement; answers are averaged.
//!
//! Features are cut into at most 256 bins once. A large node counts its rows by bin, a small one sorts them; both find
//! the split that reduces the squared error most. The result is `Trees` like any other.

use super::trees::{Grown, Trees};
use crate::features::Matrix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const TREES: usize = 100;
/// Rows below which a node is a leaf.
const SPLIT_ROWS: usize = 2;
const BINS: usize = 256;
/// Nodes with fewer rows sort them.
const COUNTED_ROWS: usize = 128;
const MAX_DEPTH: usize = 64;

/// Features cut into bins.
struct Binned {
    /// By feature, then row.
    bins: Vec<Vec<u8>>,
    /// By feature: the value below which a row is in the bin before.
    edges: Vec<Vec<f32>>,
}

/// Grows a forest.
pub fn fit(matrix: &Matrix, labels: &[f32], seed: u64) -> Trees {
    let binned = bin(matrix);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut grown = Vec::with_capacity(TREES);
    for _ in 0..TREES {
        let mut rows: Vec<u32> = (0..labels.len()).map(|_| random.random_range(0..labels.len()) as u32).collect();
        let mut nodes = Vec::new();
        grow(&binned, labels, &mut rows, &mut nodes);
        grown.push(nodes);
    }
    Trees::of_grown(matrix.columns(), &grown)
}

fn bin(matrix: &Matrix) -> Binned {
    let mut binned = Binned { bins: Vec::new(), edges: Vec::new() };
    for column in 0..matrix.columns() {
        // What is absent stands below everything.
        let value = |row: usize| Some(matrix.row(row)[column]).filter(|value| !value.is_nan()).unwrap_or(f32::MIN);
        let mut sorted: Vec<f32> = (0..matrix.rows()).map(value).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let mut distinct = sorted.clone();
        distinct.dedup();
        let edges: Vec<f32> = if distinct.len() <= BINS {
            distinct.windows(2).map(|pair| middle(pair[0], pair[1])).collect()
        } else {
            let mut edges: Vec<f32> = (1..BINS).map(|bin| sorted[bin * sorted.len() / BINS]).collect();
            edges.dedup();
            edges
        };
        let bin = |row| edges.partition_point(|edge| *edge <= value(row)) as u8;
        binned.bins.push((0..matrix.rows()).map(bin).collect());
        binned.edges.push(edges);
    }
    binned
}

fn middle(low: f32, high: f32) -> f32 {
    let middle = low / 2.0 + high / 2.0;
    if middle > low { middle } else { high }
}

/// Splits nodes until their rows agree; children stand behind their parents.
fn grow(binned: &Binned, labels: &[f32], rows: &mut [u32], nodes: &mut Vec<Grown>) {
    let mean = |rows: &[u32]| {
        (rows.iter().map(|row| f64::from(labels[*row as usize])).sum::<f64>() / rows.len() as f64) as f32
    };
    let leaf =
        |rows: &[u32]| Grown { feature: 0, threshold: 0.0, left: 0, value: mean(rows), cover: rows.len() as f32 };
    nodes.push(leaf(rows));
    let mut open = vec![(0usize, 0usize, rows.len(), 0usize)];
    while let Some((place, begin, end, depth)) = open.pop() {
        let rows = &mut rows[begin..end];
        if rows.len() < SPLIT_ROWS || depth == MAX_DEPTH {
            continue;
        }
        let Some((feature, bin)) = best_split(binned, labels, rows) else { continue };
        let bins = &binned.bins[feature];
        rows.sort_unstable_by_key(|row| bins[*row as usize] > bin);
        let left = rows.partition_point(|row| bins[*row as usize] <= bin);
        let child = nodes.len();
        nodes.push(leaf(&rows[..left]));
        nodes.push(leaf(&rows[left..]));
        nodes[place] = Grown {
            feature: feature as u16,
            threshold: binned.edges[feature][bin as usize],
            left: child as u32,
            ..nodes[place]
        };
        open.push((child, begin, begin + left, depth + 1));
        open.push((child + 1, begin + left, end, depth + 1));
    }
}

/// The feature and last bin of the left side that reduce the squared error most.
fn best_split(binned: &Binned, labels: &[f32], rows: &[u32]) -> Option<(usize, u8)> {
    let total: f64 = rows.iter().map(|row| f64::from(labels[*row as usize])).sum();
    let count = rows.len() as f64;
    // A split that gains less than rounding is none.
    let mut best_gain = 1e-9 * count.max(1.0);
    let mut best = None;
    let mut consider = |feature: usize, bin: u8, sum: f64, left: f64| {
        let gain = sum * sum / left + (total - sum) * (total - sum) / (count - left) - total * total / count;
        if gain > best_gain {
            best_gain = gain;
            best = Some((feature, bin));
        }
    };
    let mut sorted: Vec<(u8, f32)> = Vec::new();
    for (feature, bins) in binned.bins.iter().enumerate() {
        if binned.edges[feature].is_empty() {
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
                    consider(feature, pair[0].0, sum, left);
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
        for (bin, (of_bin, rows)) in counted.iter().enumerate().take(binned.edges[feature].len()) {
            sum += of_bin;
            left += rows;
            if *rows > 0.0 && left < count {
                consider(feature, bin as u8, sum, left);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};

    #[test]
    fn a_forest_answers_as_smartcores_does() {
        let (samples, learned, asked) = synthetic::samples();
        // Where features say the same thing, which of them splits is a draw; three sizes say different things.
        let column = |name: &str| samples.names.iter().position(|known| known == name).expect("a feature");
        let columns = ["rows", "columns", "depth"].map(column);
        let logs: Vec<f32> = learned.iter().map(|row| samples.rows[*row].time_ns.ln() as f32).collect();
        let matrix = |rows: &[usize]| samples.features.select(rows).project(&columns);
        let ours: Vec<f64> =
            fit(&matrix(&learned), &logs, 3).predict(&matrix(&asked)).into_iter().map(f64::from).collect();
        let rows = |rows: &[usize]| {
            let matrix = matrix(rows);
            synthetic::dense(
                &(0..rows.len())
                    .map(|row| matrix.row(row).iter().map(|value| f64::from(*value)).collect())
                    .collect::<Vec<_>>(),
            )
        };
        let parameters = RandomForestRegressorParameters::default()
            .with_n_trees(TREES)
            .with_m(columns.len())
            .with_min_samples_leaf(1)
            .with_min_samples_split(SPLIT_ROWS)
            .with_seed(3);
        let learned_logs: Vec<f64> = logs.iter().map(|log| f64::from(*log)).collect();
        let theirs = RandomForestRegressor::fit(&rows(&learned), &learned_logs, parameters).expect("a forest");
        let theirs: Vec<f64> = theirs.predict(&rows(&asked)).expect("answers");
        let truth: Vec<f64> = asked.iter().map(|row| samples.rows[*row].time_ns.ln()).collect();
        let (off, of_theirs) = (synthetic::apart(&ours, &truth).0, synthetic::apart(&theirs, &truth).0);
        let (mean, most) = synthetic::apart(&ours, &theirs);
        assert!((off / of_theirs - 1.0).abs() < 0.25, "off by {off}, theirs by {of_theirs}");
        assert!(mean < 0.1 && most < 0.2, "{mean} {most}, off by {off}");
    }
}
