//! Import rules of pointwise functions.

use super::narrow;
use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, Op, PRelu, UnaryOp};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

macro_rules! unary {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
            Ok(vec![emit.unary(UnaryOp::$function, call.input(0)?)?])
        })*
    };
}

unary! {
    relu => Relu,
    sigmoid => Sigmoid,
    tanh => Tanh,
    hard_swish => HardSwish,
    exp => Exp,
    log => Log,
    sqrt => Sqrt,
    neg => Neg,
    abs => Abs,
    sin => Sin,
    cos => Cos,
    tan => Tan,
    asin => Asin,
    acos => Acos,
    atan => Atan,
    sinh => Sinh,
    cosh => Cosh,
    asinh => Asinh,
    acosh => Acosh,
    atanh => Atanh,
    erf => Erf,
    reciprocal => Reciprocal,
    floor => Floor,
    ceil => Ceil,
    round => Round,
    sign => Sign,
    softplus => Softplus,
    softsign => Softsign,
    mish => Mish,
}

macro_rules! binary {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
            binary(emit, call, BinaryOp::$function)
        })*
    };
}

binary! {
    add => Add,
    sub => Sub,
    mul => Mul,
    div => Div,
}

fn binary(emit: &mut Emit<'_>, call: &Call<'_>, function: BinaryOp) -> Outputs {
    let (a, b) = operands(emit, call)?;
    Ok(vec![emit.binary(function, a, b)?])
}

/// Returns both operands of a binary operator. Before version 7, an attribute gave the axis of the second one.
pub(super) fn operands(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<(ValueId, ValueId)> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let Some(axis) = call.optional_int("axis").filter(|_| call.opset < 7) else { return Ok((a, b)) };
    let axis = emit.resolve_axis(axis, emit.rank(a)?)?;
    let mut extents = emit.extents(b)?;
    extents.resize(extents.len().max(emit.rank(a)? - axis), 1);
    Ok((a, emit.reshape(b, &extents)?))
}

pub(super) fn max_inputs(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![chain_binary(emit, call, BinaryOp::Max)?])
}

pub(super) fn min_inputs(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![chain_binary(emit, call, BinaryOp::Min)?])
}

pub(super) fn sum_all_inputs(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![chain_binary(emit, call, BinaryOp::Add)?])
}

pub(super) fn mean_inputs(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let sum = chain_binary(emit, call, BinaryOp::Add)?;
    Ok(vec![emit.binary_with(BinaryOp::Div, sum, call.inputs.len() as f64)?])
}

fn chain_binary(emit: &mut Emit<'_>, call: &Call<'_>, function: BinaryOp) -> Outcome<ValueId> {
    let inputs = call.all_inputs()?;
    inputs[1..].iter().try_fold(inputs[0], |sum, &next| emit.binary(function, sum, next))
}

pub(super) fn identity(_: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![call.input(0)?])
}

pub(super) fn dropout(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    if let Some(training) = call.optional_input(2)
        && emit.require_number(training, "training_mode")? != 0.0
    {
        let ratio = call.optional_input(1).map_or(Ok(0.5), |ratio| emit.require_number(ratio, "ratio"))?;
        if ratio != 0.0 {
            return malformed("dropout in training mode; export the model for inference");
        }
    }
    let mask = emit.add_filled(DType::Bool, &emit.extents(x)?, 1.0)?;
    Ok(vec![x, mask])
}

pub(super) fn cast(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let code = i32::try_from(call.int_attribute("to", 0)).unwrap_or(0);
    let to = tensor::dtype_of_code(code).or_else(|reason| crate::unsupported(format!("target type: {reason}")))?;
    Ok(vec![narrow::cast_narrow(emit, call, x, to, tensor::narrow_type(code))?])
}

pub(super) fn cast_like(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let like = call.input(1)?;
    Ok(vec![narrow::cast_narrow(emit, call, call.input(0)?, emit.dtype(like)?, emit.narrow_range(like))?])
}

pub(super) fn leaky_relu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::LeakyRelu { alpha: call.float_attribute("alpha", 0.01) }, call.input(0)?)?])
}

pub(super) fn hard_sigmoid(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (slope, offset) = (call.float_attribute("alpha", 0.2), call.float_attribute("beta", 0.5));
    let is_usual = offset == 0.5 && (slope - 1.0 / 6.0).abs() < 1e-7;
    let function = if is_usual { UnaryOp::HardSigmoid } else { UnaryOp::HardSigmoidOf { slope, offset } };
    Ok(vec![emit.unary(function, call.input(0)?)?])
}

pub(super) fn gelu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let function = match call.text_attribute("approximate").unwrap_or("none") {
        "none" => UnaryOp::Gelu,
        "tanh" => UnaryOp::GeluTanh,
        other => return malformed(format!("`approximate` has the unknown value `{other}`")),
    };
    Ok(vec![emit.unary(function, call.input(0)?)?])
}

fn swish_of(call: &Call<'_>) -> UnaryOp {
    let beta = call.float_attribute("alpha", 1.0);
    if beta == 1.0 { UnaryOp::Silu } else { UnaryOp::Swish { beta } }
}

pub(super) fn swish(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(swish_of(call), call.input(0)?)?])
}

/// Emits SwiGLU: `swish(a) · b` for the first and second input.
pub(super) fn swi_glu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let gate = emit.unary(swish_of(call), call.input(0)?)?;
    Ok(vec![emit.binary(BinaryOp::Mul, gate, call.input(1)?)?])
}

pub(super) fn elu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::Elu { alpha: call.float_attribute("alpha", 1.0) }, call.input(0)?)?])
}

pub(super) fn celu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::Celu { alpha: call.float_attribute("alpha", 1.0) }, call.input(0)?)?])
}

pub(super) fn selu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    if !call.has_attribute("alpha") && !call.has_attribute("gamma") {
        return Ok(vec![emit.unary(UnaryOp::Selu, call.input(0)?)?]);
    }
    let elu = emit.unary(UnaryOp::Elu { alpha: call.float_attribute("alpha", 1.673_263_2) }, call.input(0)?)?;
    Ok(vec![emit.binary_with(BinaryOp::Mul, elu, call.float_attribute("gamma", 1.050_701))?])
}

pub(super) fn thresholded_relu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::ThresholdedRelu { alpha: call.float_attribute("alpha", 1.0) }, call.input(0)?)?])
}

pub(super) fn shrink(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let function =
        UnaryOp::Shrink { lambda: call.float_attribute("lambd", 0.5), bias: call.float_attribute("bias", 0.0) };
    Ok(vec![emit.unary(function, call.input(0)?)?])
}

pub(super) fn p_relu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, mut slope) = (call.input(0)?, call.input(1)?);
    let (rank, extents) = (emit.rank(x)?, emit.extents(slope)?);
    // Before version 7 a vector held one slope per channel.
    if call.opset < 7 && extents.len() == 1 && rank > 1 {
        let mut shape = vec![1; rank];
        shape[1] = extents[0];
        slope = emit.reshape(slope, &shape)?;
    }
    Ok(vec![emit.push(Op::PRelu(PRelu {}), &[x, slope])?])
}

/// Emits a power; the result has the type of the base.
pub(super) fn pow(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (base, exponent) = operands(emit, call)?;
    let dtype = emit.dtype(base)?;
    if emit.rank(exponent)? == 0 && emit.known_numbers(exponent)?.as_deref() == Some(&[2.0]) && dtype.is_float() {
        return Ok(vec![emit.unary(UnaryOp::Square, base)?]);
    }
    let wide = if dtype.is_float() { dtype } else { DType::F64 };
    let (base, exponent) = (emit.cast(base, wide)?, emit.cast(exponent, wide)?);
    let y = emit.binary(BinaryOp::Pow, base, exponent)?;
    Ok(vec![emit.cast(y, dtype)?])
}

pub(super) fn modulo_op(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let function = if call.flag_attribute("fmod") { BinaryOp::Fmod } else { BinaryOp::Mod };
    Ok(vec![emit.binary(function, call.input(0)?, call.input(1)?)?])
}

pub(super) fn clip(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let dtype = emit.dtype(x)?;
    if call.opset < 11 {
        let (low, high) = (call.optional_float("min"), call.optional_float("max"));
        return Ok(vec![clamp_value(emit, x, low, high)?]);
    }
    let (low, high) = (call.optional_input(1), call.optional_input(2));
    let number = |emit: &Emit<'_>, id: Option<ValueId>| -> Outcome<Option<Option<f64>>> {
        // The outer option is None for a bound that is computed at run time or no 64-bit float, the inner one for an absent bound.
        let Some(id) = id else { return Ok(Some(None)) };
        if emit.is_rounded_as_numbers(id)? {
            return Ok(None);
        }
        Ok(emit.known_numbers(id)?.and_then(|numbers| numbers.first().copied()).map(Some))
    };
    if let (Some(low), Some(high)) = (number(emit, low)?, number(emit, high)?) {
        return Ok(vec![clamp_value(emit, x, low, high)?]);
    }
    let mut y = x;
    for (function, bound) in [(BinaryOp::Max, low), (BinaryOp::Min, high)] {
        if let Some(bound) = bound {
            let bound = emit.cast(bound, dtype)?;
            y = emit.binary(function, y, bound)?;
        }
    }
    Ok(vec![y])
}

pub(super) fn clamp_value(emit: &mut Emit<'_>, x: ValueId, low: Option<f64>, high: Option<f64>) -> Outcome<ValueId> {
    let (lowest, highest) = crate::finite_range(emit.dtype(x)?);
    let low = low.filter(|low| *low > lowest);
    let high = high.filter(|high| *high < highest);
    match (low, high) {
        (None, None) => Ok(x),
        // With crossed bounds, the upper one applies to all elements.
        (Some(low), Some(high)) if low > high => {
            let raised = emit.binary_with(BinaryOp::Max, x, low)?;
            emit.binary_with(BinaryOp::Min, raised, high)
        }
        (low, high) => emit.push(Op::Clip(Clip { low: low.unwrap_or(lowest), high: high.unwrap_or(highest) }), &[x]),
    }
}
