//! Operators on quantised integers, with a scale and a zero point for each operand.

use crate::onnx::call::Call;
use crate::onnx::rules::{normalise, quantise, window};
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BiasAdd, BinaryOp, GlobalPool, Op, PoolMode, QDense, UnaryOp, Where};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

fn dequantise_operand(emit: &mut Emit<'_>, call: &Call<'_>, place: usize) -> Outcome<ValueId> {
    quantise::dequantise_scalar(emit, call.input(place)?, call.input(place + 1)?, call.optional_input(place + 2))
}

/// Quantises to the element type of input `like`; input `place` is the scale, and the next input the zero point.
fn quantise_result(emit: &mut Emit<'_>, call: &Call<'_>, y: ValueId, place: usize, like: usize) -> Outputs {
    let to = emit.dtype(call.input(like)?)?;
    Ok(vec![quantise::quantise_scalar(emit, y, call.input(place)?, call.optional_input(place + 1), to)?])
}

pub(super) fn add(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    binary(emit, call, BinaryOp::Add)
}

pub(super) fn mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    binary(emit, call, BinaryOp::Mul)
}

fn binary(emit: &mut Emit<'_>, call: &Call<'_>, function: BinaryOp) -> Outputs {
    let (a, b) = (dequantise_operand(emit, call, 0)?, dequantise_operand(emit, call, 3)?);
    let y = emit.binary(function, a, b)?;
    quantise_result(emit, call, y, 6, 0)
}

pub(super) fn select_where(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (yes, no) = (dequantise_operand(emit, call, 1)?, dequantise_operand(emit, call, 4)?);
    let y = emit.push(Op::Where(Where {}), &[call.input(0)?, yes, no])?;
    quantise_result(emit, call, y, 7, 1)
}

/// Concatenates; inputs: `scale, zero point` of the result, then `data, scale, zero point` of each part.
pub(super) fn concat(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (scale, zero) = (call.input(0)?, call.optional_input(1));
    let count = call.inputs.len().saturating_sub(2) / 3;
    let mut parts = Vec::new();
    for index in 0..count {
        let place = 2 + 3 * index;
        let x = call.input(place)?;
        let is_same = known_equal(emit, Some(scale), call.optional_input(place + 1))?
            && known_equal(emit, zero, call.optional_input(place + 2))?;
        parts.push(if is_same {
            x
        } else {
            let x = dequantise_operand(emit, call, place)?;
            quantise::quantise_scalar(emit, x, scale, zero, emit.dtype(call.input(place)?)?)?
        });
    }
    let Some(&first) = parts.first() else { return malformed("there are no tensors to concatenate") };
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), emit.rank(first)?)?;
    Ok(vec![emit.concat_parts(&parts, axis)?])
}

fn known_equal(emit: &Emit<'_>, a: Option<ValueId>, b: Option<ValueId>) -> Outcome<bool> {
    let (Some(a), Some(b)) = (a, b) else { return Ok(a == b) };
    let (a, b) = (emit.known_numbers(a)?, emit.known_numbers(b)?);
    Ok(a.is_some() && a == b)
}

pub(super) fn average_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    quantised_pool(emit, call, |emit, x| window::pool_of(emit, call, x, PoolMode::Average))
}

pub(super) fn global_average_pool(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    quantised_pool(emit, call, |emit, x| emit.push(Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[x]))
}

fn quantised_pool(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    pool: impl Fn(&mut Emit<'_>, ValueId) -> Outcome<ValueId>,
) -> Outputs {
    let is_last = call.flag_attribute("channels_last");
    let mut x = dequantise_operand(emit, call, 0)?;
    if is_last {
        x = window::channels_first(emit, x)?;
    }
    let mut y = pool(emit, x)?;
    if is_last {
        y = window::channels_last(emit, y)?;
    }
    quantise_result(emit, call, y, 3, 0)
}

pub(super) fn sigmoid(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    unary(emit, call, UnaryOp::Sigmoid)
}

pub(super) fn leaky_relu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    unary(emit, call, UnaryOp::LeakyRelu { alpha: call.float_attribute("alpha", 0.01) })
}

fn unary(emit: &mut Emit<'_>, call: &Call<'_>, function: UnaryOp) -> Outputs {
    let x = dequantise_operand(emit, call, 0)?;
    let y = emit.unary(function, x)?;
    quantise_result(emit, call, y, 3, 0)
}

/// Emits a quantised softmax; the attribute `opset` gives the version of the ONNX operator that defines it.
pub(super) fn softmax(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = dequantise_operand(emit, call, 0)?;
    let opset = call.int_attribute("opset", 13);
    let axis = call.int_attribute("axis", if opset < 13 { 1 } else { -1 });
    let y = normalise::softmax_of_opset(emit, x, axis, opset, false)?;
    quantise_result(emit, call, y, 3, 0)
}

pub(super) fn quantised_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let is_last = call.flag_attribute("channels_last");
    let mut x = call.input(0)?;
    if is_last {
        x = window::channels_first(emit, x)?;
    }
    let mut y = quantise::linear_conv_of(emit, call, x)?;
    if is_last {
        y = window::channels_last(emit, y)?;
    }
    Ok(vec![y])
}

/// Emits `QGemm`; inputs: `A, scale, zero, B, scale, zero, C, result scale, zero`. `C` has the scale of the sums. The
/// result is real if the result scale is omitted.
pub(super) fn quantised_gemm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (mut a, mut b) = (call.input(0)?, call.input(3)?);
    if emit.rank(a)? != 2 || emit.rank(b)? != 2 {
        return malformed(format!("the operands {} and {} must be matrices", emit.ty(a)?, emit.ty(b)?));
    }
    if call.flag_attribute("transA") {
        a = emit.transpose(a, &[1, 0])?;
    }
    let (a_zero, b_zero) = (call.optional_input(2), call.optional_input(5));
    let numbers = (quantise::known_zero(emit, a_zero)?, quantise::known_zero(emit, b_zero)?);
    let mut sums = match (numbers, call.flag_attribute("transB")) {
        ((Some(x_zero), Some(w_zero)), true) => emit.push(Op::QDense(QDense { x_zero, w_zero }), &[a, b])?,
        (_, is_turned) => {
            if is_turned {
                b = emit.transpose(b, &[1, 0])?;
            }
            quantise::product_sums(emit, [a, b], [a_zero, b_zero])?
        }
    };
    if let Some(c) = call.optional_input(6) {
        let columns = emit.extents(sums)?[1];
        sums = match emit.extents(c)?[..] {
            [n] | [1, n] if n == columns => {
                let bias = emit.reshape(c, &[n])?;
                emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[sums, bias])?
            }
            _ => emit.binary(BinaryOp::Add, sums, c)?,
        };
    }
    let mut scales = [call.input(1)?, call.input(4)?];
    let alpha = call.float_attribute("alpha", 1.0);
    if alpha != 1.0 {
        scales[0] = emit.binary_with(BinaryOp::Mul, scales[0], alpha)?;
    }
    if let Some(y_scale) = call.optional_input(7) {
        let y_zero = match call.optional_input(8) {
            Some(zero) => zero,
            None => emit.add_scalar(emit.dtype(call.input(0)?)?, 0.0)?,
        };
        return Ok(vec![quantise::requantise_sums(emit, sums, [scales[0], scales[1], y_scale], y_zero, 1)?]);
    }
    Ok(vec![quantise::scale_sums(emit, sums, scales, DType::F32)?])
}
