//! Products and convolutions fused with an activation, and activations fused with a bias.

use crate::onnx::call::Call;
use crate::onnx::rules::{contraction, pointwise, window};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, BinaryOp, Dense, MatMul, Op, UnaryOp};

type Outputs = Outcome<Vec<ValueId>>;

pub(super) fn fused_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let y = convolve_data(emit, call, x)?;
    let y = match call.optional_input(3) {
        Some(other) => emit.binary(BinaryOp::Add, y, other)?,
        None => y,
    };
    Ok(vec![apply_activation(emit, y, call.text_attribute("activation"), &call.float_list("activation_params"))?])
}

fn convolve_data(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<ValueId> {
    let y = window::convolve_operands(emit, call, x, call.input(1)?)?;
    window::add_bias(emit, y, call.optional_input(2))
}

pub(super) fn channels_last_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = window::channels_first(emit, call.input(0)?)?;
    let mut y = convolve_data(emit, call, x)?;
    if let Some(other) = call.optional_input(3) {
        let other = window::channels_first(emit, other)?;
        y = emit.binary(BinaryOp::Add, y, other)?;
    }
    let y = apply_activation(emit, y, call.text_attribute("activation"), &call.float_list("activation_params"))?;
    Ok(vec![window::channels_last(emit, y)?])
}

pub(super) fn fused_gemm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let y = contraction::gemm(emit, call)?[0];
    let names = ["activation_alpha", "activation_beta", "activation_gamma"];
    let parameters: Vec<f64> = names.iter().map_while(|name| call.optional_float(name)).collect();
    Ok(vec![apply_activation(emit, y, call.text_attribute("activation"), &parameters)?])
}

/// Applies an activation by name; missing parameters default to those of the ONNX operator.
fn apply_activation(emit: &mut Emit<'_>, x: ValueId, name: Option<&str>, parameters: &[f64]) -> Outcome<ValueId> {
    let given = |index: usize, default: f32| parameters.get(index).copied().unwrap_or(default.into());
    let function = match name.unwrap_or_default() {
        "" => return Ok(x),
        "Clip" => return pointwise::clamp_value(emit, x, parameters.first().copied(), parameters.get(1).copied()),
        "Relu" => UnaryOp::Relu,
        "Sigmoid" => UnaryOp::Sigmoid,
        "Tanh" => UnaryOp::Tanh,
        "LeakyRelu" => UnaryOp::LeakyRelu { alpha: given(0, 0.01) },
        "HardSigmoid" => UnaryOp::HardSigmoidOf { slope: given(0, 0.2), offset: given(1, 0.5) },
        "HardSwish" => UnaryOp::HardSwish,
        "Elu" => UnaryOp::Elu { alpha: given(0, 1.0) },
        "ThresholdedRelu" => UnaryOp::ThresholdedRelu { alpha: given(0, 1.0) },
        "Softplus" => UnaryOp::Softplus,
        "Softsign" => UnaryOp::Softsign,
        "Gelu" => UnaryOp::Gelu,
        other => return unsupported(format!("activation `{other}`")),
    };
    emit.unary(function, x)
}

/// Emits `alpha · A · B`. Either operand may be transposed, and may have its batch dimensions after the rows.
pub(super) fn mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let a = batches_first(emit, call.input(0)?, call.flag_attribute("transBatchA"))?;
    let b = batches_first(emit, call.input(1)?, call.flag_attribute("transBatchB"))?;
    let (a_rank, b_rank) = (emit.rank(a)?, emit.rank(b)?);
    // A vector has nothing to transpose.
    let (transpose_a, transpose_b) =
        (call.flag_attribute("transA") && a_rank > 1, call.flag_attribute("transB") && b_rank > 1);
    let mut y = match (transpose_a, transpose_b) {
        (false, false) => contraction::numpy_product(emit, a, b)?,
        (false, true) if b_rank == 2 && a_rank > 1 => emit.push(Op::Dense(Dense {}), &[a, b])?,
        _ if a_rank > 1 && b_rank > 1 => emit.push(Op::MatMul(MatMul { transpose_a, transpose_b }), &[a, b])?,
        _ => return malformed(format!("the operands {} and {} must be matrices", emit.ty(a)?, emit.ty(b)?)),
    };
    let alpha = call.float_attribute("alpha", 1.0);
    if alpha != 1.0 {
        y = emit.binary_with(BinaryOp::Mul, y, alpha)?;
    }
    Ok(vec![y])
}

fn batches_first(emit: &mut Emit<'_>, x: ValueId, is_apart: bool) -> Outcome<ValueId> {
    let rank = emit.rank(x)?;
    if !is_apart || rank < 3 {
        return Ok(x);
    }
    let order: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
    emit.transpose(x, &order)
}

pub(super) fn bias_gelu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = add_last_bias(emit, call.input(0)?, Some(call.input(1)?))?;
    Ok(vec![emit.unary(UnaryOp::Gelu, x)?])
}

pub(super) fn fast_gelu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = add_last_bias(emit, call.input(0)?, call.optional_input(1))?;
    Ok(vec![emit.unary(UnaryOp::GeluTanh, x)?])
}

pub(super) fn quick_gelu(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let beta = call.float_attribute("alpha", 1.702);
    let function = if beta == 1.0 { UnaryOp::Silu } else { UnaryOp::Swish { beta } };
    Ok(vec![emit.unary(function, call.input(0)?)?])
}

pub(super) fn add_last_bias(emit: &mut Emit<'_>, x: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
    match bias {
        Some(bias) if emit.rank(bias)? == 1 => {
            emit.push(Op::BiasAdd(BiasAdd { axis: emit.rank(x)? as i64 - 1 }), &[x, bias])
        }
        Some(bias) => emit.binary(BinaryOp::Add, x, bias),
        None => Ok(x),
    }
}
