//! Quantisation and dequantisation, as in models quantised with PT2E or with fake quantisation.

use super::{Call, Memory, Outputs, RuleOutput, own_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, Dequantize, Op, Quantize, Reduce, ReduceOp, UnaryOp, Where};
use models::types::DType;

/// Smallest scale of a dynamically quantised row: the relative precision of 32-bit floats, as in PyTorch.
const LEAST_TOKEN_SCALE: f64 = f32::EPSILON as f64;

/// Scale and zero point: scalars, or vectors along `axis`.
struct Scales {
    scale: ValueId,
    zero: Option<ValueId>,
    axis: i64,
}

fn argument_name(call: &Call<'_, '_>, names: [&'static str; 2]) -> &'static str {
    if call.arguments.contains_key(names[0]) { names[0] } else { names[1] }
}

/// Returns the scales, with the zero point in the type of the quantised elements.
fn scales_of(call: &mut Call<'_, '_>, x: ValueId, quantised: DType) -> Outcome<Scales> {
    let (scale, zero) = (argument_name(call, ["scale", "scales"]), argument_name(call, ["zero_point", "zero_points"]));
    let mut found = vec![call.operand_as(scale, DType::F32)?];
    if call.has_argument(zero) {
        found.push(call.operand_as(zero, quantised)?);
    }
    for id in &mut found {
        if call.emit.extents(*id)?.iter().all(|&extent| extent == 1) {
            *id = call.emit.reshape(*id, &[])?;
        }
    }
    let is_scalar = call.emit.rank(found[0])? == 0;
    let axis = if is_scalar { 0 } else { call.axis_argument(x, "axis", 0)? as i64 };
    Ok(Scales { scale: found[0], zero: found.get(1).copied(), axis })
}

fn bounds_of(call: &Call<'_, '_>) -> Outcome<(f64, f64)> {
    let mut bounds = [0.0; 2];
    for (bound, name) in bounds.iter_mut().zip(["quant_min", "quant_max"]) {
        *bound = match call.arguments.get(name) {
            Some(super::Argument::Tensor(id)) => call.emit.require_number(*id, name)?,
            _ => call.float_argument(name, 0.0)?,
        };
    }
    Ok((bounds[0], bounds[1]))
}

/// Returns integers of type `to` within the bounds.
fn quantised(call: &mut Call<'_, '_>, x: ValueId, to: DType) -> Outcome<ValueId> {
    let Scales { scale, zero, axis } = scales_of(call, x, to)?;
    let (low, high) = bounds_of(call)?;
    let x = call.emit.cast(x, DType::F32)?;
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(zero).collect();
    let y = call.emit.push(Op::Quantize(Quantize { to, axis }), &inputs)?;
    match (low, high) == crate::finite_range(to) {
        true => Ok(y),
        false => call.emit.push(Op::Clip(Clip { low, high }), &[y]),
    }
}

pub(super) fn quantize(call: &mut Call<'_, '_>) -> Outputs {
    let (x, to) = (call.tensor_argument("input")?, call.result_dtype()?);
    if !matches!(to, DType::I8 | DType::U8 | DType::I16 | DType::U16) {
        return unsupported(format!("a quantisation to {to}"));
    }
    own_output(quantised(call, x, to)?)
}

pub(super) fn dequantize(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (call.tensor_argument("input")?, call.result_dtype()?);
    let quantised = call.emit.dtype(x)?;
    let Scales { scale, zero, axis } = scales_of(call, x, quantised)?;
    let inputs: Vec<ValueId> = [x, scale].into_iter().chain(zero).collect();
    let y = call.emit.push(Op::Dequantize(Dequantize { axis }), &inputs)?;
    own_output(call.emit.cast(y, dtype)?)
}

/// Emits the rounding to quantised numbers of models that are trained for quantisation.
pub(super) fn fake_quantize(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (call.tensor_argument("self")?, call.result_dtype()?);
    let (low, high) = bounds_of(call)?;
    let types = [DType::U8, DType::I8, DType::U16, DType::I16];
    let holds = |dtype: &DType| {
        let (least, most) = crate::finite_range(*dtype);
        least <= low && high <= most
    };
    let Some(to) = types.into_iter().find(holds) else {
        return unsupported(format!("a quantisation to the range from {low} to {high}"));
    };
    let integers = quantised(call, x, to)?;
    let Scales { scale, zero, axis } = scales_of(call, x, to)?;
    let inputs: Vec<ValueId> = [integers, scale].into_iter().chain(zero).collect();
    let y = call.emit.push(Op::Dequantize(Dequantize { axis }), &inputs)?;
    own_output(call.emit.cast(y, dtype)?)
}

/// Returns `(x - zero) · scale` with scales that broadcast to `x`.
fn scaled(emit: &mut Emit<'_>, x: ValueId, scale: ValueId, zero: Option<ValueId>) -> Outcome<ValueId> {
    let mut x = emit.cast(x, DType::F32)?;
    if let Some(zero) = zero {
        x = emit.binary(BinaryOp::Sub, x, zero)?;
    }
    emit.binary(BinaryOp::Mul, x, scale)
}

fn broadcast_scales(call: &mut Call<'_, '_>) -> Outcome<(ValueId, Option<ValueId>)> {
    let (scale, zero) = (argument_name(call, ["scale", "scales"]), argument_name(call, ["zero_point", "zero_points"]));
    let zero = if call.has_argument(zero) { Some(call.operand_as(zero, DType::F32)?) } else { None };
    Ok((call.operand_as(scale, DType::F32)?, zero))
}

/// Emits a quantisation with a scale for each row.
pub(super) fn quantize_token(call: &mut Call<'_, '_>) -> Outputs {
    let (x, to) = (call.operand_as("input", DType::F32)?, call.result_dtype()?);
    let ((scale, zero), (low, high)) = (broadcast_scales(call)?, bounds_of(call)?);
    let emit = &mut *call.emit;
    let factor = emit.unary(UnaryOp::Reciprocal, scale)?;
    let mut steps = emit.binary(BinaryOp::Mul, x, factor)?;
    if let Some(zero) = zero {
        steps = emit.binary(BinaryOp::Add, steps, zero)?;
    }
    let whole = emit.unary(UnaryOp::Round, steps)?;
    let bounded = emit.push(Op::Clip(Clip { low, high }), &[whole])?;
    own_output(emit.cast(bounded, to)?)
}

pub(super) fn dequantize_token(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (call.tensor_argument("input")?, call.result_dtype()?);
    let (scale, zero) = broadcast_scales(call)?;
    let y = scaled(call.emit, x, scale, zero)?;
    own_output(call.emit.cast(y, dtype)?)
}

/// Emits a dequantisation of a matrix with a scale for each group of neighbours in a row.
pub(super) fn dequantize_groups(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (call.tensor_argument("w_int8").or_else(|_| call.tensor_argument("input"))?, call.result_dtype()?);
    let (scale, zero) = broadcast_scales(call)?;
    let emit = &mut *call.emit;
    let extents = emit.extents(x)?;
    let groups: i64 = emit.extents(scale)?.iter().product();
    let count: i64 = extents.iter().product();
    if groups < 1 || count % groups != 0 {
        return malformed(format!("{groups} scales for a matrix of {count} elements"));
    }
    let x = emit.reshape(x, &[groups, count / groups])?;
    let scale = emit.reshape(scale, &[groups, 1])?;
    let zero = zero.map(|zero| emit.reshape(zero, &[groups, 1])).transpose()?;
    let y = scaled(emit, x, scale, zero)?;
    let y = emit.reshape(y, &extents)?;
    own_output(emit.cast(y, dtype)?)
}

pub(super) fn convert(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    own_output(call.operand_as("input", dtype)?)
}

/// Returns the least and the largest element, over all dimensions or in each row; zero is always in the range.
fn range_of(emit: &mut Emit<'_>, x: ValueId, axes: &[i64]) -> Outcome<[ValueId; 2]> {
    let zero = emit.add_scalar(DType::F32, 0.0)?;
    let mut end = |reduced: ReduceOp, function: BinaryOp| -> Outcome<ValueId> {
        let end = Op::Reduce(Reduce { function: reduced, axes: axes.to_vec(), keep: true });
        let end = emit.push(end, &[x])?;
        emit.binary(function, end, zero)
    };
    Ok([end(ReduceOp::Min, BinaryOp::Min)?, end(ReduceOp::Max, BinaryOp::Max)?])
}

/// Converts scale and zero point to the types and shapes that the file states.
fn chosen(call: &mut Call<'_, '_>, made: [ValueId; 2]) -> Outputs {
    let mut outputs = Vec::new();
    for (index, id) in made.into_iter().enumerate() {
        let Some(Some(ty)) = call.stated.get(index).cloned() else {
            return malformed("the file does not state the types of scale and zero point");
        };
        let mut id = call.emit.cast(id, ty.dtype)?;
        if ty.rank() == 1 {
            id = call.emit.reshape(id, &[1])?;
        }
        outputs.push(RuleOutput { id, window: Memory::Own });
    }
    Ok(outputs)
}

/// Emits the scale and the zero point of a tensor that is quantised at run time.
pub(super) fn choose_scale(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.operand_as("input", DType::F32)?;
    let ((low, high), least) = (bounds_of_range(call)?, call.float_argument("eps", 0.0)?);
    let emit = &mut *call.emit;
    let axes: Vec<i64> = (0..emit.rank(x)? as i64).collect();
    let [from, to] = range_of(emit, x, &axes)?;
    let width = emit.binary(BinaryOp::Sub, to, from)?;
    let scale = emit.binary_with(BinaryOp::Div, width, high - low)?;
    let scale = emit.binary_with(BinaryOp::Max, scale, least)?;
    let steps = emit.binary(BinaryOp::Div, from, scale)?;
    let steps = emit.unary(UnaryOp::Round, steps)?;
    let lowest = emit.add_scalar(DType::F32, low)?;
    let zero = emit.binary(BinaryOp::Sub, lowest, steps)?;
    let zero = emit.push(Op::Clip(Clip { low, high }), &[zero])?;
    chosen(call, [scale, zero])
}

fn bounds_of_range(call: &Call<'_, '_>) -> Outcome<(f64, f64)> {
    let (low, high) = bounds_of(call)?;
    if low < high { Ok((low, high)) } else { malformed(format!("the range from {low} to {high} is empty")) }
}

/// Emits a scale and a zero point for each row; the zero point is computed from the end with the larger error.
pub(super) fn choose_token_scale(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.operand_as("input", DType::F32)?;
    let (low, high) = (-128.0, 127.0);
    let emit = &mut *call.emit;
    let [from, to] = range_of(emit, x, &[-1])?;
    let width = emit.binary(BinaryOp::Sub, to, from)?;
    let scale = emit.binary_with(BinaryOp::Div, width, high - low)?;
    let scale = emit.binary_with(BinaryOp::Max, scale, LEAST_TOKEN_SCALE)?;
    let (from, to) = (emit.binary(BinaryOp::Div, from, scale)?, emit.binary(BinaryOp::Div, to, scale)?);
    let errors = emit.binary(BinaryOp::Add, from, to)?;
    let bound = emit.add_scalar(DType::F32, -(low + high))?;
    let is_from = emit.compare(CompareOp::Greater, errors, bound)?;
    let (lowest, highest) = (emit.add_scalar(DType::F32, low)?, emit.add_scalar(DType::F32, high)?);
    let (from, to) = (emit.binary(BinaryOp::Sub, lowest, from)?, emit.binary(BinaryOp::Sub, highest, to)?);
    let zero = emit.push(Op::Where(Where {}), &[is_from, from, to])?;
    let zero = emit.push(Op::Clip(Clip { low, high }), &[zero])?;
    let zero = emit.unary(UnaryOp::Round, zero)?;
    chosen(call, [scale, zero])
}
