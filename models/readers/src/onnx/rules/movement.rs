//! Import rules of operators that move elements.

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::compose::{self, DepthOrder};
use models::graph::ValueId;
use models::operators::{Border, BorderPad, Expand, Flatten, Op, Slice, Tile, Transpose};

type Outputs = Outcome<Vec<ValueId>>;

/// Reads integers from an attribute before operator set `since`, and from an input after.
pub(super) fn integer_list(
    emit: &Emit<'_>,
    call: &Call<'_>,
    name: &str,
    (index, since): (usize, i64),
) -> Outcome<Option<Vec<i64>>> {
    if call.opset < since {
        return Ok(call.int_list(name));
    }
    call.optional_input(index).map(|id| emit.require_integers(id, name)).transpose()
}

pub(super) fn reshape(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let Some(shape) = integer_list(emit, call, "shape", (1, 5))? else { return malformed("`shape` is missing") };
    let extents = emit.extents(x)?;
    let mut wanted = Vec::with_capacity(shape.len());
    for (index, &extent) in shape.iter().enumerate() {
        wanted.push(match (extent, extents.get(index)) {
            (0, _) if call.flag_attribute("allowzero") => 0,
            (0, Some(kept)) => *kept,
            (0, None) => {
                return malformed(format!(
                    "extent 0 copies dimension {index}, but the input has {} dimensions",
                    extents.len()
                ));
            }
            (extent, _) => extent,
        });
    }
    if let Some(open) = wanted.iter().position(|&extent| extent == -1) {
        let mut rest = wanted.iter().enumerate().filter(|(index, _)| *index != open);
        let others = rest.try_fold(1i64, |product, (_, extent)| product.checked_mul(*extent));
        let all = extents.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent));
        wanted[open] = match (all, others) {
            (Some(all), Some(others)) if others > 0 && all % others == 0 => all / others,
            _ => return malformed(format!("{} cannot be reshaped to {shape:?}", emit.ty(x)?)),
        };
    }
    Ok(vec![emit.reshape(x, &wanted)?])
}

pub(super) fn flatten(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = emit.rank(x)? as i64;
    let axis = call.int_attribute("axis", 1);
    let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
    Ok(vec![emit.push(Op::Flatten(Flatten { axis }), &[x])?])
}

pub(super) fn transpose(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let rank = emit.rank(x)? as i64;
    let permutation = call.int_list("perm").unwrap_or_else(|| (0..rank).rev().collect());
    Ok(vec![emit.push(Op::Transpose(Transpose { permutation }), &[x])?])
}

pub(super) fn squeeze(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let mut is_dropped: Vec<bool> = extents.iter().map(|&extent| extent == 1).collect();
    if let Some(axes) = integer_list(emit, call, "axes", (1, 13))? {
        is_dropped.fill(false);
        for axis in axes {
            let axis = emit.resolve_axis(axis, extents.len())?;
            if extents[axis] != 1 {
                return malformed(format!("dimension {axis} has extent {}, not 1", extents[axis]));
            }
            is_dropped[axis] = true;
        }
    }
    let kept: Vec<i64> = extents.iter().zip(is_dropped).filter(|(_, drop)| !drop).map(|(&extent, _)| extent).collect();
    Ok(vec![emit.reshape(x, &kept)?])
}

pub(super) fn unsqueeze(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let Some(axes) = integer_list(emit, call, "axes", (1, 13))? else { return malformed("`axes` is missing") };
    let extents = emit.extents(x)?;
    let rank = extents.len() + axes.len();
    let mut is_new = vec![false; rank];
    for axis in axes {
        if std::mem::replace(&mut is_new[emit.resolve_axis(axis, rank)?], true) {
            return malformed(format!("axis {axis} occurs twice"));
        }
    }
    let mut old = extents.into_iter();
    let wanted: Vec<i64> = is_new.iter().map(|&is_new| if is_new { 1 } else { old.next().unwrap_or(1) }).collect();
    Ok(vec![emit.reshape(x, &wanted)?])
}

pub(super) fn concat(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let inputs = call.all_inputs()?;
    let axis = emit.resolve_axis(call.int_attribute("axis", 1), emit.rank(inputs[0])?)?;
    Ok(vec![emit.concat_parts(&inputs, axis)?])
}

pub(super) fn center_crop_pad(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let mut x = call.input(0)?;
    let rank = emit.rank(x)?;
    let shape = emit.require_integers(call.input(1)?, "shape")?;
    let axes = call.int_list("axes").unwrap_or_else(|| (0..rank as i64).collect());
    if axes.len() != shape.len() || shape.iter().any(|&extent| extent < 0) {
        return malformed(format!("`shape` {shape:?} does not fit the axes {axes:?}"));
    }
    for (axis, wanted) in axes.into_iter().zip(shape) {
        let axis = emit.resolve_axis(axis, rank)?;
        let extent = emit.extents(x)?[axis];
        if extent >= wanted {
            let head = (extent - wanted) / 2;
            x = emit.slice(x, axis, head, head + wanted)?;
        } else {
            let mut pads = vec![0; 2 * rank];
            pads[axis] = (wanted - extent) / 2;
            pads[rank + axis] = wanted - extent - pads[axis];
            x = emit.pad(x, &pads, 0.0)?;
        }
    }
    Ok(vec![x])
}

pub(super) fn split(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), extents.len())?;
    let count = call.node.output.len() as i64;
    let parts = match integer_list(emit, call, "split", (1, 13))? {
        Some(parts) => parts,
        None => {
            if call.int_attribute("num_outputs", count) != count || count < 1 {
                return malformed(format!("`num_outputs` differs from the number of outputs, {count}"));
            }
            // All parts are equal, but for a smaller last one.
            let part = extents[axis] / count + i64::from(extents[axis] % count != 0);
            (0..count).map(|index| part.min(extents[axis].saturating_sub(index.saturating_mul(part)).max(0))).collect()
        }
    };
    if parts.len() as i64 != count
        || parts.iter().any(|&part| part < 0)
        || parts.iter().try_fold(0i64, |sum, part| sum.checked_add(*part)) != Some(extents[axis])
    {
        return malformed(format!("the parts {parts:?} for {count} outputs do not add up to {}", extents[axis]));
    }
    let mut start = 0;
    let mut outputs = Vec::new();
    for part in parts {
        outputs.push(emit.slice(x, axis, start, start + part)?);
        start += part;
    }
    Ok(outputs)
}

pub(super) fn slice(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let rank = extents.len();
    let (Some(starts), Some(ends)) =
        (integer_list(emit, call, "starts", (1, 10))?, integer_list(emit, call, "ends", (2, 10))?)
    else {
        return malformed("`starts` or `ends` is missing");
    };
    let axes = integer_list(emit, call, "axes", (3, 10))?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = match call.opset {
        10.. => integer_list(emit, call, "steps", (4, 10))?.unwrap_or_else(|| vec![1; starts.len()]),
        _ => vec![1; starts.len()],
    };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return malformed("`starts`, `ends`, `axes` and `steps` differ in length");
    }
    let mut cuts = Vec::new();
    for index in 0..starts.len() {
        let axis = emit.resolve_axis(axes[index], rank)?;
        let (extent, step) = (extents[axis], steps[index]);
        if step == 0 {
            return malformed("the step is 0");
        }
        let place = |number: i64| if number < 0 { number.saturating_add(extent) } else { number };
        if step > 0 {
            let (start, stop) = (place(starts[index]).clamp(0, extent), place(ends[index]).clamp(0, extent));
            cuts.push((axis, start, stop.max(start), step));
        } else {
            let (start, stop) = (place(starts[index]).clamp(-1, extent - 1), place(ends[index]).clamp(-1, extent - 1));
            cuts.push((axis, start.max(0), stop.min(start).max(if start < 0 { 0 } else { -1 }), step));
        }
    }
    cuts.sort_by_key(|cut| cut.0);
    let column = |take: fn(&(usize, i64, i64, i64)) -> i64| cuts.iter().map(take).collect::<Vec<i64>>();
    let op = Op::Slice(Slice {
        axes: column(|cut| cut.0 as i64),
        starts: column(|cut| cut.1),
        stops: column(|cut| cut.2),
        steps: column(|cut| cut.3),
    });
    let is_whole = cuts.iter().all(|&(axis, start, stop, step)| start == 0 && stop == extents[axis] && step == 1);
    Ok(vec![if is_whole { x } else { emit.push(op, &[x])? }])
}

pub(super) fn pad(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let rank = extents.len();
    let Some(given) = integer_list(emit, call, "pads", (1, 11))? else { return malformed("`pads` is missing") };
    let value = match call.optional_input(2).filter(|_| call.opset >= 11) {
        Some(value) => emit.require_number(value, "constant_value")?,
        None if call.opset < 11 => call.float_attribute("value", 0.0),
        None => 0.0,
    };
    let axes = match call.optional_input(3).filter(|_| call.opset >= 18) {
        Some(axes) => emit.require_integers(axes, "axes")?,
        None => (0..rank as i64).collect(),
    };
    if given.len() != 2 * axes.len() {
        return malformed(format!("`pads` has {} entries, but there are {} dimensions", given.len(), axes.len()));
    }
    let mut pads = vec![0; 2 * rank];
    for (index, axis) in axes.iter().enumerate() {
        let axis = emit.resolve_axis(*axis, rank)?;
        pads[axis] = given[index];
        pads[axis + rank] = given[index + axes.len()];
    }
    // A negative pad cuts elements off.
    let mut y = x;
    for axis in 0..rank {
        let (head, tail) = (pads[axis].saturating_neg().max(0), pads[axis + rank].saturating_neg().max(0));
        if head.saturating_add(tail) > extents[axis] {
            return malformed(format!("the pads {given:?} remove more elements than there are"));
        }
        y = emit.slice(y, axis, head, extents[axis] - tail)?;
    }
    pads.iter_mut().for_each(|pad| *pad = (*pad).max(0));
    if pads.iter().all(|&pad| pad == 0) {
        return Ok(vec![y]);
    }
    match call.text_attribute("mode").unwrap_or("constant") {
        "constant" => Ok(vec![emit.pad(y, &pads, value)?]),
        "reflect" => Ok(vec![emit.push(Op::BorderPad(BorderPad { border: Border::Reflect, pads }), &[y])?]),
        "edge" => Ok(vec![emit.push(Op::BorderPad(BorderPad { border: Border::Edge, pads }), &[y])?]),
        "wrap" => Ok(vec![emit.push(Op::BorderPad(BorderPad { border: Border::Wrap, pads }), &[y])?]),
        mode => malformed(format!("`mode` has the unknown value `{mode}`")),
    }
}

pub(super) fn expand(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let shape = emit.require_integers(call.input(1)?, "shape")?;
    let y = emit.push(Op::Expand(Expand { shape }), &[x])?;
    Ok(vec![if emit.ty(y)? == emit.ty(x)? { x } else { y }])
}

pub(super) fn tile(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let repeats = emit.require_integers(call.input(1)?, "repeats")?;
    Ok(vec![emit.push(Op::Tile(Tile { repeats }), &[x])?])
}

pub(super) fn depth_to_space(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, block, order) = (call.input(0)?, call.int_attribute("blocksize", 0), depth_order(call));
    Ok(vec![compose::depth_to_space(&mut emit.builder, x, block, order)?])
}

pub(super) fn space_to_depth(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, block, order) = (call.input(0)?, call.int_attribute("blocksize", 0), depth_order(call));
    Ok(vec![compose::space_to_depth(&mut emit.builder, x, block, order)?])
}

fn depth_order(call: &Call<'_>) -> DepthOrder {
    if call.text_attribute("mode").unwrap_or("DCR") == "DCR" {
        DepthOrder::BlockFirst
    } else {
        DepthOrder::ChannelFirst
    }
}
