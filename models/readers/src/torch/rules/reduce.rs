//! Whole dimensions become one number.

use super::{Call, Made, Memory, Outputs, own, push};
use crate::{Outcome, unsupported};
use models::graph::ValueId;
use models::operators::{ArgReduce, ArgTop, BinaryOp, CumSum, GatherElements, Identity, Op, Reduce, ReduceOp, UnaryOp};
use models::types::DType;

pub(super) fn reduce(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.tensor(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let dtype = call.result_dtype()?;
    let x = call.emit.cast(x, dtype)?;
    own(reduced(call, function, x)?)
}

fn reduced(call: &mut Call<'_, '_>, function: ReduceOp, x: ValueId) -> Outcome<ValueId> {
    let axes = call.axes(x, "dim")?;
    if axes.is_empty() {
        // A number has nothing to reduce.
        return call.emit.push(Op::Identity(Identity {}), &[x]);
    }
    let keep = call.flag("keepdim", false)?;
    call.emit.push(Op::Reduce(Reduce { function, axes, keep }), &[x])
}

/// Of flags: whether any, or all, are set.
fn flags(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.operand("self", DType::Bool)?;
    let x = call.emit.cast(x, DType::I32)?;
    let y = reduced(call, function, x)?;
    own(call.emit.cast(y, DType::Bool)?)
}

pub(super) fn any(call: &mut Call<'_, '_>) -> Outputs {
    flags(call, ReduceOp::Max)
}

pub(super) fn all(call: &mut Call<'_, '_>) -> Outputs {
    flags(call, ReduceOp::Min)
}

pub(super) fn arg_reduce(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    let x = call.tensor("self")?;
    if let Some(axis) = call.optional_int("dim")? {
        let axis = call.emit.axis(axis, call.emit.rank(x)?.max(1))? as i64;
        let keep = call.flag("keepdim", false)?;
        return push(call, Op::ArgReduce(ArgReduce { largest, axis, keep, last: false }), &[x]);
    }
    let count = call.emit.extents(x)?.iter().product();
    let flat = call.emit.reshape(x, &[count])?;
    push(call, Op::ArgReduce(ArgReduce { largest, axis: 0, keep: false, last: false }), &[flat])
}

/// Values and places of the best, or of all in order.
pub(super) fn top(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    if call.emit.rank(x)? == 0 {
        return unsupported("a number has no order");
    }
    let axis = call.axis(x, "dim", -1)?;
    let (count, largest) = match call.operator {
        "topk" => (call.int("k", 1)?, call.flag("largest", true)?),
        _ => (call.emit.extents(x)?[axis], call.flag("descending", false)?),
    };
    let axis = axis as i64;
    let place = call.emit.push(Op::ArgTop(ArgTop { count, axis, largest }), &[x])?;
    if call.operator == "argsort" {
        return own(place);
    }
    let value = call.emit.push(Op::GatherElements(GatherElements { axis }), &[x, place])?;
    Ok([value, place].map(|id| Made { id, window: Memory::Own }).into())
}

/// The largest of all, of a dimension with its place, or of two tensors.
pub(super) fn extreme(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    if call.has("other") {
        return super::pointwise::binary(call, if largest { BinaryOp::Max } else { BinaryOp::Min });
    }
    let function = if largest { ReduceOp::Max } else { ReduceOp::Min };
    if !call.has("dim") {
        return reduce(call, function);
    }
    let x = call.tensor("self")?;
    let value = reduced(call, function, x)?;
    let axis = call.axis(x, "dim", 0)? as i64;
    let keep = call.flag("keepdim", false)?;
    let place = call.emit.push(Op::ArgReduce(ArgReduce { largest, axis, keep, last: false }), &[x])?;
    Ok([value, place].map(|id| Made { id, window: Memory::Own }).into())
}

/// Variance, or its root.
pub(super) fn spread(call: &mut Call<'_, '_>, has_root: bool) -> Outputs {
    let x = call.tensor("self")?;
    let axes = call.axes(x, "dim")?;
    let correction = match call.arguments.get("unbiased") {
        Some(_) => f64::from(u8::from(call.flag("unbiased", true)?)),
        None => call.float("correction", 1.0)?,
    };
    let extents = call.emit.extents(x)?;
    let count: i64 = axes.iter().map(|&axis| extents[axis as usize]).product();
    if count as f64 <= correction {
        return unsupported(format!("{count} elements have no such variance"));
    }
    let mean = call.emit.push(Op::Reduce(Reduce { function: ReduceOp::Mean, axes: axes.clone(), keep: true }), &[x])?;
    let apart = call.emit.binary(BinaryOp::Sub, x, mean)?;
    let squares = call.emit.unary(UnaryOp::Square, apart)?;
    let sum = reduced(call, ReduceOp::Sum, squares)?;
    let mut y = call.emit.binary_with(BinaryOp::Div, sum, count as f64 - correction)?;
    if has_root {
        y = call.emit.unary(UnaryOp::Sqrt, y)?;
    }
    own(y)
}

pub(super) fn cum_sum(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let x = call.operand("self", dtype)?;
    if call.emit.rank(x)? == 0 {
        return own(x);
    }
    let axis = call.axis(x, "dim", 0)? as i64;
    push(call, Op::CumSum(CumSum { axis, exclusive: false, reverse: false }), &[x])
}

/// Each element less the one before it.
pub(super) fn diff(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor("self")?;
    let axis = call.axis(x, "dim", -1)?;
    let (before, after) = (call.optional_tensor("prepend")?, call.optional_tensor("append")?);
    let parts: Vec<ValueId> = before.into_iter().chain([x]).chain(after).collect();
    x = call.emit.concat(&parts, axis)?;
    for _ in 0..call.int("n", 1)?.clamp(0, 64) {
        let extent = call.emit.extents(x)?[axis];
        if extent < 1 {
            return unsupported("there is nothing to take the difference of");
        }
        let (later, earlier) = (call.emit.slice(x, axis, 1, extent)?, call.emit.slice(x, axis, 0, extent - 1)?);
        x = if call.emit.dtype(x)? == DType::Bool {
            call.emit.binary(BinaryOp::Xor, later, earlier)?
        } else {
            call.emit.binary(BinaryOp::Sub, later, earlier)?
        };
    }
    own(x)
}
