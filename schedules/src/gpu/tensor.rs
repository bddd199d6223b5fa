//! Products that tensor cores can compute, and schedules that use them.

use super::super::axes::{ChoiceAxis, Declaration, NumberAxis, Ways};
use super::super::choices::{CopyThrough, Precision};
use super::super::{Axis, Knobs};
use super::{PAD_ROWS, SPLIT_K, block_fit, occupied_share};
use crate::product::{FRAGMENT, Product, WARP_THREADS};
use models::operators::{Conv, MatMul, QConv, QDense, QMatMul};
use models::{Op, Task};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operands {
    pub product: Product,
    pub is_left_transposed: bool,
    pub is_right_transposed: bool,
    /// Elements per load of a thread, for the left and the right operand.
    pub vectors: [i64; 2],
    /// Whether the right operand consists of the windows of a convolution (implicit GEMM).
    pub is_conv: bool,
    can_copy: bool,
    /// Extents of rows, columns and depth.
    extents: [i64; 3],
}

/// Returns the operands; None unless this is a product of whole fragments of types that the device supports.
pub fn tensor_operands(task: &Task, capability: u32) -> Option<Operands> {
    const FETCHED_BYTES: u64 = 16;
    /// Minimum compute capability, times ten, of devices with asynchronous copies.
    const ASYNC_COPIES: u32 = 80;
    let anchor = &task.steps[0];
    let [first, second] = [0, 1].map(|place| task.operand_type(*anchor.inputs.get(place)?).ok());
    let (first, second) = (first?, second?);
    let product = Product::for_operands(first.dtype, second.dtype, capability)?;
    let vector = i64::try_from(FETCHED_BYTES / first.dtype.size_bytes().max(1)).ok()?;
    let (output, first, second) = (anchor.output.extents()?, first.extents()?, second.extents()?);
    let plain = |is_left_transposed: bool, is_right_transposed: bool| {
        let ([.., rows, columns], [.., row, column]) = (&output[..], &first[..]) else { return None };
        let extents = [*rows, *columns, if is_left_transposed { *row } else { *column }];
        let (vectors, can_copy) = ([vector; 2], capability >= ASYNC_COPIES);
        let is_conv = false;
        Some(Operands { product, is_left_transposed, is_right_transposed, vectors, is_conv, can_copy, extents })
    };
    let operands = match anchor.op {
        Op::MatMul(MatMul { transpose_a, transpose_b }) => plain(transpose_a, transpose_b)?,
        Op::QMatMul(QMatMul { a_zero: 0, b_zero: 0 }) => plain(false, false)?,
        Op::Dense(_) | Op::QDense(QDense { x_zero: 0, w_zero: 0 }) => plain(false, true)?,
        Op::Conv(Conv { groups: 1, .. }) | Op::QConv(QConv { groups: 1, x_zero: 0, w_zero: 0, .. }) => {
            let depth = second[1..].iter().product();
            let columns = output[0] * output[2..].iter().product::<i64>();
            Operands {
                product,
                is_left_transposed: false,
                is_right_transposed: false,
                // Adjacent elements in a row of windows may be far apart in the image.
                vectors: [vector, 1],
                is_conv: true,
                can_copy: false,
                extents: [output[1], columns, depth],
            }
        }
        _ => return None,
    };
    let [rows, columns, depth] = operands.extents;
    let is_whole = rows % FRAGMENT == 0 && (operands.is_conv || columns % FRAGMENT == 0);
    (is_whole && depth % product.fragment_depth() == 0).then_some(operands)
}

/// Maximum number of columns per block, because untrusted records may hold arbitrary knobs.
const MAX_COLUMNS: i64 = 1 << 20;

pub(crate) fn block_columns(knobs: &Knobs) -> i64 {
    FRAGMENT.saturating_mul(FRAGMENTS_X.or_one(knobs)).saturating_mul(WARPS_X.or_one(knobs)).clamp(1, MAX_COLUMNS)
}

pub static WARPS_Y: NumberAxis = NumberAxis::new("warps_y").with_ways(Ways::TENSOR);
pub static WARPS_X: NumberAxis = NumberAxis::new("warps_x").with_ways(Ways::TENSOR);
pub static FRAGMENTS_Y: NumberAxis = NumberAxis::new("fragments_y").with_ways(Ways::TENSOR);
pub static FRAGMENTS_X: NumberAxis = NumberAxis::new("fragments_x").with_ways(Ways::TENSOR);
pub static FRAGMENTS_R: NumberAxis = NumberAxis::new("fragments_r").with_ways(Ways::TENSOR);
/// Number of iterations by which loads precede products.
pub static AHEAD: NumberAxis = NumberAxis::new("ahead").with_ways(Ways::TENSOR);
pub static COPY: ChoiceAxis<CopyThrough> = ChoiceAxis::new("copy").with_ways(Ways::TENSOR);
pub static PRECISION: ChoiceAxis<Precision> = ChoiceAxis::new("precision").with_ways(Ways::TENSOR);

pub(crate) static AXES: &[&Declaration] =
    &[&WARPS_Y.0, &WARPS_X.0, &FRAGMENTS_Y.0, &FRAGMENTS_X.0, &FRAGMENTS_R.0, &AHEAD.0, &COPY.0, &PRECISION.0];

/// Maximum accumulator fragments per warp, in addition to operand fragments.
const FRAGMENTS: i64 = 12;

impl Operands {
    pub(super) fn tensor_axes(&self) -> Vec<Axis> {
        let few = [1, 2, 4];
        let mut axes = vec![
            WARPS_Y.to_axis("warps per block along rows", few),
            WARPS_X.to_axis("warps per block along columns", few),
            FRAGMENTS_Y.to_axis("fragments per warp along rows", few),
            FRAGMENTS_X.to_axis("fragments per warp along columns", few),
            FRAGMENTS_R.to_axis("fragments along the depth that are staged at a time", few),
            AHEAD.to_axis("iterations by which loads precede products", [0, 1, 2]),
        ];
        if self.can_copy {
            axes.push(COPY.to_axis("path of data to shared memory", [CopyThrough::Registers, CopyThrough::Async]));
        }
        if self.is_rounded() {
            axes.push(PRECISION.to_axis("type to which operands are rounded", [Precision::Tf32]));
        }
        axes
    }

    pub fn is_rounded(&self) -> bool {
        self.product == Product::TF32
    }

    pub(super) fn allows_point(&self, knobs: &Knobs, block_threads: i64, shared_bytes: i64) -> bool {
        let fragments = [FRAGMENTS_Y.or_one(knobs), FRAGMENTS_X.or_one(knobs)];
        let warps = [WARPS_Y.or_one(knobs), WARPS_X.or_one(knobs)];
        let threads = warps[0] * warps[1] * i64::from(WARP_THREADS);
        let tile = [0, 1].map(|side| FRAGMENT * fragments[side] * warps[side]);
        let depth = self.product.fragment_depth() * FRAGMENTS_R.or_one(knobs);
        let part = depth * SPLIT_K.or_one(knobs);
        let rows_of = |is_transposed: bool, side: i64| if is_transposed { (depth, side) } else { (side, depth) };
        let staged = [rows_of(self.is_left_transposed, tile[0]), rows_of(!self.is_right_transposed, tile[1])];
        let pad = if PAD_ROWS.or_one(knobs) == 1 { 2 * FRAGMENT } else { 0 };
        let copies = AHEAD.or_one(knobs).max(0) + 1;
        let element_bytes = i64::try_from(self.product.input_dtype().size_bytes()).unwrap_or(i64::MAX);
        let bytes = staged.iter().map(|(rows, row)| rows * (row + pad) * element_bytes * copies).sum::<i64>();
        let is_async = COPY.is_set_to(knobs, CopyThrough::Async);
        threads <= block_threads
            && (!self.is_rounded() || PRECISION.is_set_to(knobs, Precision::Tf32))
            // Asynchronous copies load the data of later iterations.
            && (!is_async || (self.can_copy && AHEAD.or_one(knobs) > 0))
            && fragments[0] * fragments[1] <= FRAGMENTS
            && self.extents[0] % tile[0] == 0
            && self.fits_columns(tile[1])
            && self.extents[2] % part == 0
            // Every thread fetches whole vectors, equally many of each operand.
            && staged.iter().zip(self.vectors).all(|((rows, row), vector)| rows * row % (threads * vector) == 0)
            && bytes.max(tile[0] * tile[1] * SUM_BYTES) <= shared_bytes
            // The loop needs more iterations than loads precede products.
            && AHEAD.or_one(knobs) < self.extents[2] / part
    }

    /// Returns whether tiles of this width are allowed. A convolution may be padded with zeros by less than a tile.
    fn fits_columns(&self, tile: i64) -> bool {
        let columns = self.extents[1];
        if self.is_conv { tile < columns + FRAGMENT } else { columns % tile == 0 }
    }

    /// Returns the allowed schedule with the fewest loads per product, divided by the share of the device that is busy.
    pub(super) fn default_knobs(&self, places: i64, block_threads: i64, shared_bytes: i64) -> Option<Knobs> {
        /// Cost of loading a fragment, in products of two fragments.
        const FETCH: f64 = 1.0;
        let mut best: Option<(f64, Knobs)> = None;
        let sides = [1, 2, 4].into_iter().flat_map(|y| [1, 2, 4].map(|x| [y, x]));
        for warps in sides.clone() {
            for fragments in sides.clone() {
                for [depth, ahead] in [[2, 1], [1, 1], [2, 0], [1, 0]] {
                    let mut knobs = Knobs::default();
                    for (axis, number) in [
                        (&WARPS_Y, warps[0]),
                        (&WARPS_X, warps[1]),
                        (&FRAGMENTS_Y, fragments[0]),
                        (&FRAGMENTS_X, fragments[1]),
                        (&FRAGMENTS_R, depth),
                        (&AHEAD, ahead),
                        (&PAD_ROWS, 1),
                    ] {
                        axis.set(&mut knobs, number);
                    }
                    if self.can_copy {
                        COPY.set(&mut knobs, CopyThrough::Registers);
                    }
                    if !self.allows_point(&knobs, block_threads, shared_bytes) {
                        continue;
                    }
                    let tile = [0, 1].map(|side| FRAGMENT * fragments[side] * warps[side]);
                    let tiles = (self.extents[1] + tile[1] - 1) / tile[1];
                    let waste = (tiles * tile[1]) as f64 / self.extents[1] as f64;
                    let blocks = (places * self.extents[0] / tile[0] * tiles) as f64;
                    let threads = (warps[0] * warps[1] * i64::from(WARP_THREADS)) as f64;
                    let [y, x] = fragments.map(|count| count as f64);
                    let late = if ahead > 0 { 1.0 } else { 1.5 };
                    let staging =
                        late * FETCH * (tile[0] + tile[1]) as f64 * FRAGMENT as f64 / (tile[0] * tile[1]) as f64;
                    let cost = (1.0 + FETCH * (y + x) / (y * x) + staging) * waste
                        / (occupied_share(blocks, threads) * block_fit(threads));
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, knobs));
                    }
                }
            }
        }
        best.map(|(_, knobs)| knobs)
    }
}

const SUM_BYTES: i64 = 4;
