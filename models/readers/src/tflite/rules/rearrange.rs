//! Rarely used data movement: blocks, embedding tables, partial updates.

use crate::onnx::{ResizeAxis, ResizeFilter};
use crate::tflite::call::Call;
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Expand, Gather, GatherElements, Op, Pad, ScatterNd, ScatterOp, Where};
use models::types::{DType, TensorType};
use reference::Tensor;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_NUMBERS: i64 = 1 << 22;

/// Looks up rows by index; each row may have its own scale.
pub(super) fn embedding_lookup(call: &mut Call<'_, '_>) -> Outputs {
    let numbers = call.input(0)?;
    let table = if call.scales_of_input(1) == call.scales_of_output(0).map(|(scales, _)| scales) {
        call.input(1)?
    } else {
        call.real(1)?
    };
    Ok(vec![call.emit.push(Op::Gather(Gather { axis: 0 }), &[table, numbers])?])
}

/// Emits `DENSIFY` as a plain move: the reader expands sparse constants.
pub(super) fn densify(call: &mut Call<'_, '_>) -> Outputs {
    Ok(vec![call.movable_inputs(&[0])?[0]])
}

/// Returns block extents, and two numbers per block (pads or crops), for the dimensions after the first.
fn block_pairs(call: &Call<'_, '_>, what: &str, rank: usize) -> Outcome<(Vec<i64>, Vec<i64>)> {
    let blocks = call.emit.require_integers(call.input(1)?, "block_shape")?;
    let pairs = call.emit.require_integers(call.input(2)?, what)?;
    if blocks.len() + 1 > rank || pairs.len() != 2 * blocks.len() {
        return malformed(format!("`{what}` does not fit {} blocks of data with {rank} dimensions", blocks.len()));
    }
    if blocks.iter().any(|&block| block < 1) || pairs.iter().any(|&number| number < 0) {
        return malformed(format!("block extents must be positive, and `{what}` must not be negative"));
    }
    Ok((blocks, pairs))
}

pub(super) fn space_to_batch(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.movable_inputs(&[0])?[0];
    let rank = call.emit.rank(x)?;
    let (blocks, pairs) = block_pairs(call, "paddings", rank)?;
    let mut pads = vec![0; 2 * rank];
    for (index, pair) in pairs.chunks(2).enumerate() {
        (pads[index + 1], pads[rank + index + 1]) = (pair[0], pair[1]);
    }
    if pads.iter().any(|&pad| pad > 0) {
        let is_stored = !call.emit.dtype(x)?.is_float();
        let zero = call.scales_of_input(0).filter(|_| is_stored).map_or(0.0, |scales| scales.zeros[0] as f64);
        x = call.emit.push(Op::Pad(Pad { pads, value: zero }), &[x])?;
    }
    let extents = call.emit.extents(x)?;
    let (mut shape, mut after) = (vec![extents[0]], vec![]);
    let (mut order, mut rest) = (vec![], vec![0]);
    let mut batch = extents[0];
    for (index, &block) in blocks.iter().enumerate() {
        let extent = extents[index + 1];
        if extent % block != 0 {
            return malformed(format!("the extent {extent} is not a multiple of the block extent {block}"));
        }
        shape.extend([extent / block, block]);
        rest.push(2 * index + 1);
        order.push(2 * index + 2);
        after.push(extent / block);
        batch = batch.saturating_mul(block);
    }
    let kept = &extents[blocks.len() + 1..];
    shape.extend(kept);
    order.extend(rest);
    order.extend(2 * blocks.len() + 1..shape.len());
    let cut = call.emit.reshape(x, &shape)?;
    let transposed = call.emit.transpose(cut, &order)?;
    Ok(vec![call.emit.reshape(transposed, &[&[batch], after.as_slice(), kept].concat())?])
}

pub(super) fn batch_to_space(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.movable_inputs(&[0])?[0];
    let extents = call.emit.extents(x)?;
    let (blocks, crops) = block_pairs(call, "crops", extents.len())?;
    let area = blocks.iter().try_fold(1i64, |all, &block| all.checked_mul(block));
    let Some(batch) = area.filter(|area| extents[0] % area == 0).map(|area| extents[0] / area) else {
        return malformed(format!("the blocks {blocks:?} do not divide the batch size {}", extents[0]));
    };
    let count = blocks.len();
    let shape = [blocks.as_slice(), &[batch], &extents[1..]].concat();
    let mut order = vec![count];
    let mut after = vec![batch];
    for (index, block) in blocks.iter().enumerate() {
        order.extend([count + 1 + index, index]);
        after.push(extents[index + 1].saturating_mul(*block));
    }
    order.extend(2 * count + 1..shape.len());
    after.extend(&extents[count + 1..]);
    let cut = call.emit.reshape(x, &shape)?;
    let transposed = call.emit.transpose(cut, &order)?;
    let mut y = call.emit.reshape(transposed, &after)?;
    for (index, pair) in crops.chunks(2).enumerate() {
        let stop = after[index + 1].saturating_sub(pair[1]);
        if stop <= pair[0] {
            return malformed(format!("the crops {crops:?} remove all elements"));
        }
        y = call.emit.slice(y, index + 1, pair[0], stop)?;
    }
    Ok(vec![y])
}

pub(super) fn integer_range(call: &mut Call<'_, '_>) -> Outputs {
    let mut numbers = [0.0; 3];
    for (index, what) in ["start", "limit", "delta"].into_iter().enumerate() {
        numbers[index] = call.emit.require_number(call.input(index)?, what)?;
    }
    let [start, limit, delta] = numbers;
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !(count.is_finite() && count <= MAX_NUMBERS as f64) {
        return unsupported(format!("a range of {count} numbers; at most {MAX_NUMBERS} are supported"));
    }
    let numbers: Vec<f64> = (0..count as i64).map(|at| start + at as f64 * delta).collect();
    let ty = TensorType::new(call.output_dtype(0)?, &[count as i64]);
    Ok(vec![call.emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?])
}

pub(super) fn rank_of(call: &mut Call<'_, '_>) -> Outputs {
    let rank = call.emit.rank(call.input(0)?)?;
    let to = call.output_dtype(0)?;
    Ok(vec![call.emit.add_scalar(to, rank as f64)?])
}

pub(super) fn broadcast_shapes(call: &mut Call<'_, '_>) -> Outputs {
    let mut shapes = Vec::new();
    for index in 0..2 {
        let extents = call.emit.require_integers(call.input(index)?, "shape")?;
        shapes.push(TensorType::new(DType::I32, &extents).shape);
    }
    let shape = models::shapes::broadcast_shapes(&shapes[0], &shapes[1]).or_else(malformed)?;
    let extents = TensorType { dtype: DType::I32, shape }.extents().unwrap_or_default();
    let shape = call.emit.add_integers(&extents)?;
    let to = call.output_dtype(0)?;
    Ok(vec![call.emit.cast(shape, to)?])
}

/// Reverses the first elements of each row; the second input gives their number per row.
pub(super) fn reverse_sequence(call: &mut Call<'_, '_>) -> Outputs {
    let (x, lengths) = (call.movable_inputs(&[0])?[0], call.input(1)?);
    let extents = call.emit.extents(x)?;
    let (axis, batch) = (
        call.emit.resolve_axis(call.int_option(0, 0)?, extents.len())?,
        call.emit.resolve_axis(call.int_option(1, 0)?, extents.len())?,
    );
    call.emit.check_range(lengths, "sequence length", [0, extents[axis]])?;
    let mut shape = vec![1; extents.len()];
    shape[batch] = extents[batch];
    let lengths = call.emit.cast(lengths, DType::I64)?;
    let lengths = call.emit.reshape(lengths, &shape)?;
    let mut shape = vec![1; extents.len()];
    shape[axis] = extents[axis];
    let places = call.emit.add_range(DType::I64, &shape)?;
    let last = call.emit.binary_with(BinaryOp::Sub, lengths, 1.0)?;
    let mirrored = call.emit.binary(BinaryOp::Sub, last, places)?;
    let is_inside = call.emit.compare(CompareOp::Less, places, lengths)?;
    let from = call.emit.push(Op::Where(Where {}), &[is_inside, mirrored, places])?;
    let from = call.emit.push(Op::Expand(Expand { shape: extents }), &[from])?;
    Ok(vec![call.emit.push(Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, from])?])
}

pub(super) fn matrix_diagonal(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.real(0)?;
    let mut shape = call.emit.extents(x)?;
    let Some(&extent) = shape.last() else { return malformed("a scalar has no diagonal") };
    shape.insert(shape.len() - 1, 1);
    let wide = call.emit.reshape(x, &shape)?;
    let (rows, columns) =
        (call.emit.add_range(DType::I64, &[extent, 1])?, call.emit.add_range(DType::I64, &[1, extent])?);
    let is_on = call.emit.compare(CompareOp::Equal, rows, columns)?;
    let zero = call.emit.add_scalar(call.emit.dtype(x)?, 0.0)?;
    Ok(vec![call.emit.push(Op::Where(Where {}), &[is_on, wide, zero])?])
}

pub(super) fn scatter_nd(call: &mut Call<'_, '_>) -> Outputs {
    let (places, updates) = (call.input(0)?, call.real(1)?);
    let shape = call.emit.require_integers(call.input(2)?, "shape")?;
    let zeros = call.emit.add_filled(call.emit.dtype(updates)?, &shape, 0.0)?;
    Ok(vec![call.emit.push(Op::ScatterNd(ScatterNd { combine: ScatterOp::Add }), &[zeros, places, updates])?])
}

/// Replaces a part of a tensor. The start may be computed at run time along one dimension.
pub(super) fn dynamic_update(call: &mut Call<'_, '_>) -> Outputs {
    let (x, part) = (call.real(0)?, call.real(1)?);
    let starts = call.input(2)?;
    let (whole, extents) = (call.emit.extents(x)?, call.emit.extents(part)?);
    if whole.len() != extents.len() || whole.iter().zip(&extents).any(|(whole, part)| part > whole) {
        return malformed(format!("an update of shape {extents:?} does not fit the shape {whole:?}"));
    }
    let moving: Vec<usize> = (0..whole.len()).filter(|&axis| whole[axis] != extents[axis]).collect();
    let axis = match moving[..] {
        [] => return Ok(vec![part]),
        [axis] => axis,
        _ => return unsupported("an update at variable positions in several dimensions"),
    };
    let start = call.emit.slice(starts, 0, axis as i64, axis as i64 + 1)?;
    let start = call.emit.cast(start, DType::I64)?;
    // The start is clamped so that the part fits.
    let last = whole[axis] - extents[axis];
    let start = call.emit.binary_with(BinaryOp::Max, start, 0.0)?;
    let start = call.emit.binary_with(BinaryOp::Min, start, last as f64)?;
    let steps = call.emit.add_range(DType::I64, &[extents[axis], 1])?;
    let start = call.emit.reshape(start, &[1, 1])?;
    let places = call.emit.binary(BinaryOp::Add, steps, start)?;
    let mut order: Vec<usize> = (0..whole.len()).collect();
    order.swap(0, axis);
    let (x, part) = (call.emit.transpose(x, &order)?, call.emit.transpose(part, &order)?);
    let y = call.emit.push(Op::ScatterNd(ScatterNd { combine: ScatterOp::Replace }), &[x, places, part])?;
    Ok(vec![call.emit.transpose(y, &order)?])
}

fn gather_axis(call: &mut Call<'_, '_>, x: ValueId, axis: usize, places: &[i64]) -> Outcome<ValueId> {
    let places = call.emit.add_integers(places)?;
    call.emit.push(Op::Gather(Gather { axis: axis as i64 }), &[x, places])
}

/// Pads symmetrically: mirrored elements include the outermost one.
pub(super) fn mirror_pad(call: &mut Call<'_, '_>, x: ValueId, pads: &[i64]) -> Outcome<ValueId> {
    let rank = call.emit.rank(x)?;
    let mut y = x;
    for axis in (0..rank).filter(|&axis| pads[axis] != 0 || pads[rank + axis] != 0) {
        let extent = call.emit.extents(y)?[axis];
        let (head, tail) = (pads[axis], pads[rank + axis]);
        if !(0..=extent).contains(&head) || !(0..=extent).contains(&tail) || extent > MAX_NUMBERS {
            return malformed(format!("mirror pads of {head} and {tail} for the extent {extent} are out of range"));
        }
        let places: Vec<i64> = (0..head).rev().chain(0..extent).chain((extent - tail..extent).rev()).collect();
        y = gather_axis(call, y, axis, &places)?;
    }
    Ok(y)
}

fn image_extents(call: &Call<'_, '_>, x: ValueId) -> Outcome<Vec<i64>> {
    let extents = call.emit.extents(x)?;
    if extents.len() != 4 {
        return malformed(format!("an image must have 4 dimensions, has {}", extents.len()));
    }
    Ok(extents)
}

/// Resizes channels-last data by nearest neighbour, with centred elements or aligned corners.
pub(super) fn resize_nearest(
    call: &mut Call<'_, '_>,
    x: ValueId,
    extents: &[i64],
    (is_aligned, is_centred): (bool, bool),
) -> Outcome<ValueId> {
    let old = image_extents(call, x)?;
    let mut y = x;
    for (index, &new) in extents.iter().enumerate() {
        let last = old[index + 1] - 1;
        if last < 0 || !(1..=MAX_NUMBERS).contains(&new) {
            return malformed(format!("cannot resize {} elements to {new}", last + 1));
        }
        let scale = match is_aligned && new > 1 {
            true => last as f32 / (new - 1) as f32,
            false => (last + 1) as f32 / new as f32,
        };
        let place = |at: i64| {
            let place = (at as f32 + if is_centred { 0.5 } else { 0.0 }) * scale;
            (if is_aligned { place.round() } else { place.floor() } as i64).clamp(0, last)
        };
        let places: Vec<i64> = (0..new).map(place).collect();
        y = gather_axis(call, y, index + 1, &places)?;
    }
    Ok(y)
}

/// Resizes channels-last data bilinearly; positions are measured from the corners of elements.
pub(super) fn resize_bilinear(call: &mut Call<'_, '_>, x: ValueId, extents: &[i64]) -> Outcome<ValueId> {
    let filter = ResizeFilter {
        mode: "linear",
        rule: "asymmetric",
        nearest: "floor",
        cubic: 0.0,
        excludes_outside: false,
        antialias: false,
        outside: 0.0,
    };
    let old = image_extents(call, x)?;
    let mut y = x;
    for (index, &new) in extents.iter().enumerate() {
        let old = old[index + 1];
        if old != new && old > 0 {
            let axis = ResizeAxis { old, new, scale: new as f64 / old as f64, region: (0.0, 1.0) };
            y = filter.resample_axis(call.emit, y, index + 1, &axis)?;
        }
    }
    Ok(y)
}
