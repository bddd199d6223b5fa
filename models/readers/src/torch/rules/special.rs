//! Pointwise functions that are compositions of other functions, and powers of integers.

use super::pointwise::{operands, unary};
use super::{Call, Outputs, own_output};
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Identity, Op, UnaryOp, Where};
use models::types::DType;

fn compare(emit: &mut Emit<'_>, function: CompareOp, x: ValueId, number: f64) -> Outcome<ValueId> {
    let number = emit.add_scalar(emit.dtype(x)?, number)?;
    emit.compare(function, x, number)
}

fn choose(emit: &mut Emit<'_>, condition: ValueId, yes: f64, no: ValueId) -> Outcome<ValueId> {
    let yes = emit.add_scalar(emit.dtype(no)?, yes)?;
    emit.push(Op::Where(Where {}), &[condition, yes, no])
}

fn floating_input(call: &mut Call<'_, '_>) -> Outcome<ValueId> {
    let dtype = call.result_dtype()?;
    call.operand_as("self", dtype)
}

/// Emits a test of single elements, which is false for all integers.
pub(super) fn test_of_floats(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    let x = call.tensor_argument("self")?;
    if call.emit.dtype(x)?.is_float() {
        return own_output(call.emit.unary(function, x)?);
    }
    let extents = call.emit.extents(x)?;
    own_output(call.emit.add_filled(DType::Bool, &extents, 0.0)?)
}

/// Returns whether the sign of an element is negative, also for negative zero.
fn sign_bit(emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
    let is_below = compare(emit, CompareOp::Less, x, 0.0)?;
    if !emit.dtype(x)?.is_float() {
        return Ok(is_below);
    }
    let is_zero = compare(emit, CompareOp::Equal, x, 0.0)?;
    let inverse = emit.unary(UnaryOp::Reciprocal, x)?;
    let is_inverse_below = compare(emit, CompareOp::Less, inverse, 0.0)?;
    let is_negative_zero = emit.binary(BinaryOp::And, is_zero, is_inverse_below)?;
    emit.binary(BinaryOp::Or, is_below, is_negative_zero)
}

pub(super) fn has_sign(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    if call.emit.dtype(x)? == DType::Bool {
        return test_of_floats(call, UnaryOp::IsNan);
    }
    own_output(sign_bit(call.emit, x)?)
}

pub(super) fn copy_sign(call: &mut Call<'_, '_>) -> Outputs {
    let [x, sign] = operands(call)?;
    let emit = &mut *call.emit;
    let size = emit.unary(UnaryOp::Abs, x)?;
    let opposite = emit.unary(UnaryOp::Neg, size)?;
    let is_negative = sign_bit(emit, sign)?;
    own_output(emit.push(Op::Where(Where {}), &[is_negative, opposite, size])?)
}

pub(super) fn scale_by(call: &mut Call<'_, '_>, factor: f64) -> Outputs {
    let x = floating_input(call)?;
    own_output(call.emit.binary_with(BinaryOp::Mul, x, factor)?)
}

pub(super) fn is_close(call: &mut Call<'_, '_>) -> Outputs {
    let (x, other) = (call.tensor_argument("self")?, call.tensor_argument("other")?);
    let (absolute, relative) = (call.float_argument("atol", 1e-8)?, call.float_argument("rtol", 1e-5)?);
    let dtype = call.emit.dtype(x)?;
    if !dtype.is_float() || call.emit.dtype(other)? != dtype || call.flag_argument("equal_nan", false)? {
        return unsupported("a comparison of integers or of NaN within a tolerance");
    }
    let emit = &mut *call.emit;
    let is_equal = emit.compare(CompareOp::Equal, x, other)?;
    let apart = emit.binary(BinaryOp::Sub, x, other)?;
    let apart = emit.unary(UnaryOp::Abs, apart)?;
    let size = emit.unary(UnaryOp::Abs, other)?;
    let allowed = emit.binary_with(BinaryOp::Mul, size, relative)?;
    let allowed = emit.binary_with(BinaryOp::Add, allowed, absolute)?;
    // An infinite number is close only to itself.
    let is_near = emit.compare(CompareOp::LessOrEqual, apart, allowed)?;
    let is_finite = compare(emit, CompareOp::Less, apart, f64::INFINITY)?;
    let is_near = emit.binary(BinaryOp::And, is_near, is_finite)?;
    own_output(emit.binary(BinaryOp::Or, is_equal, is_near)?)
}

/// Emits `self · log(other)`, or `self · log(1 + other)`; zero where `self` is zero.
pub(super) fn x_log_y(call: &mut Call<'_, '_>, logarithm: UnaryOp) -> Outputs {
    let [x, y] = operands(call)?;
    let log = call.emit.unary(logarithm, y)?;
    let product = call.emit.binary(BinaryOp::Mul, x, log)?;
    let is_zero = compare(call.emit, CompareOp::Equal, x, 0.0)?;
    own_output(choose(call.emit, is_zero, 0.0, product)?)
}

/// Emits `-x · log(x)`: zero at zero, minus infinity below.
pub(super) fn entropy_term(call: &mut Call<'_, '_>) -> Outputs {
    let x = floating_input(call)?;
    let log = call.emit.unary(UnaryOp::Log, x)?;
    let product = call.emit.binary(BinaryOp::Mul, x, log)?;
    let product = call.emit.unary(UnaryOp::Neg, product)?;
    let is_zero = compare(call.emit, CompareOp::Equal, x, 0.0)?;
    let y = choose(call.emit, is_zero, 0.0, product)?;
    let is_below = compare(call.emit, CompareOp::Less, x, 0.0)?;
    own_output(choose(call.emit, is_below, f64::NEG_INFINITY, y)?)
}

/// Emits `sin(πx) / (πx)`, which is 1 at zero.
pub(super) fn sinc(call: &mut Call<'_, '_>) -> Outputs {
    let x = floating_input(call)?;
    let angle = call.emit.binary_with(BinaryOp::Mul, x, std::f64::consts::PI)?;
    let sine = call.emit.unary(UnaryOp::Sin, angle)?;
    let quotient = call.emit.binary(BinaryOp::Div, sine, angle)?;
    let is_zero = compare(call.emit, CompareOp::Equal, x, 0.0)?;
    own_output(choose(call.emit, is_zero, 1.0, quotient)?)
}

pub(super) fn load_exponent(call: &mut Call<'_, '_>) -> Outputs {
    let [x, exponent] = operands(call)?;
    let power = call.emit.unary(UnaryOp::Exp2, exponent)?;
    own_output(call.emit.binary(BinaryOp::Mul, x, power)?)
}

/// Emits the distribution function of the standard normal distribution.
pub(super) fn normal_distribution(call: &mut Call<'_, '_>) -> Outputs {
    let x = floating_input(call)?;
    let scaled = call.emit.binary_with(BinaryOp::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
    let y = call.emit.unary(UnaryOp::Erf, scaled)?;
    let y = call.emit.binary_with(BinaryOp::Add, y, 1.0)?;
    own_output(call.emit.binary_with(BinaryOp::Mul, y, 0.5)?)
}

/// Emits softplus. Above the threshold the function is the identity; from 20 on, both agree in 32 bits.
pub(super) fn softplus(call: &mut Call<'_, '_>) -> Outputs {
    let (beta, threshold) = (call.float_argument("beta", 1.0)?, call.float_argument("threshold", 20.0)?);
    if beta == 1.0 && threshold >= 20.0 {
        return unary(call, UnaryOp::Softplus);
    }
    let x = call.tensor_argument("self")?;
    let scaled = call.emit.binary_with(BinaryOp::Mul, x, beta)?;
    let y = call.emit.unary(UnaryOp::Softplus, scaled)?;
    let y = call.emit.binary_with(BinaryOp::Div, y, beta)?;
    if threshold >= 20.0 {
        return own_output(y);
    }
    let is_above = compare(call.emit, CompareOp::Greater, scaled, threshold)?;
    own_output(call.emit.push(Op::Where(Where {}), &[is_above, x, y])?)
}

pub(super) fn float_power(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (x, exponent) = (call.operand_as("self", dtype)?, call.operand_as("exponent", dtype)?);
    own_output(call.emit.binary(BinaryOp::Pow, x, exponent)?)
}

pub(super) fn pow(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let exponent = match call.arguments.get("exponent") {
        Some(super::Argument::Tensor(_)) => None,
        _ => call.optional_float("exponent")?,
    };
    let x = call.operand_as("self", dtype)?;
    if !dtype.is_float() && exponent != Some(1.0) {
        return integer_power(call, dtype);
    }
    let function = match exponent {
        Some(1.0) => return own_output(call.emit.push(Op::Identity(Identity {}), &[x])?),
        Some(2.0) => Some(UnaryOp::Square),
        Some(0.5) => Some(UnaryOp::Sqrt),
        Some(-0.5) => Some(UnaryOp::Rsqrt),
        Some(-1.0) => Some(UnaryOp::Reciprocal),
        _ => None,
    };
    if let Some(function) = function {
        return own_output(call.emit.unary(function, x)?);
    }
    let exponent = call.operand_as("exponent", dtype)?;
    own_output(call.emit.binary(BinaryOp::Pow, x, exponent)?)
}

/// Emits a power of integers. A known exponent is a chain of products, and a power of 2 is a shift.
fn integer_power(call: &mut Call<'_, '_>, dtype: DType) -> Outputs {
    let (x, exponent) = (call.operand_as("self", dtype)?, call.operand_as("exponent", dtype)?);
    let emit = &mut *call.emit;
    let bits = dtype.size_bytes() as i64 * 8;
    if emit.ty(exponent)?.element_count() == Some(1)
        && let Some([power]) = emit.known_numbers(exponent)?.as_deref()
        && (0.0..bits as f64).contains(power)
    {
        return own_output(product_chain(emit, x, *power as u32)?);
    }
    let is_inside = is_within(emit, exponent, bits)?;
    let is_two = emit.ty(x)?.element_count() == Some(1) && emit.known_numbers(x)?.as_deref() == Some(&[2.0]);
    let zero = emit.add_scalar(dtype, 0.0)?;
    let shift = emit.push(Op::Where(Where {}), &[is_inside, exponent, zero])?;
    let one = emit.add_scalar(dtype, 1.0)?;
    let mut y = one;
    if is_two {
        y = emit.binary(BinaryOp::ShiftLeft, one, shift)?;
    } else {
        let mut square = x;
        for bit in 0..bits.trailing_zeros() {
            let mask = emit.add_scalar(dtype, f64::from(1u32 << bit))?;
            let set = emit.binary(BinaryOp::BitAnd, shift, mask)?;
            let is_set = compare(emit, CompareOp::NotEqual, set, 0.0)?;
            let factor = emit.push(Op::Where(Where {}), &[is_set, square, one])?;
            y = emit.binary(BinaryOp::Mul, y, factor)?;
            square = emit.binary(BinaryOp::Mul, square, square)?;
        }
    }
    // Of the other exponents, negative ones and those that overflow, only the bases 1 and -1 have a power.
    let parity = emit.binary_with(BinaryOp::BitAnd, exponent, 1.0)?;
    let is_odd = compare(emit, CompareOp::NotEqual, parity, 0.0)?;
    let is_one = compare(emit, CompareOp::Equal, x, 1.0)?;
    let is_minus_one = compare(emit, CompareOp::Equal, x, -1.0)?;
    let sign = choose(emit, is_odd, -1.0, one)?;
    let rest = emit.push(Op::Where(Where {}), &[is_minus_one, sign, zero])?;
    let rest = choose(emit, is_one, 1.0, rest)?;
    own_output(emit.push(Op::Where(Where {}), &[is_inside, y, rest])?)
}

fn is_within(emit: &mut Emit<'_>, x: ValueId, end: i64) -> Outcome<ValueId> {
    let is_positive = compare(emit, CompareOp::GreaterOrEqual, x, 0.0)?;
    let is_below = compare(emit, CompareOp::Less, x, end as f64)?;
    emit.binary(BinaryOp::And, is_positive, is_below)
}

fn product_chain(emit: &mut Emit<'_>, x: ValueId, power: u32) -> Outcome<ValueId> {
    let (mut made, mut square) = (None, x);
    for bit in 0..u32::BITS - power.leading_zeros() {
        if power & 1 << bit != 0 {
            made = Some(match made {
                Some(made) => emit.binary(BinaryOp::Mul, made, square)?,
                None => square,
            });
        }
        if power >> (bit + 1) != 0 {
            square = emit.binary(BinaryOp::Mul, square, square)?;
        }
    }
    match made {
        Some(made) => Ok(made),
        None => {
            let (dtype, extents) = (emit.dtype(x)?, emit.extents(x)?);
            emit.add_filled(dtype, &extents, 1.0)
        }
    }
}
