//! Predicts many rows together.
//!
//! Rows of one question mostly differ in few columns: a list of operators for one device shares the device, the threads
//! and the schedule. Each tree is first pruned to the nodes that such rows can reach. Then groups of few rows take it.
//! They climb large trees several together, which hides memory latency. A leaf is its own child, so that all rows take
//! the same number of steps.

use super::split::{Split, column_key, row_keys};
use super::tested::{Column, MOST_LEAVES, ROWS, TestedTree};
use super::{Span, Trees};
use samples::features::Matrix;
use std::ops::Range;

/// Number of rows that climb a tree together.
const LANES: usize = 8;
/// Number of rows for which trees are pruned at once.
const BLOCK_ROWS: usize = 2048;
/// Number of rows from which pruning saves more time than it takes.
const FEWEST_TO_PRUNE: usize = 32;

/// The nodes of a tree that rows can reach, which compare only columns in which rows differ. Each tree overwrites those
/// of the tree before.
#[derive(Default)]
struct Reachable {
    nodes: Vec<Split>,
    leaves: Vec<f32>,
    /// For each node, its index among the nodes of the whole trees.
    sources: Vec<usize>,
}

enum PrunedTree {
    /// A large tree, whose nodes are in [`Reachable`].
    Climbed(Span),
    Tested(TestedTree),
}

/// The columns of [`row_keys`] in which rows differ.
struct Varying {
    /// Integers of the first row, which stand for those of all rows in the other columns.
    first: Vec<i32>,
    /// For each column of the rows' integers its place in `columns`, if rows differ. Both columns of a feature without
    /// missing numbers have equal integers and one place.
    places: Vec<Option<u32>>,
    columns: Vec<u32>,
}

impl Trees {
    pub fn predict_rows(&self, matrix: &Matrix) -> Vec<f32> {
        assert_eq!(matrix.column_count(), self.features, "rows have the features the trees were grown on");
        let count = matrix.row_count();
        if count < LANES {
            return (0..count).map(|row| self.predict_row(matrix.row(row))).collect();
        }
        let mut sums = vec![self.base; count];
        for (block, sums) in sums.chunks_mut(BLOCK_ROWS).enumerate() {
            let rows = block * BLOCK_ROWS..block * BLOCK_ROWS + sums.len();
            match sums.len() < FEWEST_TO_PRUNE {
                true => self.add_whole_trees(matrix, rows, sums),
                false => self.add_pruned_trees(matrix, rows, sums),
            }
        }
        sums
    }

    fn add_whole_trees(&self, matrix: &Matrix, rows: Range<usize>, sums: &mut [f32]) {
        let columns: Vec<u32> = (0..2 * self.features.max(1) as u32).collect();
        let keys = block_keys(matrix, rows, &columns);
        self.trees.iter().for_each(|tree| climb_tree(&self.nodes, &self.leaves, *tree, &keys, sums));
    }

    fn add_pruned_trees(&self, matrix: &Matrix, rows: Range<usize>, sums: &mut [f32]) {
        let varying = Varying::of_rows(matrix, rows.clone());
        let keys = block_keys(matrix, rows, &varying.columns);
        let mut reachable = Reachable::default();
        for tree in &self.trees {
            let pruned = self.prune_tree(*tree, &varying, &mut reachable);
            for (keys, sums) in keys.chunks(varying.columns.len()).zip(sums.chunks_mut(ROWS)) {
                match &pruned {
                    PrunedTree::Climbed(tree) => climb_tree(&reachable.nodes, &reachable.leaves, *tree, keys, sums),
                    PrunedTree::Tested(tree) => tree.add_leaves(keys, sums),
                }
            }
        }
    }

    /// Collects the nodes of a tree that rows can reach, in breadth-first order, or makes tests of them.
    fn prune_tree(&self, tree: Span, varying: &Varying, reachable: &mut Reachable) -> PrunedTree {
        let settle = |place: usize| self.settle_place(place, varying);
        let Reachable { nodes, leaves, sources } = reachable;
        nodes.clear();
        leaves.clear();
        sources.clear();
        sources.push(settle(tree.root as usize));
        let (mut depth, mut end_of_level) = (0, sources.len());
        while let Some(source) = sources.get(nodes.len()).copied() {
            if nodes.len() == end_of_level {
                (depth, end_of_level) = (depth + 1, sources.len());
            }
            let node = &self.nodes[source];
            let left = node.left as usize;
            leaves.push(self.leaves[source]);
            nodes.push(match varying.places[node.column()] {
                Some(column) if left != source => {
                    let new_left = sources.len() as u32;
                    sources.extend([left, left + 1].map(settle));
                    node.with_column(new_left, column)
                }
                _ => Split::leaf_at(nodes.len() as u32),
            });
        }
        match nodes.len() < 2 * MOST_LEAVES {
            true => PrunedTree::Tested(TestedTree::of_nodes(nodes, leaves)),
            false => PrunedTree::Climbed(Span { root: 0, depth }),
        }
    }

    /// Follows splits that send all rows to the same child, to a leaf or to the first split that may not.
    fn settle_place(&self, mut place: usize, varying: &Varying) -> usize {
        loop {
            let node = &self.nodes[place];
            if node.left as usize == place || varying.places[node.column()].is_some() {
                return place;
            }
            place = node.next(varying.first[node.column()]);
        }
    }
}

/// Moves a group of rows from the root of a tree through its levels, and adds the leaves to `sums`.
fn climb_tree(nodes: &[Split], leaves: &[f32], tree: Span, keys: &[Column], sums: &mut [f32]) {
    for (part, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut places = [tree.root as usize; LANES];
        for _ in 0..tree.depth {
            for (lane, place) in places.iter_mut().enumerate() {
                let node = &nodes[*place];
                // The remainder is the number itself; it spares the check of a bound.
                *place = node.next(keys[node.column()][(part * LANES + lane) % ROWS]);
            }
        }
        sums.iter_mut().zip(places).for_each(|(sum, place)| *sum += leaves[place]);
    }
}

/// Returns the integers of rows by groups of [`ROWS`] rows, and within each group by columns. The last row fills the
/// last group.
fn block_keys(matrix: &Matrix, rows: Range<usize>, columns: &[u32]) -> Vec<Column> {
    let mut keys = Vec::with_capacity(rows.len().div_ceil(ROWS) * columns.len());
    for first in rows.clone().step_by(ROWS) {
        let group: [&[f32]; ROWS] = std::array::from_fn(|row| matrix.row((first + row).min(rows.end - 1)));
        keys.extend(columns.iter().map(|column| group.map(|row| column_key(row, *column))));
    }
    keys
}

impl Varying {
    fn of_rows(matrix: &Matrix, rows: Range<usize>) -> Varying {
        let first = matrix.row(rows.start);
        let mut varies = vec![false; first.len()];
        let mut is_missing: Vec<bool> = first.iter().map(|value| value.is_nan()).collect();
        for row in rows.skip(1) {
            for (((varies, is_missing), value), first) in
                varies.iter_mut().zip(&mut is_missing).zip(matrix.row(row)).zip(first)
            {
                *varies |= value.to_bits() != first.to_bits();
                *is_missing |= value.is_nan();
            }
        }
        let mut varying = Varying { first: row_keys(first), places: vec![None; 2 * first.len()], columns: Vec::new() };
        for feature in (0..first.len()).filter(|feature| varies[*feature]) {
            for column in [2 * feature, 2 * feature + 1] {
                if column % 2 == 0 || is_missing[feature] {
                    varying.columns.push(column as u32);
                }
                varying.places[column] = Some(varying.columns.len() as u32 - 1);
            }
        }
        // Leaves compare the first column, also where no node compares any.
        if varying.columns.is_empty() {
            varying.columns.push(0);
        }
        varying
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::Grown;

    /// A tree of depth `depth` whose splits take features and thresholds in turn.
    fn full_tree(depth: u32, features: u16, seed: u32) -> Vec<Grown> {
        let inner = (1u32 << depth) - 1;
        let node = |place: u32| {
            let step = place.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8;
            let is_leaf = place >= inner;
            Grown {
                feature: (step % u32::from(features)) as u16,
                threshold: (step % 7) as f32 / 7.0,
                left: if is_leaf { 0 } else { 2 * place + 1 },
                value: (step % 1000) as f32 / 100.0,
                cover: 1.0,
            }
        };
        (0..2 * inner + 1).map(node).collect()
    }

    #[test]
    fn rows_together_and_alone_reach_the_same_leaves() {
        let features = 12;
        let grown: Vec<Vec<Grown>> = (0..24).map(|tree| full_tree(tree % 8, features, 97 * tree)).collect();
        let trees = Trees::of_grown(usize::from(features), &grown);
        // The first `constant` columns are equal in all rows; some values are missing.
        for (rows, constant) in [(7, 0), (31, 0), (32, 0), (33, 6), (64, 11), (500, 4), (700, 12)] {
            let value =
                |row: usize, column: usize| match (row * usize::from(column >= constant) * 31 + column * 17) % 11 {
                    10 => f32::NAN,
                    value => value as f32 / 10.0,
                };
            let values = (0..rows).flat_map(|row| (0..usize::from(features)).map(move |column| value(row, column)));
            let matrix = Matrix::from_rows(usize::from(features), values.collect());
            let alone: Vec<f32> = (0..rows).map(|row| trees.predict_row(matrix.row(row))).collect();
            assert_eq!(trees.predict_rows(&matrix), alone, "{rows} rows, {constant} equal columns");
        }
    }

    #[test]
    fn pruned_trees_have_no_splits_on_equal_columns() {
        let trees = Trees::of_grown(3, &[full_tree(5, 3, 256), full_tree(4, 3, 97)]);
        let values = (0..40).flat_map(|row| [0.3, row as f32 / 40.0, f32::NAN]).collect();
        let mut matrix = Matrix::from_rows(3, values);
        let varying = Varying::of_rows(&matrix, 0..40);
        assert_eq!((&varying.columns[..], &varying.places[2..4]), (&[2][..], &[Some(0), Some(0)][..]), "no gaps");
        let counts = |varying: &Varying| -> Vec<usize> {
            let count = |tree: &Span| match trees.prune_tree(*tree, varying, &mut Reachable::default()) {
                PrunedTree::Climbed(tree) => panic!("a small tree is climbed: {tree:?}"),
                PrunedTree::Tested(tree) => tree.split_count(),
            };
            trees.trees.iter().map(count).collect()
        };
        let splits = counts(&varying);
        assert!((1..31).contains(&splits[0]) && splits[1] < 15, "{splits:?}");
        assert_eq!(counts(&Varying::of_rows(&matrix, 7..8)), [0, 0]);
        matrix.set(7, 1, f32::NAN);
        assert_eq!(Varying::of_rows(&matrix, 0..40).columns, [2, 3], "both, because a number is missing");
    }
}
