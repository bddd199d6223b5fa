//! Sliding blocks of a tensor as columns (`im2col`), and the sum of columns at their positions (`col2im`).

use super::{Call, Outputs, numbers_of, own_output, view_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Gather, Op, Pad, ScatterNd, ScatterOp};
use models::types::{DType, TensorType};
use reference::Tensor;

struct Blocks {
    kernel: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    pads: [i64; 2],
    padded: [i64; 2],
    counts: [i64; 2],
}

impl Blocks {
    fn parse_blocks(call: &Call<'_, '_>, [height, width]: [i64; 2]) -> Outcome<Blocks> {
        let pair = |name: &str, default: i64| -> Outcome<[i64; 2]> {
            let numbers = call.spatial_list(name, 2, default)?;
            Ok([numbers[0], numbers[1]])
        };
        let (kernel, strides) = (pair("kernel_size", 1)?, pair("stride", 1)?);
        let (dilations, pads) = (pair("dilation", 1)?, pair("padding", 0)?);
        let mut counts = [0; 2];
        let mut padded = [height, width];
        for side in 0..2 {
            let sane = |number: i64, least: i64| (least..=1 << 20).contains(&number);
            if !(sane(kernel[side], 1) && sane(strides[side], 1) && sane(dilations[side], 1) && sane(pads[side], 0)) {
                return malformed(
                    "kernel, stride or dilation is not positive, the padding is negative, or one of them is too large",
                );
            }
            if !(1..=1 << 31).contains(&padded[side]) {
                return unsupported(format!("an image extent of {}", padded[side]));
            }
            padded[side] += 2 * pads[side];
            let reach = dilations[side] * (kernel[side] - 1) + 1;
            if reach > padded[side] {
                return malformed(format!("blocks of extent {reach} exceed the padded image extent {}", padded[side]));
            }
            counts[side] = (padded[side] - reach) / strides[side] + 1;
        }
        Ok(Blocks { kernel, strides, dilations, pads, padded, counts })
    }

    /// Returns the positions of all block elements in the padded image, ordered by element, then by block.
    fn block_positions(&self) -> Outcome<Vec<f64>> {
        let along = |side: usize| {
            let elements = 0..self.kernel[side];
            elements.map(move |element| {
                let from = element * self.dilations[side];
                (0..self.counts[side]).map(move |block| from + block * self.strides[side]).collect::<Vec<i64>>()
            })
        };
        numbers_of(&[self.kernel, self.counts].concat())?;
        let mut places = Vec::new();
        for rows in along(0) {
            for columns in along(1) {
                for row in &rows {
                    places.extend(columns.iter().map(|column| (row * self.padded[1] + column) as f64));
                }
            }
        }
        Ok(places)
    }

    fn element_count(&self) -> i64 {
        self.kernel[0] * self.kernel[1]
    }

    fn block_count(&self) -> i64 {
        self.counts[0] * self.counts[1]
    }
}

fn image_batch(call: &mut Call<'_, '_>) -> Outcome<(ValueId, [i64; 4], bool)> {
    let x = call.tensor_argument("self")?;
    match call.emit.extents(x)?[..] {
        [n, c, h, w] => Ok((x, [n, c, h, w], false)),
        [c, h, w] => Ok((call.emit.reshape(x, &[1, c, h, w])?, [1, c, h, w], true)),
        ref other => malformed(format!("an image cannot have {} dimensions", other.len())),
    }
}

pub(super) fn im2col(call: &mut Call<'_, '_>) -> Outputs {
    let (x, [n, c, h, w], is_single) = image_batch(call)?;
    let blocks = Blocks::parse_blocks(call, [h, w])?;
    let emit = &mut *call.emit;
    let [top, left] = blocks.pads;
    let padded = match blocks.pads {
        [0, 0] => x,
        _ => emit.push(Op::Pad(Pad { pads: vec![0, 0, top, left, 0, 0, top, left], value: 0.0 }), &[x])?,
    };
    let [height, width] = blocks.padded;
    let is_tiling = blocks.kernel == blocks.strides
        && blocks.dilations == [1, 1]
        && height % blocks.kernel[0] == 0
        && width % blocks.kernel[1] == 0;
    let columns = if is_tiling {
        let ([tall, wide], [rows, places]) = (blocks.kernel, blocks.counts);
        let cut = emit.reshape(padded, &[n, c, rows, tall, places, wide])?;
        emit.transpose(cut, &[0, 1, 3, 5, 2, 4])?
    } else {
        let flat = emit.reshape(padded, &[n, c, height * width])?;
        let ty = TensorType::new(DType::I64, &[blocks.element_count(), blocks.block_count()]);
        let places = emit.constant_of(&Tensor::from_numbers(ty, &blocks.block_positions()?)?)?;
        emit.push(Op::Gather(Gather { axis: 2 }), &[flat, places])?
    };
    let shape = [n, c * blocks.element_count(), blocks.block_count()];
    own_output(emit.reshape(columns, if is_single { &shape[1..] } else { &shape })?)
}

/// Rearranges `[n, c · block, blocks]` to `[n, c, h, w]`; overlapping elements are summed.
pub(super) fn col2im(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let [h, w] = call.spatial_list("output_size", 2, 1)?[..] else {
        return malformed("`output_size` must have 2 numbers");
    };
    let blocks = Blocks::parse_blocks(call, [h, w])?;
    // Bounds the products below.
    let numbers = blocks.block_positions()?;
    let emit = &mut *call.emit;
    let mut extents = emit.extents(x)?;
    let is_single = extents.len() == 2;
    if is_single {
        extents.insert(0, 1);
    }
    let [n, rows, count] = extents[..] else { return malformed("the columns must have 3 dimensions") };
    let c = rows / blocks.element_count();
    if count != blocks.block_count() || c * blocks.element_count() != rows {
        return malformed(format!("columns of shape {rows} x {count} do not match the blocks of an image {h} x {w}"));
    }
    let [height, width] = blocks.padded;
    let split = emit.reshape(x, &[n, c, blocks.element_count() * count])?;
    let updates = emit.transpose(split, &[2, 0, 1])?;
    let zeros = emit.add_filled(emit.dtype(x)?, &[height * width, n, c], 0.0)?;
    let ty = TensorType::new(DType::I64, &[blocks.element_count() * count, 1]);
    let places = emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    let sums = emit.push(Op::ScatterNd(ScatterNd { combine: ScatterOp::Add }), &[zeros, places, updates])?;
    let transposed = emit.transpose(sums, &[1, 2, 0])?;
    let mut y = emit.reshape(transposed, &[n, c, height, width])?;
    for (side, extent) in [h, w].into_iter().enumerate() {
        let from = blocks.pads[side];
        y = emit.slice(y, side + 2, from, from + extent)?;
    }
    own_output(if is_single { emit.reshape(y, &[c, h, w])? } else { y })
}

/// Extracts windows along one axis; the elements of a window become the last axis.
pub(super) fn unfold_axis(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let axis = call.axis_argument(x, "dimension", 0)?;
    let (size, step) = (call.int_argument("size", 1)?, call.int_argument("step", 1)?);
    let extents = call.emit.extents(x)?;
    let extent = extents.get(axis).copied().unwrap_or(1);
    if size < 1 || step < 1 || size > extent || extents.is_empty() {
        return unsupported(format!("windows of {size} elements in steps of {step} over an extent of {extent}"));
    }
    let count = (extent - size) / step + 1;
    let windows = split_windows(call.emit, x, axis, [extent, count, size, step])?;
    let mut order: Vec<usize> = (0..=extents.len()).filter(|&at| at != axis + 1).collect();
    order.push(axis + 1);
    view_output(call.emit.transpose(windows, &order)?)
}

fn split_windows(
    emit: &mut Emit<'_>,
    x: ValueId,
    axis: usize,
    [extent, count, size, step]: [i64; 4],
) -> Outcome<ValueId> {
    if size == step && count * size == extent {
        let mut shape = emit.extents(x)?;
        shape.splice(axis..=axis, [count, size]);
        return emit.reshape(x, &shape);
    }
    numbers_of(&[count, size])?;
    let places: Vec<f64> = (0..count).flat_map(|window| (0..size).map(move |at| (window * step + at) as f64)).collect();
    let ty = TensorType::new(DType::I64, &[count, size]);
    let places = emit.constant_of(&Tensor::from_numbers(ty, &places)?)?;
    emit.push(Op::Gather(Gather { axis: axis as i64 }), &[x, places])
}
