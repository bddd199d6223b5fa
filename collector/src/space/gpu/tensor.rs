//! Which products tensor cores make, and the points that use them.

use super::super::declare::numbers;
use super::super::{Axis, Knobs, Setting};
use super::{block_fit, busy};
use crate::cuda::{FRAGMENT, Product, WARP_THREADS};
use models::{Op, Task};
use std::collections::BTreeMap;

/// What tensor cores must know of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::space) struct Operands {
    pub(in crate::space) product: Product,
    pub(in crate::space) is_left_transposed: bool,
    pub(in crate::space) is_right_transposed: bool,
    /// Elements of an operand that a thread fetches at once: sixteen bytes.
    pub(in crate::space) vector: i64,
    /// Rows and columns of the result, and the depth.
    extents: [i64; 3],
}

/// The operands of a product of whole fragments, for devices of this capability; nothing for any other task.
pub(in crate::space) fn operands(task: &Task, capability: u32) -> Option<Operands> {
    const FETCHED_BYTES: u64 = 16;
    let anchor = &task.steps[0];
    let (is_left_transposed, is_right_transposed) = match anchor.op {
        Op::MatMul { transpose_a, transpose_b } => (transpose_a, transpose_b),
        Op::QMatMul { a_zero: 0, b_zero: 0 } => (false, false),
        Op::Dense | Op::QDense { x_zero: 0, w_zero: 0 } => (false, true),
        _ => return None,
    };
    let [left, right] = [0, 1].map(|place| task.operand_type(*anchor.inputs.get(place)?).ok());
    let (left, right) = (left?, right?);
    let product = Product::of(left.dtype, right.dtype, capability)?;
    let [.., rows, columns] = anchor.output.extents()?[..] else { return None };
    let [.., left_rows, left_columns] = left.extents()?[..] else { return None };
    let depth = if is_left_transposed { left_rows } else { left_columns };
    let extents = [rows, columns, depth];
    let bytes = left.dtype.bytes();
    let vector = i64::try_from(FETCHED_BYTES / bytes.max(1)).ok()?;
    extents.iter().all(|extent| extent % FRAGMENT == 0).then_some(Operands {
        product,
        is_left_transposed,
        is_right_transposed,
        vector,
        extents,
    })
}

/// Axes of the points on tensor cores.
pub(super) fn axes() -> [Axis; 6] {
    let few = [1, 2, 4];
    [
        numbers("warps_y", "warps of a block along rows", few),
        numbers("warps_x", "warps of a block along columns", few),
        numbers("fragments_y", "fragments of a warp along rows", few),
        numbers("fragments_x", "fragments of a warp along columns", few),
        numbers("fragments_r", "fragments along the depth staged at once", few),
        numbers("ahead", "rounds that fetching is ahead of multiplying", [0, 1, 2]),
    ]
}

/// The names of these axes.
pub(in crate::space) const AXES: [&str; 6] =
    ["warps_y", "warps_x", "fragments_y", "fragments_x", "fragments_r", "ahead"];

/// Fragments of sums that a warp keeps in registers beside those of operands.
const FRAGMENTS: i64 = 12;

impl Operands {
    /// Whether a point divides the extents and fits a block of threads.
    pub(super) fn allow(&self, knobs: &Knobs, block_threads: i64, shared_bytes: i64) -> bool {
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        let fragments = [number("fragments_y"), number("fragments_x")];
        let warps = [number("warps_y"), number("warps_x")];
        let threads = warps[0] * warps[1] * i64::from(WARP_THREADS);
        let tile = [0, 1].map(|side| FRAGMENT * fragments[side] * warps[side]);
        let depth = FRAGMENT * number("fragments_r");
        let part = depth * number("split_k");
        let rows_of = |is_transposed: bool, side: i64| if is_transposed { (depth, side) } else { (side, depth) };
        let staged = [rows_of(self.is_left_transposed, tile[0]), rows_of(!self.is_right_transposed, tile[1])];
        let pad = if number("pad_rows") == 1 { 2 * FRAGMENT } else { 0 };
        let copies = number("ahead").max(0) + 1;
        let element_bytes = i64::try_from(self.product.input().bytes()).unwrap_or(i64::MAX);
        let bytes = staged.iter().map(|(rows, row)| rows * (row + pad) * element_bytes * copies).sum::<i64>();
        threads <= block_threads
            && fragments[0] * fragments[1] <= FRAGMENTS
            && self.extents[0] % tile[0] == 0
            && self.extents[1] % tile[1] == 0
            && self.extents[2] % part == 0
            // Every thread fetches whole vectors, the same number of each operand.
            && staged.iter().all(|(rows, row)| rows * row % (threads * self.vector) == 0)
            && bytes.max(tile[0] * tile[1] * SUM_BYTES) <= shared_bytes
            // There must be rounds to be ahead of.
            && number("ahead") < self.extents[2] / part
    }

    /// The point with the least estimated time, where any is allowed: fetches per multiplication, over how much of a
    /// large device it keeps busy.
    pub(super) fn default(&self, places: i64, block_threads: i64, shared_bytes: i64) -> Option<Knobs> {
        /// Time of fetching a fragment in multiplications of one.
        const FETCH: f64 = 1.0;
        let mut best: Option<(f64, Knobs)> = None;
        let sides = [1, 2, 4].into_iter().flat_map(|y| [1, 2, 4].map(|x| [y, x]));
        for warps in sides.clone() {
            for fragments in sides.clone() {
                for [depth, ahead] in [[2, 1], [1, 1], [2, 0], [1, 0]] {
                    let point = [warps[0], warps[1], fragments[0], fragments[1], depth, ahead];
                    let point = AXES.into_iter().zip(point).chain([("pad_rows", 1)]);
                    let knobs: BTreeMap<String, Setting> =
                        point.map(|(name, number)| (name.to_owned(), Setting::Number(number))).collect();
                    let knobs = Knobs(knobs);
                    if !self.allow(&knobs, block_threads, shared_bytes) {
                        continue;
                    }
                    let tile = [0, 1].map(|side| FRAGMENT * fragments[side] * warps[side]);
                    let blocks = (places * self.extents[0] / tile[0] * self.extents[1] / tile[1]) as f64;
                    let threads = (warps[0] * warps[1] * i64::from(WARP_THREADS)) as f64;
                    let [y, x] = fragments.map(|count| count as f64);
                    let late = if ahead > 0 { 1.0 } else { 1.5 };
                    let staging =
                        late * FETCH * (tile[0] + tile[1]) as f64 * FRAGMENT as f64 / (tile[0] * tile[1]) as f64;
                    let cost =
                        (1.0 + FETCH * (y + x) / (y * x) + staging) / (busy(blocks, threads) * block_fit(threads));
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, knobs));
                    }
                }
            }
        }
        best.map(|(_, knobs)| knobs)
    }
}

/// Bytes of a sum.
const SUM_BYTES: i64 = 4;
