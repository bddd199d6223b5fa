//! Functions of elements. Operands of different types meet in the type that the file states for the result.

use super::{Call, Made, Memory, Outputs, own};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, Compare, CompareOp, Identity, Op, PRelu, UnaryOp, Where};
use models::types::DType;

pub(super) fn unary(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    let mut x = call.tensor(if call.arguments.contains_key("self") { "self" } else { "input" })?;
    let is_floating = !matches!(
        function,
        UnaryOp::Relu
            | UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Square
            | UnaryOp::Sign
            | UnaryOp::IsNan
            | UnaryOp::IsInf { .. }
    );
    if is_floating {
        let dtype = call.result_dtype()?;
        if dtype.is_float() {
            x = call.emit.cast(x, dtype)?;
        } else {
            // Rounding integers leaves them as they are.
            return own(call.emit.push(Op::Identity(Identity {}), &[x])?);
        }
    }
    own(call.emit.unary(function, x)?)
}

/// Both operands in the type of the result.
fn operands(call: &mut Call<'_, '_>) -> Outcome<[ValueId; 2]> {
    let dtype = call.result_dtype()?;
    Ok([call.operand(first(call), dtype)?, call.operand("other", dtype)?])
}

/// The name of the first operand.
fn first(call: &Call<'_, '_>) -> &'static str {
    if call.arguments.contains_key("input") { "input" } else { "self" }
}

pub(super) fn binary(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    let [a, b] = operands(call)?;
    own(sized(call, function, a, b)?)
}

/// A function of two elements; of two `bool` a product is both and a sum is either.
fn sized(call: &mut Call<'_, '_>, function: BinaryOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    let function = match (call.emit.dtype(a)?, function) {
        (DType::Bool, BinaryOp::Mul | BinaryOp::Min) => BinaryOp::And,
        (DType::Bool, BinaryOp::Add | BinaryOp::Max) => BinaryOp::Or,
        (_, function) => function,
    };
    call.emit.binary(function, a, b)
}

pub(super) fn whole_binary(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    binary(call, function)
}

/// The second operand times `alpha`, which is 1 unless it is given.
fn with_alpha(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<ValueId> {
    match call.float("alpha", 1.0)? {
        1.0 => Ok(x),
        alpha => call.emit.binary_with(BinaryOp::Mul, x, alpha),
    }
}

pub(super) fn add(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let b = with_alpha(call, b)?;
    own(sized(call, BinaryOp::Add, a, b)?)
}

pub(super) fn sub(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let b = with_alpha(call, b)?;
    own(call.emit.binary(BinaryOp::Sub, a, b)?)
}

pub(super) fn rsub(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let a = with_alpha(call, a)?;
    own(call.emit.binary(BinaryOp::Sub, b, a)?)
}

pub(super) fn div(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let mode = call.text("rounding_mode", "")?;
    let is_float = call.result_dtype()?.is_float();
    let function = if mode == "floor" { BinaryOp::FloorDiv } else { BinaryOp::Div };
    let y = call.emit.binary(function, a, b)?;
    match mode.as_str() {
        "" | "floor" => own(y),
        "trunc" if is_float => own(call.emit.unary(UnaryOp::Trunc, y)?),
        "trunc" => own(y),
        other => unsupported(format!("`rounding_mode` is `{other}`")),
    }
}

/// The type in which two operands are compared.
fn common(call: &Call<'_, '_>) -> Outcome<DType> {
    let x = call.tensor(first(call))?;
    let dtype = call.emit.dtype(x)?;
    let rank = |dtype: DType| (dtype.is_float(), dtype != DType::Bool, dtype.bytes());
    if let Ok(Some(other)) = call.optional_tensor("other") {
        let theirs = call.emit.dtype(other)?;
        // A tensor without dimensions counts only by its kind.
        let (own_rank, their_rank) = (call.emit.rank(x)?, call.emit.rank(other)?);
        let is_same_kind = (rank(dtype).0, rank(dtype).1) == (rank(theirs).0, rank(theirs).1);
        return Ok(match (is_same_kind, own_rank == 0, their_rank == 0) {
            (true, false, true) => dtype,
            (true, true, false) => theirs,
            _ if rank(theirs) > rank(dtype) => theirs,
            _ => dtype,
        });
    }
    let is_fraction = matches!(call.arguments.get("other"), Some(super::Argument::Float(_)));
    Ok(match (dtype.is_float(), is_fraction) {
        (false, true) => DType::F32,
        _ if dtype == DType::Bool && !matches!(call.arguments.get("other"), Some(super::Argument::Bool(_))) => {
            DType::I64
        }
        _ => dtype,
    })
}

pub(super) fn compare(call: &mut Call<'_, '_>, function: CompareOp) -> Outputs {
    let mut dtype = common(call)?;
    if dtype == DType::Bool && !matches!(function, CompareOp::Equal | CompareOp::NotEqual) {
        dtype = DType::U8;
    }
    let (a, b) = (call.operand(first(call), dtype)?, call.operand("other", dtype)?);
    own(call.emit.push(Op::Compare(Compare { function }), &[a, b])?)
}

fn logical(call: &mut Call<'_, '_>, of_flags: BinaryOp, of_integers: Option<BinaryOp>) -> Outputs {
    let dtype = match of_integers {
        Some(_) => call.result_dtype()?,
        None => DType::Bool,
    };
    let (a, b) = (call.operand(first(call), dtype)?, call.operand("other", dtype)?);
    let function = if dtype == DType::Bool { of_flags } else { of_integers.unwrap_or(of_flags) };
    own(call.emit.binary(function, a, b)?)
}

pub(super) fn and(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::And, Some(BinaryOp::BitAnd))
}

pub(super) fn or(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::Or, Some(BinaryOp::BitOr))
}

pub(super) fn xor(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::Xor, Some(BinaryOp::BitXor))
}

pub(super) fn logical_and(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::And, None)
}

pub(super) fn logical_or(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::Or, None)
}

pub(super) fn logical_xor(call: &mut Call<'_, '_>) -> Outputs {
    logical(call, BinaryOp::Xor, None)
}

pub(super) fn logical_not(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.operand("self", DType::Bool)?;
    own(call.emit.unary(UnaryOp::Not, x)?)
}

pub(super) fn not(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let function = if call.emit.dtype(x)? == DType::Bool { UnaryOp::Not } else { UnaryOp::BitNot };
    own(call.emit.unary(function, x)?)
}

pub(super) fn pow(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let exponent = match call.arguments.get("exponent") {
        Some(super::Argument::Tensor(_)) => None,
        _ => call.optional_float("exponent")?,
    };
    let x = call.operand("self", dtype)?;
    let function = match exponent {
        Some(1.0) => return own(call.emit.push(Op::Identity(Identity {}), &[x])?),
        Some(2.0) => Some(UnaryOp::Square),
        Some(0.5) => Some(UnaryOp::Sqrt),
        Some(-0.5) => Some(UnaryOp::Rsqrt),
        Some(-1.0) => Some(UnaryOp::Reciprocal),
        _ => None,
    };
    if let Some(function) = function {
        return own(call.emit.unary(function, x)?);
    }
    let exponent = call.operand("exponent", dtype)?;
    own(call.emit.binary(BinaryOp::Pow, x, exponent)?)
}

pub(super) fn gelu(call: &mut Call<'_, '_>) -> Outputs {
    match call.text("approximate", "none")?.as_str() {
        "none" => unary(call, UnaryOp::Gelu),
        "tanh" => unary(call, UnaryOp::GeluTanh),
        other => unsupported(format!("`approximate` is `{other}`")),
    }
}

pub(super) fn leaky_relu(call: &mut Call<'_, '_>) -> Outputs {
    let alpha = call.float("negative_slope", 0.01)?;
    unary(call, UnaryOp::LeakyRelu { alpha })
}

pub(super) fn elu(call: &mut Call<'_, '_>) -> Outputs {
    for name in ["scale", "input_scale"] {
        if call.float(name, 1.0)? != 1.0 {
            return unsupported(format!("`{name}` is not 1"));
        }
    }
    let alpha = call.float("alpha", 1.0)?;
    unary(call, UnaryOp::Elu { alpha })
}

pub(super) fn celu(call: &mut Call<'_, '_>) -> Outputs {
    let alpha = call.float("alpha", 1.0)?;
    unary(call, UnaryOp::Celu { alpha })
}

pub(super) fn hardshrink(call: &mut Call<'_, '_>) -> Outputs {
    let lambda = call.float("lambd", 0.5)?;
    unary(call, UnaryOp::Shrink { lambda, bias: 0.0 })
}

pub(super) fn softshrink(call: &mut Call<'_, '_>) -> Outputs {
    let lambda = call.float("lambd", 0.5)?;
    unary(call, UnaryOp::Shrink { lambda, bias: lambda })
}

/// Beyond the threshold it is the input itself, to which the exact function is equal at 32 bits.
pub(super) fn softplus(call: &mut Call<'_, '_>) -> Outputs {
    let (beta, x) = (call.float("beta", 1.0)?, call.tensor("self")?);
    if call.float("threshold", 20.0)? < 20.0 {
        return unsupported("a `threshold` below 20 changes the function");
    }
    if beta == 1.0 {
        return unary(call, UnaryOp::Softplus);
    }
    let x = call.emit.binary_with(BinaryOp::Mul, x, beta)?;
    let y = call.emit.unary(UnaryOp::Softplus, x)?;
    own(call.emit.binary_with(BinaryOp::Div, y, beta)?)
}

pub(super) fn log_sigmoid(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let x = call.emit.unary(UnaryOp::Neg, x)?;
    let y = call.emit.unary(UnaryOp::Softplus, x)?;
    own(call.emit.unary(UnaryOp::Neg, y)?)
}

pub(super) fn glu(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let axis = call.axis(x, "dim", -1)?;
    let extent = call.extent(x, axis)?;
    let value = call.emit.slice(x, axis, 0, extent / 2)?;
    let gate = call.emit.slice(x, axis, extent / 2, extent / 2 * 2)?;
    let gate = call.emit.unary(UnaryOp::Sigmoid, gate)?;
    own(call.emit.binary(BinaryOp::Mul, value, gate)?)
}

/// Numbers that bound a result; an open side is the end of the type.
fn clip(call: &mut Call<'_, '_>, x: ValueId, low: Option<f64>, high: Option<f64>) -> Outputs {
    let (least, most) = crate::range(call.emit.dtype(x)?);
    let low = low.unwrap_or(least).clamp(least, most);
    let high = high.unwrap_or(most).clamp(least, most);
    if low.is_nan() || high.is_nan() {
        return malformed("a bound is no number");
    }
    // Where the bounds cross, every element is the upper one.
    own(call.emit.push(Op::Clip(Clip { low: low.min(high), high }), &[x])?)
}

pub(super) fn clamp(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let mut x = call.operand("self", dtype)?;
    let is_tensor = |call: &Call<'_, '_>, name| matches!(call.arguments.get(name), Some(super::Argument::Tensor(_)));
    if !is_tensor(call, "min") && !is_tensor(call, "max") {
        let (low, high) = (call.optional_float("min")?, call.optional_float("max")?);
        return clip(call, x, low, high);
    }
    for (name, function) in [("min", BinaryOp::Max), ("max", BinaryOp::Min)] {
        if call.has(name) {
            let bound = call.operand(name, dtype)?;
            x = call.emit.binary(function, x, bound)?;
        }
    }
    own(x)
}

pub(super) fn hardtanh(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let (low, high) = (call.float("min_val", -1.0)?, call.float("max_val", 1.0)?);
    clip(call, x, Some(low), Some(high))
}

pub(super) fn relu6(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    clip(call, x, Some(0.0), Some(6.0))
}

/// One slope, or one per channel.
pub(super) fn prelu(call: &mut Call<'_, '_>) -> Outputs {
    let (x, slope) = (call.tensor("self")?, call.tensor("weight")?);
    let rank = call.emit.rank(x)?;
    let count = call.emit.extents(slope)?.iter().product::<i64>();
    let mut shape = vec![1; rank.saturating_sub(1).max(1)];
    shape[0] = count;
    let slope = call.emit.reshape(slope, &shape)?;
    Ok(vec![Made { id: call.emit.push(Op::PRelu(PRelu {}), &[x, slope])?, window: Memory::Own }])
}

/// `self + weight · (end - self)`
pub(super) fn lerp(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (start, end) = (call.operand("self", dtype)?, call.operand("end", dtype)?);
    let weight = call.operand("weight", dtype)?;
    let apart = call.emit.binary(BinaryOp::Sub, end, start)?;
    let part = call.emit.binary(BinaryOp::Mul, apart, weight)?;
    own(call.emit.binary(BinaryOp::Add, start, part)?)
}

/// `self + value · tensor1 · tensor2`, or with a quotient.
pub(super) fn add_of(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    let dtype = call.result_dtype()?;
    let (x, a, b) = (call.operand("self", dtype)?, call.operand("tensor1", dtype)?, call.operand("tensor2", dtype)?);
    let value = call.float("value", 1.0)?;
    let mut part = call.emit.binary(function, a, b)?;
    if value != 1.0 {
        part = call.emit.binary_with(BinaryOp::Mul, part, value)?;
    }
    own(call.emit.binary(BinaryOp::Add, x, part)?)
}

/// Whether elements are neither infinite nor missing.
pub(super) fn is_finite(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    if !call.emit.dtype(x)?.is_float() {
        let extents = call.emit.extents(x)?;
        return own(call.emit.filled(DType::Bool, &extents, 1.0)?);
    }
    let size = call.emit.unary(UnaryOp::Abs, x)?;
    let most = call.emit.scalar(call.emit.dtype(x)?, f64::INFINITY)?;
    own(call.emit.push(Op::Compare(Compare { function: CompareOp::Less }), &[size, most])?)
}

/// Numbers in place of missing and infinite ones.
pub(super) fn nan_to_num(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let dtype = call.emit.dtype(x)?;
    if !dtype.is_float() {
        return own(x);
    }
    let (least, most) = crate::range(dtype);
    let emit = &mut *call.emit;
    let is_missing = emit.unary(UnaryOp::IsNan, x)?;
    let highest = emit.unary(UnaryOp::IsInf { negative: false, positive: true }, x)?;
    let lowest = emit.unary(UnaryOp::IsInf { negative: true, positive: false }, x)?;
    let mut y = x;
    for (name, mask, default) in [("nan", is_missing, 0.0), ("posinf", highest, most), ("neginf", lowest, least)] {
        let number = call.float(name, default)?;
        let number = call.emit.scalar(dtype, number)?;
        y = call.emit.push(Op::Where(Where {}), &[mask, number, y])?;
    }
    own(y)
}

/// The logarithm of the sum of two exponentials, whose larger one is taken out.
pub(super) fn log_add_exp(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let most = call.emit.binary(BinaryOp::Max, a, b)?;
    let apart = call.emit.binary(BinaryOp::Sub, a, b)?;
    let apart = call.emit.unary(UnaryOp::Abs, apart)?;
    let apart = call.emit.unary(UnaryOp::Neg, apart)?;
    let part = call.emit.unary(UnaryOp::Exp, apart)?;
    let part = call.emit.unary(UnaryOp::Log1p, part)?;
    own(call.emit.binary(BinaryOp::Add, most, part)?)
}

/// The part behind the point, with the sign of the number.
pub(super) fn fraction(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let whole = call.emit.unary(UnaryOp::Trunc, x)?;
    own(call.emit.binary(BinaryOp::Sub, x, whole)?)
}

/// The number where it is above a threshold, else a value.
pub(super) fn threshold(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let dtype = call.emit.dtype(x)?;
    let (bound, value) = (call.operand("threshold", dtype)?, call.operand("value", dtype)?);
    let is_above = call.emit.push(Op::Compare(Compare { function: CompareOp::Greater }), &[x, bound])?;
    own(call.emit.push(Op::Where(Where {}), &[is_above, x, value])?)
}

/// The inverse of the sigmoid.
pub(super) fn logit(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor("self")?;
    if let Some(epsilon) = call.optional_float("eps")? {
        x = call.emit.push(Op::Clip(Clip { low: epsilon, high: 1.0 - epsilon }), &[x])?;
    }
    let one = call.emit.scalar(call.emit.dtype(x)?, 1.0)?;
    let rest = call.emit.binary(BinaryOp::Sub, one, x)?;
    let odds = call.emit.binary(BinaryOp::Div, x, rest)?;
    own(call.emit.unary(UnaryOp::Log, odds)?)
}

/// At inference the slope is the middle of its bounds.
pub(super) fn random_relu(call: &mut Call<'_, '_>) -> Outputs {
    if call.flag("training", false)? {
        return unsupported("its slope is random; export the model after `eval()`");
    }
    let alpha = (call.float("lower", 0.125)? + call.float("upper", 1.0 / 3.0)?) / 2.0;
    unary(call, UnaryOp::LeakyRelu { alpha })
}

/// The length of the vector of two elements.
pub(super) fn hypotenuse(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let (a, b) = (call.emit.unary(UnaryOp::Square, a)?, call.emit.unary(UnaryOp::Square, b)?);
    let sum = call.emit.binary(BinaryOp::Add, a, b)?;
    own(call.emit.unary(UnaryOp::Sqrt, sum)?)
}

pub(super) fn atan2(call: &mut Call<'_, '_>) -> Outputs {
    let [y, x] = operands(call)?;
    own(call.emit.angle(y, x)?)
}

pub(super) fn bitwise_shift(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    binary(call, function)
}

/// The complement of the error function.
pub(super) fn erfc(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let y = call.emit.unary(UnaryOp::Erf, x)?;
    let one = call.emit.scalar(call.emit.dtype(x)?, 1.0)?;
    own(call.emit.binary(BinaryOp::Sub, one, y)?)
}

/// Zero below zero, one above, and a given value at it.
pub(super) fn heaviside(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (x, values) = (call.operand("self", dtype)?, call.operand("values", dtype)?);
    let (zero, one) = (call.emit.scalar(dtype, 0.0)?, call.emit.scalar(dtype, 1.0)?);
    let is_above = call.emit.push(Op::Compare(Compare { function: CompareOp::Greater }), &[x, zero])?;
    let is_zero = call.emit.push(Op::Compare(Compare { function: CompareOp::Equal }), &[x, zero])?;
    let y = call.emit.push(Op::Where(Where {}), &[is_above, one, zero])?;
    own(call.emit.push(Op::Where(Where {}), &[is_zero, values, y])?)
}
