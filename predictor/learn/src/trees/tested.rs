//! Small trees as tests of whole groups of rows.
//!
//! At first, a row may reach every leaf. Each split that sends it to the right excludes the leaves below its left child.
//! The first leaf that remains is the one that it reaches (known as QuickScorer). All rows take the same steps, which
//! compilers turn into vector instructions.

use super::split::Split;
use multiversion::multiversion;

/// Number of rows that are tested together.
pub(super) const ROWS: usize = 32;
/// Larger trees are faster climbed.
pub(super) const MOST_LEAVES: usize = 32;

/// The integers of a group of rows in one column.
pub(super) type Column = [i32; ROWS];

#[derive(Clone, Copy)]
struct Test {
    column: u32,
    threshold: i32,
    /// Leaves that a row may still reach after it goes right; the leftmost leaf is the lowest bit.
    right: u32,
}

/// A tree of at most [`MOST_LEAVES`] leaves.
#[derive(Default)]
pub(super) struct TestedTree {
    tests: Vec<Test>,
    leaves: Vec<f32>,
}

impl TestedTree {
    /// Reads a tree from its nodes in breadth-first order.
    pub fn of_nodes(nodes: &[Split], values: &[f32]) -> TestedTree {
        let left_of = |place: usize| nodes[place].left as usize;
        // For each node, the number of leaves below it and of those to its left.
        let (mut counts, mut firsts) = ([1u8; 2 * MOST_LEAVES], [0u8; 2 * MOST_LEAVES]);
        for place in (0..nodes.len()).rev().filter(|place| left_of(*place) != *place) {
            counts[place] = counts[left_of(place)] + counts[left_of(place) + 1];
        }
        let mut tree =
            TestedTree { tests: Vec::with_capacity(nodes.len() / 2), leaves: vec![0.0; usize::from(counts[0])] };
        for (place, node) in nodes.iter().enumerate() {
            let (left, first) = (left_of(place), firsts[place]);
            if left == place {
                tree.leaves[usize::from(first)] = values[place];
                continue;
            }
            (firsts[left], firsts[left + 1]) = (first, first + counts[left]);
            let below_left = ((1 << counts[left]) - 1) << first;
            let (column, threshold) = (node.column() as u32, node.threshold_key());
            tree.tests.push(Test { column, threshold, right: !below_left });
        }
        tree
    }

    #[cfg(test)]
    pub fn split_count(&self) -> usize {
        self.tests.len()
    }

    /// Adds to each sum the leaf that its row reaches.
    pub fn add_leaves(&self, keys: &[Column], sums: &mut [f32]) {
        let remaining = remaining_leaves(&self.tests, keys);
        for (sum, leaves) in sums.iter_mut().zip(remaining) {
            *sum += self.leaves[leaves.trailing_zeros() as usize];
        }
    }
}

/// Returns the leaves of a tree that each row may still reach after all tests.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn remaining_leaves(tests: &[Test], keys: &[Column]) -> [u32; ROWS] {
    let mut remaining = [u32::MAX; ROWS];
    for test in tests {
        let keys = &keys[test.column as usize];
        for (leaves, key) in remaining.iter_mut().zip(keys) {
            *leaves &= test.right | if *key < test.threshold { u32::MAX } else { 0 };
        }
    }
    remaining
}
