//! Quantisation, dequantisation and arithmetic on quantised integers.

use super::contraction::numpy_product;
use super::narrow;
use super::window::{convolve_in_groups, convolve_operands, convolve_quantised};
use crate::narrow::Narrow;
use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    BiasAdd, BinaryOp, Clip, Dequantize, Expand, Op, QMatMul, Quantize, ReduceOp, Requantize, UnaryOp,
};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

fn scalar_of_one(emit: &mut Emit<'_>, id: ValueId) -> Outcome<ValueId> {
    let is_one = emit.extents(id)?.iter().all(|&extent| extent == 1);
    if is_one { emit.reshape(id, &[]) } else { Ok(id) }
}

/// Returns a scale or zero point, repeated over blocks and shaped to broadcast to `x`.
fn broadcast_scales(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId, id: ValueId) -> Outcome<ValueId> {
    let (extents, own) = (emit.extents(x)?, emit.extents(id)?);
    let block = call.int_attribute("block_size", 0);
    if own.iter().all(|&extent| extent == 1) && own.len() <= 1 {
        return emit.reshape(id, &[]);
    }
    let axis = emit.resolve_axis(call.int_attribute("axis", 1), extents.len())?;
    if block == 0 {
        let [count] = own[..] else { return malformed(format!("{} is not the type of a scale", emit.ty(id)?)) };
        let mut shape = vec![1; extents.len()];
        shape[axis] = count;
        return emit.reshape(id, &shape);
    }
    let fits = |(index, (&extent, &count)): (usize, (&i64, &i64))| match index == axis {
        true => block > 0 && count == extent / block + i64::from(extent % block != 0),
        false => extent == count,
    };
    if own.len() != extents.len() || !extents.iter().zip(&own).enumerate().all(fits) {
        return malformed(format!(
            "scales {} do not match blocks of {block} elements of {}",
            emit.ty(id)?,
            emit.ty(x)?
        ));
    }
    let (mut column, mut wide, mut flat) = (own.clone(), own.clone(), own.clone());
    column.insert(axis + 1, 1);
    wide.insert(axis + 1, block);
    flat[axis] = own[axis].saturating_mul(block);
    let repeated = emit.reshape(id, &column)?;
    let repeated = emit.push(Op::Expand(Expand { shape: wide }), &[repeated])?;
    let repeated = emit.reshape(repeated, &flat)?;
    emit.slice(repeated, axis, 0, extents[axis])
}

/// Returns the scale and the zero point, if any, as scalars or vectors along an axis of `x`, and that axis.
fn quantisation_scales(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<(Vec<ValueId>, i64)> {
    let is_one = emit.extents(call.input(1)?)?.iter().all(|&extent| extent == 1);
    let mut axis = 0;
    if !is_one {
        axis = emit.resolve_axis(call.int_attribute("axis", 1), emit.rank(x)?)? as i64;
    }
    let mut found = Vec::new();
    for id in [Some(call.input(1)?), call.optional_input(2)].into_iter().flatten() {
        found.push(scalar_of_one(emit, id)?);
    }
    Ok((found, axis))
}

pub(super) fn quantize_linear(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let code = i32::try_from(call.int_attribute("output_dtype", 0)).unwrap_or(0);
    let to = match (call.optional_input(2), code) {
        (Some(zero), _) => emit.dtype(zero)?,
        (None, 0) => DType::U8,
        (None, code) => tensor::dtype_of_code(code).or_else(|reason| unsupported(format!("target type: {reason}")))?,
    };
    let narrow = match call.optional_input(2) {
        Some(zero) => emit.narrow_range(zero),
        None => tensor::narrow_type(code),
    };
    if call.int_attribute("block_size", 0) == 0 && narrow.is_none() {
        let (scales, axis) = quantisation_scales(emit, call, x)?;
        let mut inputs = vec![emit.cast(x, emit.dtype(scales[0])?)?];
        inputs.extend(scales);
        return Ok(vec![emit.push(Op::Quantize(Quantize { to, axis }), &inputs)?]);
    }
    let scale = broadcast_scales(emit, call, x, call.input(1)?)?;
    let dtype = emit.dtype(scale)?;
    let x = emit.cast(x, dtype)?;
    let steps = emit.binary(BinaryOp::Div, x, scale)?;
    if matches!(narrow, Some(Narrow::Float(_))) {
        // The zero point of narrow floats is always zero.
        return Ok(vec![narrow::cast_narrow(emit, call, steps, to, narrow)?]);
    }
    let mut whole = emit.unary(UnaryOp::Round, steps)?;
    if let Some(zero) = call.optional_input(2) {
        let zero = broadcast_scales(emit, call, x, zero)?;
        let zero = emit.cast(zero, dtype)?;
        whole = emit.binary(BinaryOp::Add, whole, zero)?;
    }
    let (low, high) = match narrow {
        Some(Narrow::Whole { low, high }) => (low as f64, high as f64),
        _ => crate::finite_range(to),
    };
    let bounded = emit.push(Op::Clip(Clip { low, high }), &[whole])?;
    let y = emit.cast(bounded, to)?;
    if let Some(narrow) = narrow {
        emit.set_narrow(y, narrow);
    }
    Ok(vec![y])
}

pub(super) fn dequantize_linear(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let has_operator = matches!(emit.dtype(x)?, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32);
    let y = if call.int_attribute("block_size", 0) == 0 && has_operator {
        let (scales, axis) = quantisation_scales(emit, call, x)?;
        let mut inputs = vec![x];
        inputs.extend(scales);
        emit.push(Op::Dequantize(Dequantize { axis }), &inputs)?
    } else {
        let scale = broadcast_scales(emit, call, x, call.input(1)?)?;
        let dtype = emit.dtype(scale)?;
        let mut real = emit.cast(x, dtype)?;
        if let Some(zero) = call.optional_input(2) {
            let zero = broadcast_scales(emit, call, x, zero)?;
            let zero = emit.cast(zero, dtype)?;
            real = emit.binary(BinaryOp::Sub, real, zero)?;
        }
        emit.binary(BinaryOp::Mul, real, scale)?
    };
    match i32::try_from(call.int_attribute("output_dtype", 0)).unwrap_or(0) {
        0 => Ok(vec![y]),
        code => {
            let to = tensor::dtype_of_code(code).or_else(|reason| unsupported(format!("result type: {reason}")))?;
            Ok(vec![emit.cast(y, to)?])
        }
    }
}

pub(super) fn dequantise_scalar(
    emit: &mut Emit<'_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
) -> Outcome<ValueId> {
    real_along(emit, x, scale, zero, 0)
}

pub(super) fn real_along(
    emit: &mut Emit<'_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
    axis: i64,
) -> Outcome<ValueId> {
    let mut inputs = vec![x, scalar_of_one(emit, scale)?];
    if let Some(zero) = zero {
        inputs.push(scalar_of_one(emit, zero)?);
    }
    let axis = if emit.rank(inputs[1])? == 0 { 0 } else { axis };
    emit.push(Op::Dequantize(Dequantize { axis }), &inputs)
}

pub(super) fn quantise_scalar(
    emit: &mut Emit<'_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
    to: DType,
) -> Outcome<ValueId> {
    let mut inputs = vec![x, scalar_of_one(emit, scale)?];
    if let Some(zero) = zero {
        inputs.push(scalar_of_one(emit, zero)?);
    }
    emit.push(Op::Quantize(Quantize { to, axis: 0 }), &inputs)
}

pub(super) fn dynamic_quantize(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(quantise_dynamic(emit, call.input(0)?)?.to_vec())
}

/// Quantises to 8 bits over the data's range, extended to include zero; returns result, scale and zero point.
pub(super) fn quantise_dynamic(emit: &mut Emit<'_>, x: ValueId) -> Outcome<[ValueId; 3]> {
    let all: Vec<usize> = (0..emit.rank(x)?).collect();
    let highest = super::reduce::reduce_over(emit, x, ReduceOp::Max, all.clone(), false)?;
    let lowest = super::reduce::reduce_over(emit, x, ReduceOp::Min, all, false)?;
    let highest = emit.binary_with(BinaryOp::Max, highest, 0.0)?;
    let lowest = emit.binary_with(BinaryOp::Min, lowest, 0.0)?;
    let spread = emit.binary(BinaryOp::Sub, highest, lowest)?;
    let scale = emit.binary_with(BinaryOp::Div, spread, 255.0)?;
    let steps = emit.binary(BinaryOp::Div, lowest, scale)?;
    let zero = emit.unary(UnaryOp::Neg, steps)?;
    let zero = emit.push(Op::Clip(Clip { low: 0.0, high: 255.0 }), &[zero])?;
    let zero = emit.unary(UnaryOp::Round, zero)?;
    let zero = emit.cast(zero, DType::U8)?;
    let y = emit.push(Op::Quantize(Quantize { to: DType::U8, axis: 0 }), &[x, scale, zero])?;
    Ok([y, scale, zero])
}

/// Returns a zero point that is constant and equal for all channels, else None. An omitted zero point counts as 0.
pub(super) fn known_zero(emit: &Emit<'_>, id: Option<ValueId>) -> Outcome<Option<i64>> {
    let Some(id) = id else { return Ok(Some(0)) };
    Ok(match emit.known_numbers(id)?.as_deref() {
        Some([first, rest @ ..]) if rest.iter().all(|number| number == first) => Some(*first as i64),
        _ => None,
    })
}

/// Subtracts the zero point in 32-bit integers; there is one zero point, or one per index of an axis.
fn subtract_zero(emit: &mut Emit<'_>, x: ValueId, zero: Option<ValueId>, axis: usize) -> Outcome<ValueId> {
    let x = emit.cast(x, DType::I32)?;
    let Some(zero) = zero else { return Ok(x) };
    let zero = emit.cast(zero, DType::I32)?;
    let (extents, rank) = (emit.extents(zero)?, emit.rank(x)?);
    let zero = match extents[..] {
        [count] if count > 1 => {
            let mut shape = vec![1; rank];
            shape[axis] = count;
            emit.reshape(zero, &shape)?
        }
        [_] => emit.reshape(zero, &[])?,
        _ => zero,
    };
    emit.binary(BinaryOp::Sub, x, zero)
}

pub(super) fn conv_integer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let operands = [call.input(0)?, call.input(1)?];
    Ok(vec![conv_sums(emit, call, operands, [call.optional_input(2), call.optional_input(3)])?])
}

fn conv_sums(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    [x, w]: [ValueId; 2],
    [x_zero, w_zero]: [Option<ValueId>; 2],
) -> Outcome<ValueId> {
    let (numbers, are_bytes) = ((known_zero(emit, x_zero)?, known_zero(emit, w_zero)?), are_bytes(emit, [x, w])?);
    if let (Some(x_zero), Some(w_zero), true) = (numbers.0, numbers.1, are_bytes) {
        return convolve_quantised(emit, call, [x, w], [x_zero, w_zero]);
    }
    if let (Some(x_zero), Some(w_zero), true) = (x_zero, numbers.1, are_bytes)
        && matches!(emit.extents(x_zero)?[..], [] | [1])
    {
        return convolve_less_zero(emit, call, [x, w], (x_zero, w_zero));
    }
    let (x, w) = (subtract_zero(emit, x, x_zero, 1)?, subtract_zero(emit, w, w_zero, 0)?);
    convolve_operands(emit, call, x, w)
}

/// Convolves with a zero point computed at run time: subtracts it times the sum of the weights that are not on padding.
fn convolve_less_zero(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    [x, w]: [ValueId; 2],
    (x_zero, w_zero): (ValueId, i64),
) -> Outcome<ValueId> {
    let sums = convolve_quantised(emit, call, [x, w], [0, w_zero])?;
    let weights = weight_sums(emit, w, w_zero, 1, true)?;
    let mut extents = emit.extents(x)?;
    extents.iter_mut().take(2).for_each(|extent| *extent = 1);
    let ones = emit.add_filled(DType::I32, &extents, 1.0)?;
    let of_places = convolve_in_groups(emit, call, [ones, weights], 1)?;
    subtract_zero_sums(emit, sums, of_places, x_zero)
}

fn weight_sums(emit: &mut Emit<'_>, w: ValueId, zero: i64, axis: usize, keeps_axis: bool) -> Outcome<ValueId> {
    let weights = emit.cast(w, DType::I32)?;
    let weights = emit.binary_with(BinaryOp::Sub, weights, zero as f64)?;
    super::reduce::reduce_over(emit, weights, ReduceOp::Sum, vec![axis], keeps_axis)
}

/// Subtracts from sums of products the part of the data's zero point, a scalar that is computed at run time.
fn subtract_zero_sums(emit: &mut Emit<'_>, sums: ValueId, weight_sums: ValueId, zero: ValueId) -> Outcome<ValueId> {
    let zero = emit.reshape(zero, &[])?;
    let zero = emit.cast(zero, DType::I32)?;
    let share = emit.binary(BinaryOp::Mul, weight_sums, zero)?;
    emit.binary(BinaryOp::Sub, sums, share)
}

fn are_bytes(emit: &Emit<'_>, operands: [ValueId; 2]) -> Outcome<bool> {
    let types = [emit.dtype(operands[0])?, emit.dtype(operands[1])?];
    Ok(types.iter().all(|dtype| matches!(dtype, DType::I8 | DType::U8)))
}

pub(super) fn mat_mul_integer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let operands = [call.input(0)?, call.input(1)?];
    Ok(vec![product_sums(emit, operands, [call.optional_input(2), call.optional_input(3)])?])
}

pub(super) fn product_sums(
    emit: &mut Emit<'_>,
    [a, b]: [ValueId; 2],
    [a_zero, b_zero]: [Option<ValueId>; 2],
) -> Outcome<ValueId> {
    let (a_rank, b_rank) = (emit.rank(a)?, emit.rank(b)?);
    let numbers = (known_zero(emit, a_zero)?, known_zero(emit, b_zero)?);
    let are_bytes = are_bytes(emit, [a, b])?;
    if let ((Some(a_zero), Some(b_zero)), 2.., 2.., true) = (numbers, a_rank, b_rank, are_bytes) {
        return emit.push(Op::QMatMul(QMatMul { a_zero, b_zero }), &[a, b]);
    }
    // A zero point that is computed at run time is subtracted after the product, which stays a product of bytes.
    if let (Some(a_zero), Some(b_zero), 2.., 2, true) = (a_zero, numbers.1, a_rank, b_rank, are_bytes)
        && matches!(emit.extents(a_zero)?[..], [] | [1])
    {
        let sums = emit.push(Op::QMatMul(QMatMul { a_zero: 0, b_zero }), &[a, b])?;
        let of_columns = weight_sums(emit, b, b_zero, 0, false)?;
        return subtract_zero_sums(emit, sums, of_columns, a_zero);
    }
    let a = subtract_zero(emit, a, a_zero, a_rank.saturating_sub(2))?;
    let b = subtract_zero(emit, b, b_zero, b_rank.saturating_sub(1))?;
    numpy_product(emit, a, b)
}

pub(super) fn linear_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![linear_conv_of(emit, call, call.input(0)?)?])
}

pub(super) fn linear_conv_of(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<ValueId> {
    let mut sums = conv_sums(emit, call, [x, call.input(3)?], [call.optional_input(2), call.optional_input(5)])?;
    if let Some(bias) = call.optional_input(8) {
        let bias = emit.cast(bias, DType::I32)?;
        sums = emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[sums, bias])?;
    }
    let scales = [call.input(1)?, call.input(4)?, call.input(6)?];
    requantise_sums(emit, sums, scales, call.input(7)?, 1)
}

pub(super) fn linear_mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let operands = [call.input(0)?, call.input(3)?];
    let sums = product_sums(emit, operands, [call.optional_input(2), call.optional_input(5)])?;
    let scales = [call.input(1)?, call.input(4)?, call.input(6)?];
    let last = (emit.rank(sums)? as i64 - 1).max(0);
    Ok(vec![requantise_sums(emit, sums, scales, call.input(7)?, last)?])
}

/// Multiplies sums by `x_scale · w_scale / y_scale` and quantises; scales are scalars or vectors along an axis.
pub(super) fn requantise_sums(
    emit: &mut Emit<'_>,
    sums: ValueId,
    [x_scale, w_scale, y_scale]: [ValueId; 3],
    y_zero: ValueId,
    axis: i64,
) -> Outcome<ValueId> {
    let Some(zero) = known_zero(emit, Some(y_zero))? else {
        return unsupported("a zero point of the result that is computed at run time");
    };
    let to = emit.dtype(y_zero)?;
    let mut wide = Vec::new();
    for scale in [x_scale, w_scale, y_scale] {
        let scale = emit.cast(scale, DType::F32)?;
        wide.push(scalar_of_one(emit, scale)?);
    }
    let scale = emit.binary(BinaryOp::Mul, wide[0], wide[1])?;
    let multiplier = emit.binary(BinaryOp::Div, scale, wide[2])?;
    let axis = match emit.rank(multiplier)? {
        0 => 0,
        1 if emit.rank(sums)? > 1 => axis,
        _ => return malformed("a scale must be one number or one per channel"),
    };
    let (low, high) = crate::finite_range(to);
    let op = Op::Requantize(Requantize { to, axis, zero, low: low as i64, high: high as i64 });
    emit.push(op, &[sums, multiplier])
}

/// Converts integer sums to real numbers; each scale is one number, or one per column.
pub(super) fn scale_sums(emit: &mut Emit<'_>, sums: ValueId, scales: [ValueId; 2], to: DType) -> Outcome<ValueId> {
    let [a, b] = scales;
    let (a, b) = (scalar_of_one(emit, a)?, scalar_of_one(emit, b)?);
    let scale = emit.binary(BinaryOp::Mul, a, b)?;
    let sums = emit.cast(sums, to)?;
    emit.binary(BinaryOp::Mul, sums, scale)
}
