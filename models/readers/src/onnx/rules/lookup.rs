//! Operators that read or write at indices, and constants built from indices.

use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Gather, GatherElements, GatherNd, OneHot, Op, ScatterElements, ScatterNd, ScatterOp, Trilu};
use models::types::{DType, TensorType};
use reference::Tensor;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_MADE: i64 = 1 << 24;

fn cast_indices(emit: &mut Emit<'_>, id: ValueId) -> Outcome<ValueId> {
    match emit.dtype(id)? {
        DType::I32 | DType::I64 => Ok(id),
        _ => emit.cast(id, DType::I64),
    }
}

pub(super) fn gather(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, at) = (call.input(0)?, cast_indices(emit, call.input(1)?)?);
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), emit.rank(x)?)? as i64;
    Ok(vec![emit.push(Op::Gather(Gather { axis }), &[x, at])?])
}

pub(super) fn gather_elements(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, at) = (call.input(0)?, cast_indices(emit, call.input(1)?)?);
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), emit.rank(x)?)? as i64;
    Ok(vec![emit.push(Op::GatherElements(GatherElements { axis }), &[x, at])?])
}

pub(super) fn gather_nd(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, at) = (call.input(0)?, cast_indices(emit, call.input(1)?)?);
    Ok(vec![emit.push(Op::GatherNd(GatherNd { batch: call.int_attribute("batch_dims", 0) }), &[x, at])?])
}

fn scatter_mode(call: &Call<'_>) -> Outcome<ScatterOp> {
    Ok(match call.text_attribute("reduction").unwrap_or("none") {
        "none" => ScatterOp::Replace,
        "add" => ScatterOp::Add,
        "mul" => ScatterOp::Mul,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        other => return malformed(format!("`reduction` has the unknown value `{other}`")),
    })
}

pub(super) fn scatter_elements(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, at, updates) = (call.input(0)?, cast_indices(emit, call.input(1)?)?, call.input(2)?);
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), emit.rank(x)?)? as i64;
    Ok(vec![emit.push(Op::ScatterElements(ScatterElements { axis, combine: scatter_mode(call)? }), &[x, at, updates])?])
}

pub(super) fn scatter_nd(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, at, updates) = (call.input(0)?, cast_indices(emit, call.input(1)?)?, call.input(2)?);
    Ok(vec![emit.push(Op::ScatterNd(ScatterNd { combine: scatter_mode(call)? }), &[x, at, updates])?])
}

pub(super) fn one_hot(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let at = emit.cast(call.input(0)?, DType::I64)?;
    let depth = emit.require_number(call.input(1)?, "depth")? as i64;
    let values = emit.require_numbers(call.input(2)?, "values")?;
    let [off, on] = values[..] else { return malformed(format!("`values` has {} numbers, must have 2", values.len())) };
    let axis = emit.resolve_axis(call.int_attribute("axis", -1), emit.rank(at)? + 1)? as i64;
    let to = emit.dtype(call.input(2)?)?;
    Ok(vec![emit.push(Op::OneHot(OneHot { axis, depth, on, off, to }), &[at])?])
}

pub(super) fn keep_triangle(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let diagonal = match call.optional_input(1) {
        Some(k) => emit.require_number(k, "k")? as i64,
        None => 0,
    };
    Ok(vec![emit.push(Op::Trilu(Trilu { upper: call.int_attribute("upper", 1) != 0, diagonal }), &[x])?])
}

pub(super) fn integer_range(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let start = emit.require_number(call.input(0)?, "start")?;
    let limit = emit.require_number(call.input(1)?, "limit")?;
    let delta = emit.require_number(call.input(2)?, "delta")?;
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() || count > MAX_MADE as f64 {
        return malformed(format!(
            "the range from {start} to {limit} in steps of {delta} is infinite or longer than {MAX_MADE}"
        ));
    }
    let numbers: Vec<f64> = (0..count as i64).map(|index| start + index as f64 * delta).collect();
    let ty = TensorType::new(emit.dtype(call.input(0)?)?, &[numbers.len() as i64]);
    Ok(vec![emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?])
}

pub(super) fn eye_like(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let [rows, columns] = extents[..] else { return malformed("the input must be a matrix") };
    if rows.checked_mul(columns).is_none_or(|elements| elements > MAX_MADE) {
        return unsupported(format!("a matrix of {rows} x {columns} elements is too large"));
    }
    let dtype = match call.optional_int("dtype") {
        Some(code) => {
            let code = i32::try_from(code).unwrap_or(0);
            tensor::dtype_of_code(code).or_else(|reason| unsupported(format!("result type: {reason}")))?
        }
        None => emit.dtype(x)?,
    };
    let diagonal = call.int_attribute("k", 0);
    let is_on = |index: i64| index % columns.max(1) == (index / columns.max(1)).saturating_add(diagonal);
    let numbers: Vec<f64> = (0..rows * columns).map(|index| f64::from(u8::from(is_on(index)))).collect();
    Ok(vec![emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &extents), &numbers)?)?])
}
