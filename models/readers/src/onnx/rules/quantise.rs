//! Integers that stand for real numbers.

use super::contraction::product;
use super::window::convolve;
use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, BinaryOp, Clip, Dequantize, Op, QMatMul, Quantize, ReduceOp, Requantize, UnaryOp};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Scale and perhaps zero point, as a scalar or a vector along an axis of `x`, and that axis.
fn scales(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<(Vec<ValueId>, i64)> {
    if call.int("block_size", 0) != 0 {
        return unsupported("scales belong to blocks");
    }
    let extents = emit.extents(call.input(1)?)?;
    let is_one = extents.iter().all(|&extent| extent == 1);
    let mut axis = 0;
    if !is_one {
        axis = emit.axis(call.int("axis", 1), emit.rank(x)?)? as i64;
    }
    let mut found = Vec::new();
    for id in [Some(call.input(1)?), call.optional(2)].into_iter().flatten() {
        found.push(if is_one { emit.reshape(id, &[])? } else { id });
    }
    Ok((found, axis))
}

pub(super) fn quantize(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let to = match (call.optional(2), call.int("output_dtype", 0)) {
        (Some(zero), _) => emit.dtype(zero)?,
        (None, 0) => DType::U8,
        (None, code) => {
            let code = i32::try_from(code).unwrap_or(0);
            tensor::dtype(code).or_else(|reason| unsupported(format!("it quantises to a type whose {reason}")))?
        }
    };
    let (scales, axis) = scales(emit, call, x)?;
    let mut inputs = vec![emit.cast(x, emit.dtype(scales[0])?)?];
    inputs.extend(scales);
    Ok(vec![emit.push(Op::Quantize(Quantize { to, axis }), &inputs)?])
}

pub(super) fn dequantize(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let (scales, axis) = scales(emit, call, x)?;
    let mut inputs = vec![x];
    inputs.extend(scales);
    Ok(vec![emit.push(Op::Dequantize(Dequantize { axis }), &inputs)?])
}

/// Range of the data with zero inside, spread over eight bits.
pub(super) fn dynamic_quantize(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let all: Vec<usize> = (0..emit.rank(x)?).collect();
    let highest = super::reduce::over(emit, x, ReduceOp::Max, all.clone(), false)?;
    let lowest = super::reduce::over(emit, x, ReduceOp::Min, all, false)?;
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
    Ok(vec![y, scale, zero])
}

/// A zero point that is one number, if it is known.
fn zero(emit: &Emit<'_>, id: Option<ValueId>) -> Outcome<Option<i64>> {
    let Some(id) = id else { return Ok(Some(0)) };
    Ok(match emit.numbers(id)?.as_deref() {
        Some([first, rest @ ..]) if rest.iter().all(|number| number == first) => Some(*first as i64),
        _ => None,
    })
}

/// The integers less their zero point, in 32 bits; the zero point is one number or one per element of an axis.
fn centred(emit: &mut Emit<'_>, x: ValueId, zero: Option<ValueId>, axis: usize) -> Outcome<ValueId> {
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
    Ok(vec![conv_sums(emit, call, [0, 1], [2, 3])?])
}

/// Sums of a convolution of the inputs at these places, with zero points at those.
fn conv_sums(emit: &mut Emit<'_>, call: &Call<'_>, operands: [usize; 2], zeros: [usize; 2]) -> Outcome<ValueId> {
    let [x, w] = [call.input(operands[0])?, call.input(operands[1])?];
    let [x_zero, w_zero] = zeros.map(|index| call.optional(index));
    if let (Some(x_zero), Some(w_zero)) = (zero(emit, x_zero)?, zero(emit, w_zero)?) {
        return super::window::convolve_quantised(emit, call, [x, w], [x_zero, w_zero]);
    }
    let (x, w) = (centred(emit, x, x_zero, 1)?, centred(emit, w, w_zero, 0)?);
    convolve(emit, call, x, w)
}

pub(super) fn mat_mul_integer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![product_sums(emit, call, [0, 1], [2, 3])?])
}

fn product_sums(emit: &mut Emit<'_>, call: &Call<'_>, operands: [usize; 2], zeros: [usize; 2]) -> Outcome<ValueId> {
    let [a, b] = [call.input(operands[0])?, call.input(operands[1])?];
    let [a_zero, b_zero] = zeros.map(|index| call.optional(index));
    let (a_rank, b_rank) = (emit.rank(a)?, emit.rank(b)?);
    if let (Some(a_zero), Some(b_zero), 2.., 2..) = (zero(emit, a_zero)?, zero(emit, b_zero)?, a_rank, b_rank) {
        return emit.push(Op::QMatMul(QMatMul { a_zero, b_zero }), &[a, b]);
    }
    // A zero point that data decides is taken from the sums, as often as each column of the weight has it.
    if let (Some(a_zero), Some(b_zero), 2.., 2) = (a_zero, zero(emit, b_zero)?, a_rank, b_rank)
        && matches!(emit.extents(a_zero)?[..], [] | [1])
    {
        let sums = emit.push(Op::QMatMul(QMatMul { a_zero: 0, b_zero }), &[a, b])?;
        let weights = emit.cast(b, DType::I32)?;
        let weights = emit.binary_with(BinaryOp::Sub, weights, b_zero as f64)?;
        let of_columns = super::reduce::over(emit, weights, ReduceOp::Sum, vec![0], false)?;
        let a_zero = emit.reshape(a_zero, &[])?;
        let a_zero = emit.cast(a_zero, DType::I32)?;
        let beyond = emit.binary(BinaryOp::Mul, of_columns, a_zero)?;
        return emit.binary(BinaryOp::Sub, sums, beyond);
    }
    let a = centred(emit, a, a_zero, a_rank.saturating_sub(2))?;
    let b = centred(emit, b, b_zero, b_rank.saturating_sub(1))?;
    product(emit, a, b)
}

pub(super) fn linear_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let mut sums = conv_sums(emit, call, [0, 3], [2, 5])?;
    if let Some(bias) = call.optional(8) {
        sums = emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[sums, bias])?;
    }
    Ok(vec![requantised(emit, call, sums, [1, 4, 6, 7])?])
}

pub(super) fn linear_mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let sums = product_sums(emit, call, [0, 3], [2, 5])?;
    Ok(vec![requantised(emit, call, sums, [1, 4, 6, 7])?])
}

/// Sums times both scales over the scale of the result, whose zero point comes last.
fn requantised(emit: &mut Emit<'_>, call: &Call<'_>, sums: ValueId, places: [usize; 4]) -> Outcome<ValueId> {
    let [x_scale, w_scale, y_scale] = [0, 1, 2].map(|index| call.input(places[index]));
    let (x_scale, w_scale, y_scale, y_zero) = (x_scale?, w_scale?, y_scale?, call.input(places[3])?);
    let Some(zero) = zero(emit, Some(y_zero))? else { return unsupported("the zero point of the result is data") };
    let to = emit.dtype(y_zero)?;
    let mut wide = Vec::new();
    for scale in [x_scale, w_scale, y_scale] {
        let scale = emit.cast(scale, DType::F32)?;
        wide.push(match emit.extents(scale)?[..] {
            [1] => emit.reshape(scale, &[])?,
            _ => scale,
        });
    }
    let scale = emit.binary(BinaryOp::Mul, wide[0], wide[1])?;
    let multiplier = emit.binary(BinaryOp::Div, scale, wide[2])?;
    let axis = match emit.rank(multiplier)? {
        0 => 0,
        1 if emit.rank(sums)? > 1 => 1,
        _ => return malformed("a scale must be one number or one per channel"),
    };
    let (low, high) = crate::range(to);
    let op = Op::Requantize(Requantize { to, axis, zero, low: low as i64, high: high as i64 });
    emit.push(op, &[sums, multiplier])
}
