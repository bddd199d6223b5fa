//! Computes operators that move or look up elements.

use crate::call::Call;
use crate::refusal::{Refusal, Result};
use models::operators::{
    BorderPad, Concat, Gather, GatherElements, GatherNd, OneHot, Pad, Rope, ScatterElements, ScatterNd, Slice, Tile,
    Transpose, Trilu,
};
use models::{Border, Op, ScatterOp};
use tch::{Device, Kind, Tensor};

pub fn compute_movement(call: &Call<'_>) -> Result<Option<Tensor>> {
    let (x, inputs, extents) = (call.first_input(), call.inputs, call.extents.as_slice());
    Ok(Some(match call.op {
        Op::Reshape(_) | Op::Flatten(_) => x.f_view_copy(extents)?,
        Op::Identity(_) => x.f_alias_copy()?,
        Op::Transpose(Transpose { permutation }) => x.f_permute_copy(permutation)?,
        Op::Concat(Concat { axis }) => Tensor::f_cat(inputs, *axis)?,
        Op::Pad(Pad { pads, value }) => x.f_pad(from_last(pads), "constant", *value)?,
        Op::BorderPad(BorderPad { border, pads }) => border_pad(x, *border, pads, extents)?,
        Op::Slice(Slice { axes, starts, stops, steps }) => strided_slice(x, axes, starts, stops, steps)?,
        Op::Expand(_) => x.f_expand_copy(extents, false)?,
        Op::Tile(Tile { repeats }) => x.f_repeat(repeats)?,
        Op::Gather(Gather { axis }) => gather_axis(x, inputs[1], *axis, extents)?,
        Op::GatherElements(GatherElements { axis }) => x.f_gather(*axis, &to_int64(inputs[1])?, false)?,
        Op::GatherNd(GatherNd { batch }) => gather_nd(x, inputs[1], *batch)?,
        Op::ScatterElements(ScatterElements { axis, combine }) => scatter_elements(inputs, *axis, *combine)?,
        Op::ScatterNd(ScatterNd { combine }) => scatter_nd(inputs, *combine)?,
        Op::OneHot(OneHot { axis, on, off, .. }) => one_hot(x, *axis, [*on, *off], extents, call.kind)?,
        Op::Trilu(Trilu { upper: true, diagonal }) => x.f_triu(*diagonal)?,
        Op::Trilu(Trilu { upper: false, diagonal }) => x.f_tril(*diagonal)?,
        Op::Rope(Rope { rotary, interleaved }) => rotary_embedding(inputs, *rotary, *interleaved)?,
        _ => return Ok(None),
    }))
}

/// Reorders padding to PyTorch's order: head and tail of the last dimension, then of the one before.
pub fn from_last(pads: &[i64]) -> Vec<i64> {
    let (heads, tails) = pads.split_at(pads.len() / 2);
    heads.iter().zip(tails).rev().flat_map(|(head, tail)| [*head, *tail]).collect()
}

/// Converts indices to 64-bit integers, PyTorch's only index type.
fn to_int64(indices: &Tensor) -> Result<Tensor> {
    Ok(if indices.f_kind()? == Kind::Int64 { indices.shallow_clone() } else { indices.f_to_kind(Kind::Int64)? })
}

fn border_pad(x: &Tensor, border: Border, pads: &[i64], extents: &[i64]) -> Result<Tensor> {
    let mode = match border {
        Border::Reflect => "reflect",
        Border::Edge => "replicate",
        Border::Wrap => "circular",
    };
    let rank = extents.len();
    let Some(first) = (0..rank).find(|axis| pads[*axis] != 0 || pads[axis + rank] != 0) else {
        return Ok(x.f_alias_copy()?);
    };
    if rank - first > 3 {
        return Err(Refusal::unsupported_operator(
            "PyTorch can pad at most three dimensions with the tensor's own elements",
        ));
    }
    // Leading dimensions are merged into one, followed by a channel dimension.
    let sizes = x.size();
    let planes = [&[sizes[..first].iter().product(), 1], &sizes[first..]].concat();
    let pads = [&pads[first..rank], &pads[rank + first..]].concat();
    Ok(x.f_reshape(planes)?.f_pad(from_last(&pads), mode, None)?.f_reshape(extents)?)
}

fn strided_slice(x: &Tensor, axes: &[i64], starts: &[i64], stops: &[i64], steps: &[i64]) -> Result<Tensor> {
    let mut view = x.shallow_clone();
    for (at, &axis) in axes.iter().enumerate() {
        let (start, stop, step) = (starts[at], stops[at], steps[at]);
        view = if step > 0 {
            view.f_slice(axis, start, stop, step)?
        } else {
            // PyTorch has no negative steps, so the dimension is flipped first.
            let last = view.size()[usize::try_from(axis).unwrap_or(0)] - 1;
            view.f_flip([axis])?.f_slice(axis, last - start, last - stop, -step)?
        };
    }
    Ok(view.f_alias_copy()?)
}

fn gather_axis(x: &Tensor, indices: &Tensor, axis: i64, extents: &[i64]) -> Result<Tensor> {
    Ok(x.f_index_select(axis, &indices.f_reshape([-1])?)?.f_reshape(extents)?)
}

fn split_index_tuples(indices: &Tensor) -> Result<Vec<Tensor>> {
    let indices = to_int64(indices)?;
    let count = indices.size().last().copied().unwrap_or(0);
    Ok((0..count).map(|at| indices.f_select(-1, at)).collect::<std::result::Result<_, _>>()?)
}

fn gather_nd(x: &Tensor, indices: &Tensor, batch: i64) -> Result<Tensor> {
    let looked_up = split_index_tuples(indices)?;
    let rank = indices.dim() - 1;
    let own = (0..usize::try_from(batch).unwrap_or(0)).map(|axis| -> Result<Option<Tensor>> {
        // Each batch indexes only itself.
        let mut shape = vec![1; rank];
        shape[axis] = x.size()[axis];
        Ok(Some(Tensor::f_arange(shape[axis], (Kind::Int64, Device::Cpu))?.f_reshape(shape)?))
    });
    let all = own.chain(looked_up.into_iter().map(|at| Ok(Some(at)))).collect::<Result<Vec<Option<Tensor>>>>()?;
    Ok(x.f_index(&all)?)
}

fn scatter_elements(inputs: &[&Tensor], axis: i64, combine: ScatterOp) -> Result<Tensor> {
    let [x, indices, updates] = [inputs[0], inputs[1], inputs[2]];
    let at = to_int64(indices)?;
    Ok(match combine {
        ScatterOp::Replace => x.f_scatter(axis, &at, updates)?,
        ScatterOp::Add => x.f_scatter_add(axis, &at, updates)?,
        ScatterOp::Mul => x.f_internal_scatter_reduce(axis, &at, updates, "prod", true)?,
        ScatterOp::Max => x.f_internal_scatter_reduce(axis, &at, updates, "amax", true)?,
        ScatterOp::Min => x.f_internal_scatter_reduce(axis, &at, updates, "amin", true)?,
    })
}

fn scatter_nd(inputs: &[&Tensor], combine: ScatterOp) -> Result<Tensor> {
    let at: Vec<Option<Tensor>> = split_index_tuples(inputs[1])?.into_iter().map(Some).collect();
    Ok(match combine {
        ScatterOp::Replace => inputs[0].f_index_put(&at, inputs[2], false)?,
        ScatterOp::Add => inputs[0].f_index_put(&at, inputs[2], true)?,
        ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => {
            return Err(Refusal::unsupported_operator("PyTorch can only replace or add slices at index tuples"));
        }
    })
}

fn one_hot(indices: &Tensor, axis: i64, [on, off]: [f64; 2], extents: &[i64], kind: Kind) -> Result<Tensor> {
    let empty = Tensor::f_full(extents, off, (kind, Device::Cpu))?;
    Ok(empty.f_scatter_value(axis, &to_int64(indices)?.f_unsqueeze(axis)?, on)?)
}

fn rotary_embedding(inputs: &[&Tensor], rotary: i64, interleaved: bool) -> Result<Tensor> {
    let [x, cos, sin] = [inputs[0], inputs[1], inputs[2]];
    let turned = x.f_narrow(-1, 0, rotary)?;
    let (first, second) = if interleaved {
        (turned.f_slice(-1, 0, rotary, 2)?, turned.f_slice(-1, 1, rotary, 2)?)
    } else {
        (turned.f_narrow(-1, 0, rotary / 2)?, turned.f_narrow(-1, rotary / 2, rotary / 2)?)
    };
    let left = first.f_mul(cos)?.f_sub(&second.f_mul(sin)?)?;
    let right = second.f_mul(cos)?.f_add(&first.f_mul(sin)?)?;
    let turned = if interleaved {
        Tensor::f_stack(&[left, right], -1)?.f_flatten(-2, -1)?
    } else {
        Tensor::f_cat(&[left, right], -1)?
    };
    let rest = x.size().last().copied().unwrap_or(0) - rotary;
    Ok(if rest > 0 { Tensor::f_cat(&[turned, x.f_narrow(-1, rotary, rest)?], -1)? } else { turned })
}
