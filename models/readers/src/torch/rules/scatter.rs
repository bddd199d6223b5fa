//! Import rules of reductions to positions that an index or a mask gives.

use super::{Call, Outputs, own_output};
use crate::{Emit, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, CumSum, Gather, Op, ScatterElements, ScatterOp, Where};
use models::shapes::broadcast_shapes;
use models::types::{DType, TensorType};

/// Emits `scatter_reduce`, whose index has the shape of the updates.
pub(super) fn scatter_reduce(call: &mut Call<'_, '_>) -> Outputs {
    let (x, places, mut source) =
        (call.tensor_argument("self")?, call.tensor_argument("index")?, call.tensor_argument("src")?);
    for (at, extent) in call.emit.extents(places)?.into_iter().enumerate() {
        source = call.emit.slice(source, at, 0, extent)?;
    }
    reduce_updates(call, x, places, source)
}

/// Emits `index_reduce`, whose index is a vector of rows.
pub(super) fn index_reduce(call: &mut Call<'_, '_>) -> Outputs {
    let (x, rows, source) =
        (call.tensor_argument("self")?, call.tensor_argument("index")?, call.tensor_argument("source")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    let extents = call.emit.extents(source)?;
    if extents.is_empty() {
        return unsupported("rows of a scalar");
    }
    let mut shape = vec![1; extents.len()];
    shape[axis] = extents[axis];
    let places = call.emit.reshape(rows, &shape)?;
    let places = call.emit.expand(places, &extents)?;
    reduce_updates(call, x, places, source)
}

/// Combines the updates of each element of `x` with each other and, with `include_self`, with the element.
fn reduce_updates(call: &mut Call<'_, '_>, x: ValueId, places: ValueId, updates: ValueId) -> Outputs {
    let axis = call.axis_argument(x, "dim", 0)? as i64;
    let (includes_self, reduce) = (call.flag_argument("include_self", true)?, call.text_argument("reduce", "")?);
    let emit = &mut *call.emit;
    let dtype = emit.dtype(x)?;
    let (least, most) = match dtype.is_float() {
        true => (f64::NEG_INFINITY, f64::INFINITY),
        false => crate::finite_range(dtype),
    };
    let (combine, neutral) = match reduce.as_str() {
        "sum" | "mean" => (ScatterOp::Add, 0.0),
        "prod" => (ScatterOp::Mul, 1.0),
        "amax" => (ScatterOp::Max, least),
        "amin" => (ScatterOp::Min, most),
        other => return unsupported(format!("`reduce` with the value `{other}`")),
    };
    let shape = emit.extents(places)?;
    let scatter = |emit: &mut Emit<'_>, data: ValueId, updates: ValueId, combine: ScatterOp| {
        emit.push(Op::ScatterElements(ScatterElements { axis, combine }), &[data, places, updates])
    };
    let mut data = x;
    if !includes_self {
        let neutral = emit.add_filled(dtype, &shape, neutral)?;
        data = scatter(emit, data, neutral, ScatterOp::Replace)?;
    }
    let y = scatter(emit, data, updates, combine)?;
    if reduce != "mean" {
        return own_output(y);
    }
    let extents = emit.extents(x)?;
    let start = emit.add_filled(dtype, &extents, if includes_self { 1.0 } else { 0.0 })?;
    let ones = emit.add_filled(dtype, &shape, 1.0)?;
    let counts = scatter(emit, start, ones, ScatterOp::Add)?;
    // An element without updates is divided by one.
    let one = emit.add_scalar(dtype, 1.0)?;
    let counts = emit.binary(BinaryOp::Max, counts, one)?;
    let function = if dtype.is_float() { BinaryOp::Div } else { BinaryOp::FloorDiv };
    own_output(emit.binary(function, y, counts)?)
}

/// Replaces the elements that a mask selects by the elements of `source` in order.
pub(super) fn masked_scatter(call: &mut Call<'_, '_>) -> Outputs {
    let (x, mask, source) =
        (call.tensor_argument("self")?, call.tensor_argument("mask")?, call.tensor_argument("source")?);
    let emit = &mut *call.emit;
    let (own, of_mask) = (emit.ty(x)?, emit.ty(mask)?);
    let shape = broadcast_shapes(&own.shape, &of_mask.shape).or_else(crate::malformed)?;
    let shape = TensorType { dtype: own.dtype, shape }.extents().unwrap_or_default();
    let (x, mask) = (emit.expand(x, &shape)?, emit.expand(mask, &shape)?);
    let (total, given): (i64, i64) = (shape.iter().product(), emit.extents(source)?.iter().product());
    if total == 0 || given == 0 {
        return unsupported("an empty tensor");
    }
    let flat = emit.reshape(mask, &[total])?;
    let flags = emit.cast(flat, DType::I64)?;
    let counts = emit.push(Op::CumSum(CumSum { axis: 0, exclusive: true, reverse: false }), &[flags])?;
    // Elements after the last selected one must not read beyond the source.
    let last = emit.add_scalar(DType::I64, (given - 1) as f64)?;
    let places = emit.binary(BinaryOp::Min, counts, last)?;
    let source = emit.reshape(source, &[given])?;
    let moved = emit.push(Op::Gather(Gather { axis: 0 }), &[source, places])?;
    let moved = emit.reshape(moved, &shape)?;
    own_output(emit.push(Op::Where(Where {}), &[mask, moved, x])?)
}
