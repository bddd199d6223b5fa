//! Computes pointwise operators.

use crate::call::Call;
use crate::inputs;
use crate::refusal::Result;
use models::operators::{BiasAdd, Binary, Clip, Compare, Dequantize, Quantize, Requantize, Unary};
use models::{BinaryOp, CompareOp, DType, Op, Operand, Step, UnaryOp};
use tch::{Kind, Tensor};

pub fn compute_pointwise(call: &Call<'_>) -> Result<Option<Tensor>> {
    let (x, inputs, kind, dtype) = (call.first_input(), call.inputs, call.kind, call.output.dtype);
    match call.op {
        Op::BiasAdd(BiasAdd { axis }) => Ok(x.f_add(&broadcast_along(inputs[1], *axis, call.output.rank())?)?),
        Op::Unary(Unary { function }) => apply_unary(x, *function),
        Op::Clip(Clip { low, high }) => clip_range(x, *low, *high, dtype),
        Op::Binary(Binary { function }) => apply_binary(x, inputs[1], *function, dtype),
        Op::Cast(_) => cast_shared(x, kind),
        Op::Compare(Compare { function }) => apply_comparison(x, inputs[1], *function),
        Op::Where(_) => Ok(inputs[1].f_where_self(x, inputs[2])?),
        Op::PRelu(_) => p_relu(x, inputs[1]),
        Op::Quantize(Quantize { axis, .. }) => quantize_axis(inputs, *axis, dtype),
        Op::Dequantize(Dequantize { axis }) => dequantize_axis(inputs, *axis, kind),
        Op::Requantize(Requantize { axis, zero, low, high, .. }) => {
            requantize_axis(x, inputs[1], *axis, [*zero, *low, *high], kind)
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// Reshapes a vector to broadcast along one axis; scalars stay unchanged.
pub fn broadcast_along(vector: &Tensor, axis: i64, rank: usize) -> Result<Tensor> {
    if vector.dim() == 0 {
        return Ok(vector.shallow_clone());
    }
    let after = rank.saturating_sub(1 + usize::try_from(axis).unwrap_or(0));
    let shape: Vec<i64> = std::iter::once(-1).chain(std::iter::repeat_n(1, after)).collect();
    Ok(vector.f_reshape(shape)?)
}

/// Computes a step in the memory of the previous result. Returns false if that is not supported.
pub fn compute_in_place(step: &Step, value: &mut Tensor, parameters: &[Tensor]) -> Result<bool> {
    let other = |at: usize| match step.inputs.get(at) {
        Some(Operand::Parameter(index)) => Some(&parameters[*index]),
        Some(Operand::Step(_)) | None => None,
    };
    drop(match &step.op {
        Op::Unary(Unary { function }) => match function {
            UnaryOp::Relu => value.f_relu_()?,
            UnaryOp::Sigmoid => value.f_sigmoid_()?,
            UnaryOp::HardSigmoid => value.f_hardsigmoid_()?,
            UnaryOp::Tanh => value.f_tanh_()?,
            UnaryOp::Silu => value.f_silu_()?,
            UnaryOp::HardSwish => value.f_hardswish_()?,
            UnaryOp::Gelu => value.f_gelu_("none")?,
            UnaryOp::GeluTanh => value.f_gelu_("tanh")?,
            _ => return Ok(false),
        },
        Op::Clip(Clip { low, high }) if step.output.dtype.is_float() => value.f_clamp_(*low, *high)?,
        Op::BiasAdd(BiasAdd { axis }) => match other(1) {
            Some(bias) => value.f_add_(&broadcast_along(bias, *axis, step.output.rank())?)?,
            None => return Ok(false),
        },
        Op::Binary(Binary { function }) => match (function, other(0), other(1)) {
            (BinaryOp::Add, None, Some(right)) => value.f_add_(right)?,
            (BinaryOp::Add, Some(left), None) => value.f_add_(left)?,
            (BinaryOp::Sub, None, Some(right)) => value.f_sub_(right)?,
            (BinaryOp::Mul, None, Some(right)) => value.f_mul_(right)?,
            (BinaryOp::Mul, Some(left), None) => value.f_mul_(left)?,
            (BinaryOp::Div, None, Some(right)) if step.output.dtype.is_float() => value.f_div_(right)?,
            _ => return Ok(false),
        },
        _ => return Ok(false),
    });
    Ok(true)
}

fn scalar_like(number: f64, like: &Tensor) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(&[number])?.f_to_kind(like.f_kind()?)?)
}

fn apply_unary(x: &Tensor, function: UnaryOp) -> Result<Tensor> {
    const USUAL_SLOPE: f64 = 0.01;
    let elu = |x: &Tensor, alpha: f64| -> Result<Tensor> {
        let below = x.f_clamp_max(0.0)?.f_expm1()?.f_mul_scalar(alpha)?;
        Ok(x.f_relu()?.f_add(&below)?)
    };
    Ok(match function {
        UnaryOp::Relu => x.f_relu()?,
        UnaryOp::LeakyRelu { alpha } if alpha == USUAL_SLOPE => x.f_leaky_relu()?,
        UnaryOp::LeakyRelu { alpha } => x.f_prelu(&scalar_like(alpha, x)?)?,
        UnaryOp::Sigmoid => x.f_sigmoid()?,
        UnaryOp::HardSigmoid => x.f_hardsigmoid()?,
        UnaryOp::Tanh => x.f_tanh()?,
        UnaryOp::Silu => x.f_silu()?,
        UnaryOp::HardSwish => x.f_hardswish()?,
        UnaryOp::Gelu => x.f_gelu("none")?,
        UnaryOp::Exp => x.f_exp()?,
        UnaryOp::Log => x.f_log()?,
        UnaryOp::Sqrt => x.f_sqrt()?,
        UnaryOp::Neg => x.f_neg()?,
        UnaryOp::Abs => x.f_abs()?,
        UnaryOp::Sin => x.f_sin()?,
        UnaryOp::Cos => x.f_cos()?,
        UnaryOp::Tan => x.f_tan()?,
        UnaryOp::Asin => x.f_asin()?,
        UnaryOp::Acos => x.f_acos()?,
        UnaryOp::Atan => x.f_atan()?,
        UnaryOp::Sinh => x.f_sinh()?,
        UnaryOp::Cosh => x.f_cosh()?,
        UnaryOp::Asinh => x.f_asinh()?,
        UnaryOp::Acosh => x.f_acosh()?,
        UnaryOp::Atanh => x.f_atanh()?,
        UnaryOp::Erf => x.f_erf()?,
        UnaryOp::Exp2 => x.f_exp2()?,
        UnaryOp::Expm1 => x.f_expm1()?,
        UnaryOp::Log2 => x.f_log2()?,
        UnaryOp::Log10 => x.f_log10()?,
        UnaryOp::Log1p => x.f_log1p()?,
        UnaryOp::Rsqrt => x.f_rsqrt()?,
        UnaryOp::Reciprocal => x.f_reciprocal()?,
        UnaryOp::Square => x.f_square()?,
        UnaryOp::Floor => x.f_floor()?,
        UnaryOp::Ceil => x.f_ceil()?,
        UnaryOp::Round => x.f_round()?,
        UnaryOp::Trunc => x.f_trunc()?,
        UnaryOp::Sign => x.f_sign()?,
        UnaryOp::Elu { alpha: 1.0 } => x.f_elu()?,
        UnaryOp::Elu { alpha } => elu(x, alpha)?,
        UnaryOp::Selu => x.f_selu()?,
        UnaryOp::Celu { alpha: 1.0 } => x.f_celu()?,
        UnaryOp::Celu { alpha } => elu(&x.f_div_scalar(alpha)?, 1.0)?.f_mul_scalar(alpha)?,
        UnaryOp::Softplus => x.f_softplus()?,
        UnaryOp::Softsign => x.f_div(&x.f_abs()?.f_add_scalar(1.0)?)?,
        UnaryOp::Mish => x.f_mish()?,
        UnaryOp::HardSigmoidOf { slope, offset } => x.f_mul_scalar(slope)?.f_add_scalar(offset)?.f_clamp(0.0, 1.0)?,
        UnaryOp::GeluTanh => x.f_gelu("tanh")?,
        UnaryOp::Swish { beta } => x.f_mul(&x.f_mul_scalar(beta)?.f_sigmoid()?)?,
        UnaryOp::ThresholdedRelu { alpha } => x.f_threshold(alpha, 0.0)?,
        UnaryOp::Shrink { lambda, bias } => {
            let moved = x.f_sub(&x.f_sign()?.f_mul_scalar(bias)?)?;
            moved.f_mul(&x.f_abs()?.f_gt(lambda)?.f_to_kind(x.f_kind()?)?)?
        }
        UnaryOp::IsNan => x.f_isnan()?,
        UnaryOp::IsInf { negative: true, positive: true } => x.f_isinf()?,
        UnaryOp::IsInf { negative: true, positive: false } => x.f_isneginf()?,
        UnaryOp::IsInf { negative: false, positive: true } => x.f_isposinf()?,
        UnaryOp::IsInf { negative: false, positive: false } => x.f_zeros_like()?.f_to_kind(Kind::Bool)?,
        UnaryOp::Not => x.f_logical_not()?,
        UnaryOp::BitNot => x.f_bitwise_not()?,
    })
}

fn clip_range(x: &Tensor, low: f64, high: f64, dtype: DType) -> Result<Tensor> {
    if dtype.is_float() {
        return Ok(x.f_clamp(low, high)?);
    }
    // Integer bounds prevent the conversion of integers to floats.
    let (least, most) = dtype.integer_range().unwrap_or((i64::MIN, i64::MAX));
    Ok(x.f_clamp((low.ceil() as i64).clamp(least, most), (high.floor() as i64).clamp(least, most))?)
}

fn apply_binary(a: &Tensor, b: &Tensor, function: BinaryOp, dtype: DType) -> Result<Tensor> {
    Ok(match function {
        BinaryOp::Add => a.f_add(b)?,
        BinaryOp::Sub => a.f_sub(b)?,
        BinaryOp::Mul => a.f_mul(b)?,
        BinaryOp::Div if dtype.is_float() => a.f_div(b)?,
        BinaryOp::Div => a.f_div_tensor_mode(b, "trunc")?,
        BinaryOp::Max => a.f_maximum(b)?,
        BinaryOp::Min => a.f_minimum(b)?,
        BinaryOp::Pow => a.f_pow(b)?,
        BinaryOp::Mod => a.f_remainder_tensor(b)?,
        BinaryOp::Fmod => a.f_fmod_tensor(b)?,
        BinaryOp::FloorDiv => a.f_floor_divide(b)?,
        BinaryOp::BitAnd => a.f_bitwise_and_tensor(b)?,
        BinaryOp::BitOr => a.f_bitwise_or_tensor(b)?,
        BinaryOp::BitXor => a.f_bitwise_xor_tensor(b)?,
        BinaryOp::ShiftLeft => a.f_bitwise_left_shift(b)?,
        BinaryOp::ShiftRight => a.f_bitwise_right_shift(b)?,
        BinaryOp::And => a.f_logical_and(b)?,
        BinaryOp::Or => a.f_logical_or(b)?,
        BinaryOp::Xor => a.f_logical_xor(b)?,
    })
}

fn cast_shared(x: &Tensor, kind: Kind) -> Result<Tensor> {
    Ok(if x.f_kind()? == kind { x.f_alias_copy()? } else { x.f_to_kind(kind)? })
}

fn apply_comparison(a: &Tensor, b: &Tensor, function: CompareOp) -> Result<Tensor> {
    Ok(match function {
        CompareOp::Equal => a.f_eq_tensor(b)?,
        CompareOp::NotEqual => a.f_ne_tensor(b)?,
        CompareOp::Less => a.f_lt_tensor(b)?,
        CompareOp::LessOrEqual => a.f_le_tensor(b)?,
        CompareOp::Greater => a.f_gt_tensor(b)?,
        CompareOp::GreaterOrEqual => a.f_ge_tensor(b)?,
    })
}

fn p_relu(x: &Tensor, slope: &Tensor) -> Result<Tensor> {
    // PyTorch's function takes one slope per channel, which is dimension 1.
    let after_channel = x.dim().saturating_sub(2);
    let sizes = slope.size();
    let is_per_channel = sizes.len() == after_channel + 1 && sizes[1..].iter().all(|&extent| extent == 1);
    if slope.numel() == 1 || is_per_channel {
        return Ok(x.f_prelu(&slope.f_reshape([-1])?)?);
    }
    Ok(x.f_where_self(&x.f_ge(0.0)?, &x.f_mul(slope)?)?)
}

fn scale_kind(scale: &Tensor) -> Result<Kind> {
    Ok(if scale.f_kind()? == Kind::Double { Kind::Double } else { Kind::Float })
}

fn quantize_axis(inputs: &[&Tensor], axis: i64, to: DType) -> Result<Tensor> {
    let (x, scale) = (inputs[0], inputs[1]);
    let (kind, rank) = (scale_kind(scale)?, x.dim());
    let scale = broadcast_along(&scale.f_to_kind(kind)?, axis, rank)?;
    let mut whole = x.f_to_kind(kind)?.f_div(&scale)?.f_round_()?;
    if let Some(zero) = inputs.get(2) {
        whole = whole.f_add_(&broadcast_along(&zero.f_to_kind(kind)?, axis, rank)?)?;
    }
    let (low, high) = to.integer_range().expect("a checked operator quantises to a narrow integer");
    Ok(whole.f_clamp_(low, high)?.f_to_kind(inputs::torch_kind(to)?)?)
}

fn dequantize_axis(inputs: &[&Tensor], axis: i64, to: Kind) -> Result<Tensor> {
    let (x, scale) = (inputs[0], inputs[1]);
    let (kind, rank) = (scale_kind(scale)?, x.dim());
    let mut number = x.f_to_kind(kind)?;
    if let Some(zero) = inputs.get(2) {
        number = number.f_sub_(&broadcast_along(&zero.f_to_kind(kind)?, axis, rank)?)?;
    }
    cast_owned(number.f_mul_(&broadcast_along(&scale.f_to_kind(kind)?, axis, rank)?)?, to)
}

fn requantize_axis(
    x: &Tensor,
    multiplier: &Tensor,
    axis: i64,
    [zero, low, high]: [i64; 3],
    to: Kind,
) -> Result<Tensor> {
    let (kind, rank) = (scale_kind(multiplier)?, x.dim());
    let multiplier = broadcast_along(&multiplier.f_to_kind(kind)?, axis, rank)?;
    let mut whole = x.f_to_kind(kind)?.f_mul_(&multiplier)?.f_round_()?;
    cast_owned(whole.f_add_scalar_(zero)?.f_clamp_(low, high)?, to)
}

fn cast_owned(x: Tensor, kind: Kind) -> Result<Tensor> {
    Ok(if x.f_kind()? == kind { x } else { x.f_to_kind(kind)? })
}
