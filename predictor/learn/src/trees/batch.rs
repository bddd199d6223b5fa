//! Predicts many rows together.
//!
//! Rows of one question mostly differ in few columns: a list of operators for one device shares the device, the threads
//! and the schedule. Trees are first pruned to the nodes that such rows can reach. Then several rows traverse one tree
//! together, which keeps the tree in the cache and hides memory latency. A leaf is its own child, so that all rows take
//! the same number of steps.

use super::{Span, Split, Trees};
use samples::features::Matrix;

const LANES: usize = 8;
/// Numbers per block of rows; a block stays in the L1 cache while all trees are traversed.
const BLOCK: usize = 4096;
/// Number of rows from which pruning saves more time than it takes.
const FEWEST_TO_PRUNE: usize = 32;

impl Trees {
    pub fn predict_rows(&self, matrix: &Matrix) -> Vec<f32> {
        assert_eq!(matrix.column_count(), self.features, "rows have the features the trees were grown on");
        match matrix.row_count() {
            rows if rows < LANES => (0..rows).map(|row| self.predict_row(matrix.row(row))).collect(),
            rows if rows < FEWEST_TO_PRUNE => self.climb_trees(matrix),
            _ => {
                let (trees, matrix) = self.prune_to(matrix);
                trees.climb_trees(&matrix)
            }
        }
    }

    /// Returns the nodes that rows of the matrix can reach, and the columns that these nodes compare.
    fn prune_to(&self, matrix: &Matrix) -> (Trees, Matrix) {
        let varies = varying_columns(matrix);
        let mut pruned = Trees { base: self.base, ..Trees::default() };
        let mut columns = Vec::new();
        let mut new_column: Vec<Option<u16>> = vec![None; matrix.column_count()];
        for tree in &self.trees {
            let root = pruned.nodes.len();
            let settle = |place: usize| self.settle_place(place, matrix.row(0), &varies);
            // The nodes of the pruned tree in breadth-first order, as nodes of this tree.
            let mut sources = vec![settle(tree.root as usize)];
            let (mut depth, mut end_of_level) = (0, 1);
            let mut next = 0;
            while let Some(source) = sources.get(next).copied() {
                if next == end_of_level {
                    (depth, end_of_level) = (depth + 1, sources.len());
                }
                let node = self.nodes[source];
                let left = node.left as usize;
                pruned.nodes.push(match left == source {
                    true => Split::leaf_at((root + next) as u32),
                    false => {
                        let feature = *new_column[usize::from(node.feature)].get_or_insert_with(|| {
                            columns.push(usize::from(node.feature));
                            columns.len() as u16 - 1
                        });
                        let new_left = (root + sources.len()) as u32;
                        sources.extend([left, left + 1].map(settle));
                        Split { left: new_left, feature, ..node }
                    }
                });
                pruned.leaves.push(self.leaves[source]);
                pruned.covers.push(self.covers[source]);
                next += 1;
            }
            pruned.trees.push(Span { root: root as u32, depth });
        }
        // Leaves compare the first column.
        if columns.is_empty() {
            columns.push(0);
        }
        pruned.features = columns.len();
        (pruned, matrix.select_columns(&columns))
    }

    /// Follows splits that send all rows to the same child, to a leaf or to the first split that may not.
    fn settle_place(&self, mut place: usize, row: &[f32], varies: &[bool]) -> usize {
        loop {
            let node = &self.nodes[place];
            if node.left as usize == place || varies[usize::from(node.feature)] {
                return place;
            }
            place = self.next_node(place, row);
        }
    }

    fn climb_trees(&self, matrix: &Matrix) -> Vec<f32> {
        let block_rows = (BLOCK / self.features.max(1)).next_multiple_of(LANES);
        let mut sums = vec![self.base; matrix.row_count()];
        for (block, sums) in sums.chunks_mut(block_rows).enumerate() {
            for tree in &self.trees {
                for (lane, sums) in sums.chunks_mut(LANES).enumerate() {
                    self.climb_tree(tree, matrix, block * block_rows + lane * LANES, sums);
                }
            }
        }
        sums
    }

    /// Moves up to `LANES` rows through a tree and adds their leaves to `sums`.
    fn climb_tree(&self, tree: &Span, matrix: &Matrix, first: usize, sums: &mut [f32]) {
        let mut places = [tree.root as usize; LANES];
        let rows: [&[f32]; LANES] = std::array::from_fn(|lane| matrix.row(first + lane.min(sums.len() - 1)));
        for _ in 0..tree.depth {
            for (place, row) in places.iter_mut().zip(rows) {
                *place = self.next_node(*place, row);
            }
        }
        for (sum, place) in sums.iter_mut().zip(places) {
            *sum += self.leaves[place];
        }
    }
}

/// Returns for each column whether two rows have different values in it.
fn varying_columns(matrix: &Matrix) -> Vec<bool> {
    let mut varies = vec![false; matrix.column_count()];
    for row in 1..matrix.row_count() {
        for ((varies, value), first) in varies.iter_mut().zip(matrix.row(row)).zip(matrix.row(0)) {
            *varies |= value.to_bits() != first.to_bits();
        }
    }
    varies
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
        let grown: Vec<Vec<Grown>> = (0..20).map(|tree| full_tree(tree % 6, features, 97 * tree)).collect();
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
        let trees = Trees::of_grown(3, &[full_tree(5, 3, 1)]);
        let values = (0..40).flat_map(|row| [0.3, row as f32 / 40.0, f32::NAN]).collect();
        let (pruned, matrix) = trees.prune_to(&Matrix::from_rows(3, values));
        assert_eq!((matrix.column_count(), pruned.features), (1, 1));
        assert!(pruned.nodes.len() < trees.nodes.len() && pruned.trees[0].depth < trees.trees[0].depth);
        assert_eq!(pruned.check_spans(&[0]).as_deref(), Ok(&pruned.trees[..]));
    }
}
