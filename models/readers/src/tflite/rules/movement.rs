//! Operators that move elements. Quantised integers are moved without dequantisation.

use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed, unsupported};
use models::compose::{self, DepthOrder};
use models::graph::ValueId;
use models::operators::{Border, BorderPad, Expand, Gather, GatherNd, OneHot, Op, Reshape, Slice, Tile, Transpose};

type Outputs = Outcome<Vec<ValueId>>;

fn movable_input(call: &mut Call<'_, '_>) -> Outcome<ValueId> {
    Ok(call.movable_inputs(&[0])?[0])
}

pub(super) fn concat(call: &mut Call<'_, '_>) -> Outputs {
    let activation = call.read_activation(1)?;
    let all: Vec<usize> = (0..call.inputs.len()).collect();
    if all.is_empty() {
        return malformed("there are no inputs");
    }
    let parts = if activation == Activation::None { call.movable_inputs(&all)? } else { call.real_inputs()? };
    let axis = call.emit.resolve_axis(call.int_option(0, 0)?, call.emit.rank(parts[0])?)?;
    let y = call.joins.join_parts(call.emit, &parts, axis)?;
    Ok(vec![call.apply_activation(y, activation)?])
}

pub(super) fn pack(call: &mut Call<'_, '_>) -> Outputs {
    let all: Vec<usize> = (0..call.inputs.len()).collect();
    let mut parts = call.movable_inputs(&all)?;
    let Some(&first) = parts.first() else { return malformed("there are no inputs") };
    let axis = call.emit.resolve_axis(call.int_option(1, 0)?, call.emit.rank(first)? + 1)?;
    for part in &mut parts {
        let mut extents = call.emit.extents(*part)?;
        if axis > extents.len() {
            return malformed("the inputs have different ranks");
        }
        extents.insert(axis, 1);
        *part = call.emit.reshape(*part, &extents)?;
    }
    Ok(vec![call.emit.concat_parts(&parts, axis)?])
}

pub(super) fn unpack(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let mut extents = call.emit.extents(x)?;
    let axis = call.emit.resolve_axis(call.int_option(1, 0)?, extents.len())?;
    let count = extents.remove(axis);
    if count != call.output_count() as i64 {
        return malformed(format!(
            "dimension {axis} has extent {count}, but there are {} outputs",
            call.output_count()
        ));
    }
    let mut parts = Vec::new();
    for index in 0..count {
        let part = call.emit.slice(x, axis, index, index + 1)?;
        parts.push(call.emit.reshape(part, &extents)?);
    }
    Ok(parts)
}

/// Splits a tensor into equal parts; the first input is the axis, the second the data.
pub(super) fn split_equally(call: &mut Call<'_, '_>) -> Outputs {
    let axis = call.emit.require_number(call.input(0)?, "axis")? as i64;
    let x = call.movable_inputs(&[1])?[0];
    let axis = call.emit.resolve_axis(axis, call.emit.rank(x)?)?;
    let (extent, count) = (call.emit.extents(x)?[axis], call.output_count() as i64);
    if count < 1 || extent % count != 0 {
        return malformed(format!("dimension {axis} of extent {extent} cannot be split into {count} equal parts"));
    }
    slice_pieces(call, x, axis, &vec![extent / count; count as usize])
}

pub(super) fn split_v(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let mut sizes = call.emit.require_integers(call.input(1)?, "size_splits")?;
    let axis = call.emit.require_number(call.input(2)?, "axis")? as i64;
    let axis = call.emit.resolve_axis(axis, call.emit.rank(x)?)?;
    let given = sizes.iter().filter(|&&size| size >= 0).try_fold(0i64, |sum, &size| sum.checked_add(size));
    let Some(rest) = given.and_then(|given| Some(call.emit.extents(x).ok()?[axis] - given)) else {
        return malformed("`size_splits` is too large");
    };
    sizes.iter_mut().filter(|size| **size == -1).for_each(|size| *size = rest);
    slice_pieces(call, x, axis, &sizes)
}

fn slice_pieces(call: &mut Call<'_, '_>, x: ValueId, axis: usize, sizes: &[i64]) -> Outputs {
    let extent = call.emit.extents(x)?[axis];
    let (mut start, mut parts) = (0i64, Vec::new());
    for &size in sizes {
        let stop = start.checked_add(size).filter(|&stop| size >= 0 && stop <= extent);
        let Some(stop) = stop else { return malformed(format!("the parts {sizes:?} do not fit the extent {extent}")) };
        parts.push(call.emit.slice(x, axis, start, stop)?);
        start = stop;
    }
    Ok(parts)
}

pub(super) fn reshape(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let shape = match call.optional_input(1) {
        Some(shape) => call.emit.require_integers(shape, "shape")?,
        None => call.ints_option(0)?,
    };
    // Unlike in ONNX, an extent of 0 does not copy that of the input.
    if shape.contains(&0) && call.emit.ty(x)?.element_count() != Some(0) {
        return malformed(format!("shape {shape:?} has no elements"));
    }
    let y = call.emit.push(Op::Reshape(Reshape { shape }), &[x])?;
    let extents = call.emit.extents(y)?;
    Ok(vec![if call.emit.extents(x)? == extents { x } else { y }])
}

pub(super) fn squeeze(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let (extents, named) = (call.emit.extents(x)?, call.ints_option(0)?);
    let mut is_dropped: Vec<bool> = extents.iter().map(|&extent| named.is_empty() && extent == 1).collect();
    for axis in named {
        let axis = call.emit.resolve_axis(axis, extents.len())?;
        if extents[axis] != 1 {
            return malformed(format!("dimension {axis} has extent {}, not 1", extents[axis]));
        }
        is_dropped[axis] = true;
    }
    let kept: Vec<i64> = extents.iter().zip(is_dropped).filter(|(_, dropped)| !dropped).map(|(&e, _)| e).collect();
    Ok(vec![call.emit.reshape(x, &kept)?])
}

pub(super) fn expand_dims(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let axis = call.emit.require_number(call.input(1)?, "axis")? as i64;
    let mut extents = call.emit.extents(x)?;
    let axis = call.emit.resolve_axis(axis, extents.len() + 1)?;
    extents.insert(axis, 1);
    Ok(vec![call.emit.reshape(x, &extents)?])
}

pub(super) fn transpose(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let permutation = call.emit.require_integers(call.input(1)?, "perm")?;
    Ok(vec![call.emit.push(Op::Transpose(Transpose { permutation }), &[x])?])
}

pub(super) fn tile(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let repeats = call.emit.require_integers(call.input(1)?, "multiples")?;
    Ok(vec![call.emit.push(Op::Tile(Tile { repeats }), &[x])?])
}

pub(super) fn broadcast_to(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let shape = call.emit.require_integers(call.input(1)?, "shape")?;
    Ok(vec![call.emit.push(Op::Expand(Expand { shape }), &[x])?])
}

pub(super) fn reverse(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let extents = call.emit.extents(x)?;
    let mut axes = Vec::new();
    for axis in call.emit.require_integers(call.input(1)?, "axis")? {
        axes.push(call.emit.resolve_axis(axis, extents.len())?);
    }
    axes.sort_unstable();
    axes.dedup();
    let starts = axes.iter().map(|&axis| extents[axis] - 1).collect();
    let (stops, steps) = (vec![-1; axes.len()], vec![-1; axes.len()]);
    let axes = axes.into_iter().map(|axis| axis as i64).collect();
    Ok(vec![call.emit.push(Op::Slice(Slice { axes, starts, stops, steps }), &[x])?])
}

/// Slices by a start and a size per dimension; a size of -1 extends to the end.
pub(super) fn slice(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let starts = call.emit.require_integers(call.input(1)?, "begin")?;
    let sizes = call.emit.require_integers(call.input(2)?, "size")?;
    let extents = call.emit.extents(x)?;
    if starts.len() != extents.len() || sizes.len() != extents.len() {
        return malformed("`begin` and `size` need one number per dimension");
    }
    let mut y = x;
    for (axis, &extent) in extents.iter().enumerate() {
        let stop = if sizes[axis] == -1 { Some(extent) } else { starts[axis].checked_add(sizes[axis]) };
        let stop = stop.filter(|&stop| starts[axis] >= 0 && (starts[axis]..=extent).contains(&stop));
        let Some(stop) = stop else {
            return malformed(format!(
                "a slice from {} with {} elements exceeds the extent {extent}",
                starts[axis], sizes[axis]
            ));
        };
        y = call.joins.slice_joined(call.emit, y, axis, starts[axis], stop)?;
    }
    Ok(vec![y])
}

/// Emits Python slicing. Bit `i` of the begin or end mask removes that limit of axis `i`; of the shrink mask, the axis.
pub(super) fn strided_slice(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let extents = call.emit.extents(x)?;
    let mut lists = Vec::new();
    for (index, what) in ["begin", "end", "strides"].into_iter().enumerate() {
        let list = call.emit.require_integers(call.input(index + 1)?, what)?;
        if list.len() > extents.len() {
            return malformed(format!(
                "`{what}` has {} numbers, but there are {} dimensions",
                list.len(),
                extents.len()
            ));
        }
        lists.push(list);
    }
    let (from_start, to_end, vanishes) = (call.int_option(0, 0)?, call.int_option(1, 0)?, call.int_option(4, 0)?);
    if call.int_option(2, 0)? != 0 || call.int_option(3, 0)? != 0 || call.flag_option(5)? {
        return unsupported("an ellipsis, a new dimension, or ends relative to the begin");
    }
    let (mut axes, mut starts, mut stops, mut steps) = (vec![], vec![], vec![], vec![]);
    let mut kept = Vec::new();
    for (axis, &extent) in extents.iter().enumerate() {
        let given = lists[0].get(axis).zip(lists[1].get(axis)).zip(lists[2].get(axis));
        let Some(((&begin, &end), &step)) = given else {
            kept.push(extent);
            continue;
        };
        let bit = |mask: i64| axis < 32 && mask >> axis & 1 == 1;
        let front = |place: i64| if place < 0 { place.saturating_add(extent) } else { place };
        let (start, stop, step) = if bit(vanishes) {
            let start = front(begin);
            (start, start.saturating_add(1), 1)
        } else if step > 0 {
            let start = if bit(from_start) { 0 } else { front(begin).clamp(0, extent) };
            let stop = if bit(to_end) { extent } else { front(end).clamp(0, extent) };
            (start, stop.max(start), step)
        } else {
            let start = if bit(from_start) { extent - 1 } else { front(begin).clamp(-1, extent - 1) };
            let stop = if bit(to_end) { -1 } else { front(end).clamp(-1, extent - 1) };
            (start, stop.min(start), step)
        };
        if step == 0 {
            return malformed("the step is 0");
        }
        if !bit(vanishes) {
            let count = (i128::from(stop) - i128::from(start)) / i128::from(step);
            let is_whole = (i128::from(stop) - i128::from(start)) % i128::from(step) == 0;
            kept.push((count + i128::from(!is_whole)) as i64);
        }
        if (start, stop, step) != (0, extent, 1) {
            axes.push(axis as i64);
            starts.push(start);
            stops.push(stop);
            steps.push(step);
        }
    }
    let y = if axes.is_empty() { x } else { call.emit.push(Op::Slice(Slice { axes, starts, stops, steps }), &[x])? };
    Ok(vec![call.emit.reshape(y, &kept)?])
}

pub(super) fn pad(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let pads = pad_list(call, x)?;
    let is_stored = !call.emit.dtype(x)?.is_float();
    let value = match (call.optional_input(2), call.scales_of_input(0)) {
        (Some(value), _) => {
            let value = if is_stored { value } else { call.real(2)? };
            call.emit.require_number(value, "constant_values")?
        }
        // The integer that represents zero.
        (None, Some(scales)) if is_stored => scales.zeros[0] as f64,
        (None, _) => 0.0,
    };
    Ok(vec![call.emit.pad(x, &pads, value)?])
}

pub(super) fn mirror_pad(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let pads = pad_list(call, x)?;
    if call.byte_option(0)? != 0 {
        return Ok(vec![super::rearrange::mirror_pad(call, x, &pads)?]);
    }
    Ok(vec![call.emit.push(Op::BorderPad(BorderPad { border: Border::Reflect, pads }), &[x])?])
}

fn pad_list(call: &Call<'_, '_>, x: ValueId) -> Outcome<Vec<i64>> {
    let pairs = call.emit.require_integers(call.input(1)?, "paddings")?;
    if pairs.len() != 2 * call.emit.rank(x)? {
        return malformed(format!("`paddings` has the wrong number of entries, {}", pairs.len()));
    }
    let (heads, tails) = (pairs.iter().step_by(2), pairs.iter().skip(1).step_by(2));
    Ok(heads.chain(tails).copied().collect())
}

pub(super) fn gather(call: &mut Call<'_, '_>) -> Outputs {
    let x = movable_input(call)?;
    let indices = call.input(1)?;
    let (rank, count) = (call.emit.rank(x)?, call.emit.rank(indices)?);
    let axis = call.emit.resolve_axis(call.int_option(0, 0)?, rank)?;
    let batch = call.int_option(1, 0)?;
    match usize::try_from(if batch < 0 { batch + count as i64 } else { batch }) {
        Ok(0) => Ok(vec![call.emit.push(Op::Gather(Gather { axis: axis as i64 }), &[x, indices])?]),
        // Indices below the batch dimensions select along the next dimension, as in `GatherNd`.
        Ok(batch) if batch == axis && batch <= count => {
            let mut shape = call.emit.extents(indices)?;
            shape.push(1);
            let indices = call.emit.reshape(indices, &shape)?;
            Ok(vec![call.emit.push(Op::GatherNd(GatherNd { batch: batch as i64 }), &[x, indices])?])
        }
        _ => unsupported(format!("{batch} batch dimensions for axis {axis}")),
    }
}

pub(super) fn gather_nd(call: &mut Call<'_, '_>) -> Outputs {
    let (x, indices) = (movable_input(call)?, call.input(1)?);
    Ok(vec![call.emit.push(Op::GatherNd(GatherNd { batch: 0 }), &[x, indices])?])
}

pub(super) fn one_hot(call: &mut Call<'_, '_>) -> Outputs {
    let depth = call.emit.require_number(call.input(1)?, "depth")? as i64;
    let (on, off) =
        (call.emit.require_number(call.input(2)?, "on_value")?, call.emit.require_number(call.input(3)?, "off_value")?);
    let (indices, to) = (call.input(0)?, call.emit.dtype(call.input(2)?)?);
    Ok(vec![call.emit.push(Op::OneHot(OneHot { axis: call.int_option(0, 0)?, depth, on, off, to }), &[indices])?])
}

pub(super) fn shape_of(call: &mut Call<'_, '_>) -> Outputs {
    let extents = call.emit.extents(call.input(0)?)?;
    let shape = call.emit.add_integers(&extents)?;
    let to = call.output_dtype(0)?;
    Ok(vec![call.emit.cast(shape, to)?])
}

pub(super) fn zeros_like(call: &mut Call<'_, '_>) -> Outputs {
    let ty = call.emit.ty(call.input(0)?)?;
    let extents = call.emit.extents(call.input(0)?)?;
    Ok(vec![call.emit.add_filled(ty.dtype, &extents, 0.0)?])
}

pub(super) fn fill(call: &mut Call<'_, '_>) -> Outputs {
    let shape = call.emit.require_integers(call.input(0)?, "dims")?;
    let value = call.input(1)?;
    Ok(vec![call.emit.push(Op::Expand(Expand { shape }), &[value])?])
}

pub(super) fn depth_to_space(call: &mut Call<'_, '_>) -> Outputs {
    let block = call.int_option(0, 0)?;
    let x = movable_input(call)?;
    let x = call.channels_first(x)?;
    let y = compose::depth_to_space(&mut call.emit.builder, x, block, DepthOrder::BlockFirst)?;
    Ok(vec![call.channels_last(y)?])
}

pub(super) fn space_to_depth(call: &mut Call<'_, '_>) -> Outputs {
    let block = call.int_option(0, 0)?;
    let x = movable_input(call)?;
    let x = call.channels_first(x)?;
    let y = compose::space_to_depth(&mut call.emit.builder, x, block, DepthOrder::BlockFirst)?;
    Ok(vec![call.channels_last(y)?])
}
