//! Operators that move elements, and views of other tensors' memory.

use super::views::write_view;
use super::{
    Call, Memory, Outputs, RuleOutput, own_output, permuted_output, push_output, reshaped_output, view_output,
};
use crate::{Emit, Outcome, malformed, unsupported};
use models::compose::{self, DepthOrder};
use models::graph::ValueId;
use models::operators::{Border, BorderPad, Expand, Op, Slice, Tile, Trilu};
use models::types::DType;

const MAX_PARTS: usize = 1 << 12;

pub(super) fn primary_input(call: &Call<'_, '_>) -> Outcome<ValueId> {
    call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })
}

/// Reshapes a tensor; one extent may be -1 and is inferred.
fn infer_shape(call: &mut Call<'_, '_>, x: ValueId, shape: &[i64]) -> Outcome<ValueId> {
    let all: i64 = call.emit.extents(x)?.iter().product();
    let known = shape.iter().filter(|&&extent| extent >= 0).try_fold(1i64, |all, &extent| all.checked_mul(extent));
    let mut shape = shape.to_vec();
    match known {
        Some(known) if known > 0 => {
            shape.iter_mut().filter(|extent| **extent < 0).for_each(|extent| *extent = all / known);
        }
        Some(_) if all == 0 => shape.iter_mut().filter(|extent| **extent < 0).for_each(|extent| *extent = 0),
        _ => return malformed(format!("shape {shape:?} does not fit {all} elements")),
    }
    if shape.contains(&0) {
        return empty_like(call.emit, x, &shape);
    }
    call.emit.reshape(x, &shape)
}

fn empty_like(emit: &mut Emit<'_>, x: ValueId, shape: &[i64]) -> Outcome<ValueId> {
    emit.add_filled(emit.dtype(x)?, shape, 0.0)
}

/// Returns the elements `start` to `stop` of one dimension; the range may be empty.
fn slice_range(emit: &mut Emit<'_>, x: ValueId, axis: usize, [start, stop]: [i64; 2]) -> Outcome<ValueId> {
    if start < stop {
        return emit.slice(x, axis, start, stop);
    }
    let mut shape = emit.extents(x)?;
    let Some(extent) = shape.get_mut(axis) else { return malformed("a scalar has no dimension to slice") };
    *extent = 0;
    empty_like(emit, x, &shape)
}

pub(super) fn view_as(call: &mut Call<'_, '_>) -> Outputs {
    if call.arguments.contains_key("dtype") {
        return unsupported("the bits of elements as elements of another type");
    }
    let x = primary_input(call)?;
    let shape = if call.arguments.contains_key("shape") { call.int_list("shape")? } else { call.int_list("size")? };
    let id = infer_shape(call, x, &shape)?;
    // `reshape` may copy.
    if call.operator == "view" { reshaped_output(id) } else { view_output(id) }
}

pub(super) fn reshape_as(call: &mut Call<'_, '_>) -> Outputs {
    let (x, other) = (primary_input(call)?, call.tensor_argument("other")?);
    let shape = call.emit.extents(other)?;
    view_output(infer_shape(call, x, &shape)?)
}

pub(super) fn flatten(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (first, last) = (call.axis_argument(x, "start_dim", 0)?, call.axis_argument(x, "end_dim", -1)?);
    let extents = call.emit.extents(x)?;
    if extents.is_empty() {
        return view_output(call.emit.reshape(x, &[1])?);
    }
    if first > last {
        return malformed(format!("`start_dim` {first} is after `end_dim` {last}"));
    }
    let middle = extents[first..=last].iter().product();
    let shape = [&extents[..first], &[middle], &extents[last + 1..]].concat();
    view_output(call.emit.reshape(x, &shape)?)
}

pub(super) fn unflatten(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let (extents, sizes) = (call.emit.extents(x)?, call.int_list("sizes")?);
    let shape = [&extents[..axis], &sizes, &extents[axis + 1..]].concat();
    reshaped_output(infer_shape(call, x, &shape)?)
}

pub(super) fn squeeze(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (extents, axes) = (call.emit.extents(x)?, call.axis_list(x, "dim")?);
    let stays = |(axis, extent): &(usize, &i64)| **extent != 1 || !axes.contains(&(*axis as i64));
    let shape: Vec<i64> = extents.iter().enumerate().filter(stays).map(|(_, extent)| *extent).collect();
    reshaped_output(call.emit.reshape(x, &shape)?)
}

pub(super) fn unsqueeze(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let mut shape = call.emit.extents(x)?;
    let axis = call.emit.resolve_axis(call.int_argument("dim", 0)?, shape.len() + 1)?;
    shape.insert(axis, 1);
    reshaped_output(call.emit.reshape(x, &shape)?)
}

pub(super) fn permute(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)?;
    let order = call
        .int_list("dims")?
        .into_iter()
        .map(|axis| call.emit.resolve_axis(axis, rank))
        .collect::<Outcome<Vec<_>>>()?;
    permuted_output(call, x, &order)
}

pub(super) fn transpose(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (a, b) = (call.axis_argument(x, "dim0", 0)?, call.axis_argument(x, "dim1", 1)?);
    let mut order: Vec<usize> = (0..call.emit.rank(x)?).collect();
    order.swap(a, b);
    permuted_output(call, x, &order)
}

pub(super) fn transpose_all(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let order: Vec<usize> = (0..call.emit.rank(x)?).rev().collect();
    permuted_output(call, x, &order)
}

/// Expands dimensions of extent 1; an extent of -1 stays unchanged.
pub(super) fn expand(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (mut shape, extents) = (call.int_list("size")?, call.emit.extents(x)?);
    let Some(added) = shape.len().checked_sub(extents.len()) else {
        return malformed(format!("shape {shape:?} has fewer dimensions than the input"));
    };
    for (index, extent) in shape.iter_mut().enumerate().filter(|(_, extent)| **extent < 0) {
        match index.checked_sub(added) {
            Some(own) => *extent = extents[own],
            None => return malformed("a new dimension must not have the extent -1"),
        }
    }
    expand_to(call, x, &shape)
}

pub(super) fn expand_as(call: &mut Call<'_, '_>) -> Outputs {
    let (x, other) = (primary_input(call)?, call.tensor_argument("other")?);
    let shape = call.emit.extents(other)?;
    expand_to(call, x, &shape)
}

fn expand_to(call: &mut Call<'_, '_>, x: ValueId, shape: &[i64]) -> Outputs {
    let extents = call.emit.extents(x)?;
    if extents == shape {
        return view_output(x);
    }
    // New dimensions of extent 1 need no copies.
    let added = shape.len().saturating_sub(extents.len());
    if shape[..added].iter().all(|&extent| extent == 1) && shape[added..] == extents {
        return view_output(call.emit.reshape(x, shape)?);
    }
    view_output(call.emit.push(Op::Expand(Expand { shape: shape.to_vec() }), &[x])?)
}

pub(super) fn repeat(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let (repeats, extents) = (call.int_list("repeats")?, call.emit.extents(x)?);
    let Some(added) = repeats.len().checked_sub(extents.len()) else {
        return malformed(format!("repeats {repeats:?} have fewer entries than the input has dimensions"));
    };
    x = call.emit.reshape(x, &[vec![1; added], extents].concat())?;
    push_output(call, Op::Tile(Tile { repeats }), &[x])
}

pub(super) fn cat(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let mut parts = Vec::new();
    for id in call.tensor_list("tensors")? {
        // Empty tensors add nothing; PyTorch accepts them with another rank, too.
        if call.emit.ty(id)?.element_count() != Some(0) {
            parts.push(call.emit.cast(id, dtype)?);
        }
    }
    let Some(&first) = parts.first() else {
        let Some(Some(ty)) = call.stated.first() else { return malformed("there are no tensors to concatenate") };
        let extents = ty.extents().unwrap_or_default();
        return own_output(call.emit.add_filled(dtype, &extents, 0.0)?);
    };
    let axis = call.axis_argument(first, "dim", 0)?;
    own_output(call.emit.concat_parts(&parts, axis)?)
}

pub(super) fn stack(call: &mut Call<'_, '_>) -> Outputs {
    let tensors = call.tensor_list("tensors")?;
    let Some(&first) = tensors.first() else { return malformed("there are no tensors to concatenate") };
    let mut shape = call.emit.extents(first)?;
    let axis = call.emit.resolve_axis(call.int_argument("dim", 0)?, shape.len() + 1)?;
    shape.insert(axis, 1);
    let dtype = call.result_dtype()?;
    let mut parts = Vec::new();
    for id in tensors {
        let id = call.emit.cast(id, dtype)?;
        parts.push(call.emit.reshape(id, &shape)?);
    }
    own_output(call.emit.concat_parts(&parts, axis)?)
}

/// Resolves a position: a negative one counts from the end; positions outside are clamped.
pub(super) fn clamp_position(at: i64, extent: i64) -> i64 {
    if at < 0 { at.saturating_add(extent).max(0) } else { at.min(extent) }
}

pub(super) fn slice(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let (start, stop) = (
        clamp_position(call.int_argument("start", 0)?, extent),
        clamp_position(call.int_argument("end", i64::MAX)?, extent),
    );
    let step = call.int_argument("step", 1)?;
    if step == 1 || start >= stop {
        let stop = stop.max(start);
        let id = slice_range(call.emit, x, axis, [start, stop])?;
        return Ok(vec![RuleOutput { id, window: Memory::Range { axis, start, stop, step: 1, is_row: false } }]);
    }
    let op = Op::Slice(Slice { axes: vec![axis as i64], starts: vec![start], stops: vec![stop], steps: vec![step] });
    let id = call.emit.push(op, &[x])?;
    Ok(vec![RuleOutput { id, window: Memory::Range { axis, start, stop, step, is_row: false } }])
}

pub(super) fn narrow(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let start = clamp_position(call.int_argument("start", 0)?, extent);
    let stop = start.saturating_add(call.int_argument("length", 1)?);
    let id = slice_range(call.emit, x, axis, [start, stop])?;
    Ok(vec![RuleOutput { id, window: Memory::Range { axis, start, stop, step: 1, is_row: false } }])
}

fn take_row(emit: &mut Emit<'_>, x: ValueId, axis: usize, at: i64) -> Outcome<ValueId> {
    let mut shape = emit.extents(x)?;
    shape.remove(axis);
    let cut = emit.slice(x, axis, at, at + 1)?;
    emit.reshape(cut, &shape)
}

pub(super) fn select(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.emit.extents(x)?.get(axis).copied().unwrap_or(0);
    let at = call.int_argument("index", 0)?;
    let start = if at < 0 { at.saturating_add(extent) } else { at };
    if !(0..extent).contains(&start) {
        return malformed(format!("`index` {at} is out of range for the extent {extent}"));
    }
    let id = take_row(call.emit, x, axis, start)?;
    Ok(vec![RuleOutput { id, window: Memory::Range { axis, start, stop: start + 1, step: 1, is_row: true } }])
}

/// Splits a dimension into parts of these sizes, which are views of the input.
pub(super) fn split_windows(call: &mut Call<'_, '_>, x: ValueId, axis: usize, sizes: &[i64]) -> Outputs {
    if sizes.len() > MAX_PARTS {
        return unsupported(format!("a split into too many parts: {}", sizes.len()));
    }
    let mut start = 0i64;
    let mut made = Vec::new();
    for &size in sizes {
        let stop = start.saturating_add(size);
        let id = slice_range(call.emit, x, axis, [start, stop])?;
        made.push(RuleOutput { id, window: Memory::Range { axis, start, stop, step: 1, is_row: false } });
        start = stop;
    }
    Ok(made)
}

fn part_sizes(extent: i64, size: i64) -> Vec<i64> {
    let size = size.clamp(1, extent.max(1));
    (0..(extent + size - 1) / size).map(|part| size.min(extent - part * size)).collect()
}

pub(super) fn split(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let sizes = match call.optional_int("split_size") {
        Ok(Some(size)) => part_sizes(extent, size),
        _ if call.arguments.contains_key("split_sizes") => call.int_list("split_sizes")?,
        _ => call.int_list("split_size")?,
    };
    split_windows(call, x, axis, &sizes)
}

pub(super) fn chunk(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let count = call.int_argument("chunks", 1)?.clamp(1, extent.max(1));
    split_windows(call, x, axis, &part_sizes(extent, (extent + count - 1) / count))
}

pub(super) fn unbind(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    if extent > MAX_PARTS as i64 {
        return unsupported(format!("a split into too many parts: {extent}"));
    }
    let mut made = Vec::new();
    for start in 0..extent {
        let id = take_row(call.emit, x, axis, start)?;
        made.push(RuleOutput { id, window: Memory::Range { axis, start, stop: start + 1, step: 1, is_row: true } });
    }
    Ok(made)
}

pub(super) fn slice_scatter(call: &mut Call<'_, '_>) -> Outputs {
    let (x, part) = (primary_input(call)?, call.tensor_argument("src")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let (start, stop) = (
        clamp_position(call.int_argument("start", 0)?, extent),
        clamp_position(call.int_argument("end", i64::MAX)?, extent),
    );
    let step = call.int_argument("step", 1)?;
    if step < 1 || start >= stop {
        return if start >= stop { own_output(x) } else { malformed(format!("`step` {step} is not positive")) };
    }
    own_output(write_view(call.emit, x, part, Memory::Range { axis, start, stop, step, is_row: false })?)
}

pub(super) fn select_scatter(call: &mut Call<'_, '_>) -> Outputs {
    let (x, part) = (primary_input(call)?, call.tensor_argument("src")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    let extent = call.axis_extent(x, axis)?;
    let start = clamp_position(call.int_argument("index", 0)?, extent);
    let window = Memory::Range { axis, start, stop: start + 1, step: 1, is_row: true };
    own_output(write_view(call.emit, x, part, window)?)
}

pub(super) fn flip(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axes = call.axis_list(x, "dims")?;
    let extents = call.emit.extents(x)?;
    let starts = axes.iter().map(|&axis| extents[axis as usize] - 1).collect();
    let (stops, steps) = (vec![-1; axes.len()], vec![-1; axes.len()]);
    push_output(call, Op::Slice(Slice { axes, starts, stops, steps }), &[x])
}

pub(super) fn roll(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let (shifts, mut dims) = (call.int_list("shifts")?, call.int_list("dims")?);
    let extents = call.emit.extents(x)?;
    let is_flat = dims.is_empty() && shifts.len() == 1;
    if is_flat {
        // Without dimensions the elements move as one vector.
        x = call.emit.reshape(x, &[extents.iter().product()])?;
        dims = vec![0];
    }
    if dims.len() != shifts.len() {
        return malformed(format!("{} shifts do not fit {} dimensions", shifts.len(), dims.len()));
    }
    for (shift, dim) in shifts.into_iter().zip(dims) {
        let axis = call.emit.resolve_axis(dim, call.emit.rank(x)?)?;
        x = call.emit.rotate(x, axis, shift)?;
    }
    own_output(if is_flat { call.emit.reshape(x, &extents)? } else { x })
}

/// Pads or, with negative numbers, crops; two numbers per dimension, from the last dimension on.
pub(super) fn pad(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let given = call.int_list("pad")?;
    let rank = call.emit.rank(x)?;
    if given.len() % 2 != 0 || given.len() / 2 > rank {
        return malformed(format!("{} pads do not fit {rank} dimensions", given.len()));
    }
    let mut pads = vec![0; 2 * rank];
    for (index, pair) in given.chunks(2).enumerate() {
        let axis = rank - 1 - index;
        let extent = call.axis_extent(x, axis)?;
        let cut = |pad: i64| pad.saturating_neg().max(0);
        x = call.emit.slice(x, axis, cut(pair[0]), extent.saturating_sub(cut(pair[1])))?;
        (pads[axis], pads[rank + axis]) = (pair[0].max(0), pair[1].max(0));
    }
    let border = match call.text_argument("mode", "constant")?.as_str() {
        "constant" => {
            let value = call.float_argument("value", 0.0)?;
            return own_output(call.emit.pad(x, &pads, value)?);
        }
        "reflect" => Border::Reflect,
        "replicate" => Border::Edge,
        "circular" => Border::Wrap,
        other => return unsupported(format!("`mode` with the value `{other}`")),
    };
    push_output(call, Op::BorderPad(BorderPad { border, pads }), &[x])
}

pub(super) fn triangle(call: &mut Call<'_, '_>, upper: bool) -> Outputs {
    let x = primary_input(call)?;
    let diagonal = call.int_argument("diagonal", 0)?;
    let dtype = call.emit.dtype(x)?;
    let numbers = if dtype == DType::Bool { call.emit.cast(x, DType::U8)? } else { x };
    let cut = call.emit.push(Op::Trilu(Trilu { upper, diagonal }), &[numbers])?;
    own_output(call.emit.cast(cut, dtype)?)
}

pub(super) fn pixel_shuffle(call: &mut Call<'_, '_>) -> Outputs {
    let (x, block) = (primary_input(call)?, call.int_argument("upscale_factor", 1)?);
    own_output(compose::depth_to_space(&mut call.emit.builder, x, block, DepthOrder::ChannelFirst)?)
}

/// Orders output channels by channel first, block position second, unlike in `space_to_depth`.
pub(super) fn pixel_unshuffle(call: &mut Call<'_, '_>) -> Outputs {
    let (x, block) = (primary_input(call)?, call.int_argument("downscale_factor", 1)?);
    let [n, c, h, w] = call.emit.extents(x)?[..] else { return unsupported("the input must have 4 dimensions") };
    if block < 1 || h % block != 0 || w % block != 0 {
        return malformed(format!("the image extents {h} x {w} are not multiples of the block extent {block}"));
    }
    let cut = call.emit.reshape(x, &[n, c, h / block, block, w / block, block])?;
    let transposed = call.emit.transpose(cut, &[0, 1, 3, 5, 2, 4])?;
    own_output(call.emit.reshape(transposed, &[n, c * block * block, h / block, w / block])?)
}
