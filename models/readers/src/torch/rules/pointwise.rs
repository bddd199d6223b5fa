//! Pointwise functions. Operands of different types are cast to the type that the file states for the result.

use super::{Call, Memory, Outputs, RuleOutput, own_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, Identity, Op, PRelu, UnaryOp, Where};
use models::types::DType;

pub(super) fn unary(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    let mut x = call.tensor_argument(if call.arguments.contains_key("self") { "self" } else { "input" })?;
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
            // Rounding does not change integers.
            return own_output(call.emit.push(Op::Identity(Identity {}), &[x])?);
        }
    }
    own_output(call.emit.unary(function, x)?)
}

/// Rounds to a number of digits behind the point, or to a power of ten if it is negative.
pub(super) fn round(call: &mut Call<'_, '_>) -> Outputs {
    let decimals = call.int_argument("decimals", 0)?;
    let dtype = call.result_dtype()?;
    if decimals == 0 || !dtype.is_float() {
        return unary(call, UnaryOp::Round);
    }
    let x = call.operand_as(first_operand(call), dtype)?;
    // Only positive powers of ten are exact.
    let power = 10f64.powi(i32::try_from(decimals.unsigned_abs()).unwrap_or(i32::MAX));
    let (before, behind) = if decimals > 0 { (BinaryOp::Mul, BinaryOp::Div) } else { (BinaryOp::Div, BinaryOp::Mul) };
    let scaled = call.emit.binary_with(before, x, power)?;
    let rounded = call.emit.unary(UnaryOp::Round, scaled)?;
    own_output(call.emit.binary_with(behind, rounded, power)?)
}

pub(super) fn operands(call: &mut Call<'_, '_>) -> Outcome<[ValueId; 2]> {
    let dtype = call.result_dtype()?;
    Ok([call.operand_as(first_operand(call), dtype)?, call.operand_as("other", dtype)?])
}

fn first_operand(call: &Call<'_, '_>) -> &'static str {
    if call.arguments.contains_key("input") { "input" } else { "self" }
}

pub(super) fn binary(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    let [a, b] = operands(call)?;
    own_output(typed_binary(call, function, a, b)?)
}

/// Applies a binary function. For `bool`, products and minima become `and`; sums and maxima become `or`.
fn typed_binary(call: &mut Call<'_, '_>, function: BinaryOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
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

fn with_alpha(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<ValueId> {
    match call.float_argument("alpha", 1.0)? {
        1.0 => Ok(x),
        alpha => call.emit.binary_with(BinaryOp::Mul, x, alpha),
    }
}

pub(super) fn add(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let b = with_alpha(call, b)?;
    own_output(typed_binary(call, BinaryOp::Add, a, b)?)
}

pub(super) fn sub(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let b = with_alpha(call, b)?;
    own_output(call.emit.binary(BinaryOp::Sub, a, b)?)
}

pub(super) fn rsub(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let a = with_alpha(call, a)?;
    own_output(call.emit.binary(BinaryOp::Sub, b, a)?)
}

pub(super) fn div(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let mode = call.text_argument("rounding_mode", "")?;
    let is_float = call.result_dtype()?.is_float();
    let function = if mode == "floor" { BinaryOp::FloorDiv } else { BinaryOp::Div };
    let y = call.emit.binary(function, a, b)?;
    match mode.as_str() {
        "" | "floor" => own_output(y),
        "trunc" if is_float => own_output(call.emit.unary(UnaryOp::Trunc, y)?),
        "trunc" => own_output(y),
        other => unsupported(format!("`rounding_mode` with the value `{other}`")),
    }
}

fn common_type(call: &Call<'_, '_>) -> Outcome<DType> {
    let x = call.tensor_argument(first_operand(call))?;
    let dtype = call.emit.dtype(x)?;
    let rank = |dtype: DType| (dtype.is_float(), dtype != DType::Bool, dtype.size_bytes());
    if let Ok(Some(other)) = call.optional_tensor("other") {
        let theirs = call.emit.dtype(other)?;
        // A tensor without dimensions changes the type only if its kind (boolean, integer, float) is higher.
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
    let mut dtype = common_type(call)?;
    if dtype == DType::Bool && !matches!(function, CompareOp::Equal | CompareOp::NotEqual) {
        dtype = DType::U8;
    }
    let (a, b) = (call.operand_as(first_operand(call), dtype)?, call.operand_as("other", dtype)?);
    own_output(call.emit.compare(function, a, b)?)
}

fn logical_op(call: &mut Call<'_, '_>, of_flags: BinaryOp, of_integers: Option<BinaryOp>) -> Outputs {
    let dtype = match of_integers {
        Some(_) => call.result_dtype()?,
        None => DType::Bool,
    };
    let (a, b) = (call.operand_as(first_operand(call), dtype)?, call.operand_as("other", dtype)?);
    let function = if dtype == DType::Bool { of_flags } else { of_integers.unwrap_or(of_flags) };
    own_output(call.emit.binary(function, a, b)?)
}

pub(super) fn elementwise_and(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::And, Some(BinaryOp::BitAnd))
}

pub(super) fn elementwise_or(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::Or, Some(BinaryOp::BitOr))
}

pub(super) fn elementwise_xor(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::Xor, Some(BinaryOp::BitXor))
}

pub(super) fn logical_and(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::And, None)
}

pub(super) fn logical_or(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::Or, None)
}

pub(super) fn logical_xor(call: &mut Call<'_, '_>) -> Outputs {
    logical_op(call, BinaryOp::Xor, None)
}

pub(super) fn logical_not(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.operand_as("self", DType::Bool)?;
    own_output(call.emit.unary(UnaryOp::Not, x)?)
}

pub(super) fn elementwise_not(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let function = if call.emit.dtype(x)? == DType::Bool { UnaryOp::Not } else { UnaryOp::BitNot };
    own_output(call.emit.unary(function, x)?)
}

pub(super) fn gelu(call: &mut Call<'_, '_>) -> Outputs {
    match call.text_argument("approximate", "none")?.as_str() {
        "none" => unary(call, UnaryOp::Gelu),
        "tanh" => unary(call, UnaryOp::GeluTanh),
        other => unsupported(format!("`approximate` with the value `{other}`")),
    }
}

pub(super) fn leaky_relu(call: &mut Call<'_, '_>) -> Outputs {
    let alpha = call.float_argument("negative_slope", 0.01)?;
    unary(call, UnaryOp::LeakyRelu { alpha })
}

/// Emits `scale · x` above zero and `scale · alpha · (exp(input_scale · x) - 1)` below.
pub(super) fn elu(call: &mut Call<'_, '_>) -> Outputs {
    let (alpha, scale) = (call.float_argument("alpha", 1.0)?, call.float_argument("scale", 1.0)?);
    let input_scale = call.float_argument("input_scale", 1.0)?;
    if scale == 1.0 && input_scale == 1.0 {
        return unary(call, UnaryOp::Elu { alpha });
    }
    let dtype = call.result_dtype()?;
    let x = call.operand_as(first_operand(call), dtype)?;
    let inner = call.emit.binary_with(BinaryOp::Mul, x, input_scale)?;
    let mut y = call.emit.unary(UnaryOp::Elu { alpha }, inner)?;
    if input_scale != 1.0 {
        let zero = call.emit.add_scalar(dtype, 0.0)?;
        let is_above = call.emit.compare(CompareOp::Greater, x, zero)?;
        y = call.emit.push(Op::Where(Where {}), &[is_above, x, y])?;
    }
    own_output(call.emit.binary_with(BinaryOp::Mul, y, scale)?)
}

pub(super) fn celu(call: &mut Call<'_, '_>) -> Outputs {
    let alpha = call.float_argument("alpha", 1.0)?;
    unary(call, UnaryOp::Celu { alpha })
}

pub(super) fn hardshrink(call: &mut Call<'_, '_>) -> Outputs {
    let lambda = call.float_argument("lambd", 0.5)?;
    unary(call, UnaryOp::Shrink { lambda, bias: 0.0 })
}

pub(super) fn softshrink(call: &mut Call<'_, '_>) -> Outputs {
    let lambda = call.float_argument("lambd", 0.5)?;
    unary(call, UnaryOp::Shrink { lambda, bias: lambda })
}

pub(super) fn log_sigmoid(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    own_output(log_sigmoid_of(call.emit, x)?)
}

pub(super) fn log_sigmoid_of(emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
    let x = emit.unary(UnaryOp::Neg, x)?;
    let y = emit.unary(UnaryOp::Softplus, x)?;
    emit.unary(UnaryOp::Neg, y)
}

pub(super) fn glu(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let axis = call.axis_argument(x, "dim", -1)?;
    let extent = call.axis_extent(x, axis)?;
    let value = call.emit.slice(x, axis, 0, extent / 2)?;
    let gate = call.emit.slice(x, axis, extent / 2, extent / 2 * 2)?;
    let gate = call.emit.unary(UnaryOp::Sigmoid, gate)?;
    own_output(call.emit.binary(BinaryOp::Mul, value, gate)?)
}

/// Clips a value. A float with a single bound keeps the infinity of its open side, which `Clip` would make finite.
fn clip_range(call: &mut Call<'_, '_>, x: ValueId, low: Option<f64>, high: Option<f64>) -> Outputs {
    let (low, high) = (low.filter(|low| *low != f64::NEG_INFINITY), high.filter(|high| *high != f64::INFINITY));
    let single = match (low, high) {
        (Some(low), None) => Some((BinaryOp::Max, low)),
        (None, Some(high)) => Some((BinaryOp::Min, high)),
        _ => None,
    };
    if let Some((function, bound)) = single.filter(|(_, bound)| !bound.is_nan())
        && call.emit.dtype(x)?.is_float()
    {
        return own_output(call.emit.binary_with(function, x, bound)?);
    }
    let (least, most) = crate::finite_range(call.emit.dtype(x)?);
    let low = low.unwrap_or(least).clamp(least, most);
    let high = high.unwrap_or(most).clamp(least, most);
    if low.is_nan() || high.is_nan() {
        return malformed("a bound is NaN");
    }
    // With crossed bounds, every element becomes the upper bound.
    own_output(call.emit.push(Op::Clip(Clip { low: low.min(high), high }), &[x])?)
}

pub(super) fn clamp(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let mut x = call.operand_as("self", dtype)?;
    let is_tensor = |call: &Call<'_, '_>, name| matches!(call.arguments.get(name), Some(super::Argument::Tensor(_)));
    if !is_tensor(call, "min") && !is_tensor(call, "max") {
        let (low, high) = (call.optional_float("min")?, call.optional_float("max")?);
        return clip_range(call, x, low, high);
    }
    for (name, function) in [("min", BinaryOp::Max), ("max", BinaryOp::Min)] {
        if call.has_argument(name) {
            let bound = call.operand_as(name, dtype)?;
            x = call.emit.binary(function, x, bound)?;
        }
    }
    own_output(x)
}

pub(super) fn hardtanh(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let (low, high) = (call.float_argument("min_val", -1.0)?, call.float_argument("max_val", 1.0)?);
    clip_range(call, x, Some(low), Some(high))
}

pub(super) fn relu6(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    clip_range(call, x, Some(0.0), Some(6.0))
}

pub(super) fn prelu(call: &mut Call<'_, '_>) -> Outputs {
    let (x, slope) = (call.tensor_argument("self")?, call.tensor_argument("weight")?);
    let rank = call.emit.rank(x)?;
    let count = call.emit.extents(slope)?.iter().product::<i64>();
    let mut shape = vec![1; rank.saturating_sub(1).max(1)];
    shape[0] = count;
    let slope = call.emit.reshape(slope, &shape)?;
    Ok(vec![RuleOutput { id: call.emit.push(Op::PRelu(PRelu {}), &[x, slope])?, window: Memory::Own }])
}

pub(super) fn lerp(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (start, end) = (call.operand_as("self", dtype)?, call.operand_as("end", dtype)?);
    let weight = call.operand_as("weight", dtype)?;
    let apart = call.emit.binary(BinaryOp::Sub, end, start)?;
    let part = call.emit.binary(BinaryOp::Mul, apart, weight)?;
    own_output(call.emit.binary(BinaryOp::Add, start, part)?)
}

/// Emits `self + value · tensor1 · tensor2`, or the same with a quotient of the tensors.
pub(super) fn add_of(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    let dtype = call.result_dtype()?;
    let (x, a, b) =
        (call.operand_as("self", dtype)?, call.operand_as("tensor1", dtype)?, call.operand_as("tensor2", dtype)?);
    let value = call.float_argument("value", 1.0)?;
    let mut part = call.emit.binary(function, a, b)?;
    if value != 1.0 {
        part = call.emit.binary_with(BinaryOp::Mul, part, value)?;
    }
    own_output(call.emit.binary(BinaryOp::Add, x, part)?)
}

pub(super) fn is_finite(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    if !call.emit.dtype(x)?.is_float() {
        let extents = call.emit.extents(x)?;
        return own_output(call.emit.add_filled(DType::Bool, &extents, 1.0)?);
    }
    let size = call.emit.unary(UnaryOp::Abs, x)?;
    let most = call.emit.add_scalar(call.emit.dtype(x)?, f64::INFINITY)?;
    own_output(call.emit.compare(CompareOp::Less, size, most)?)
}

pub(super) fn nan_to_num(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let dtype = call.emit.dtype(x)?;
    if !dtype.is_float() {
        return own_output(x);
    }
    let (least, most) = crate::finite_range(dtype);
    let emit = &mut *call.emit;
    let is_missing = emit.unary(UnaryOp::IsNan, x)?;
    let highest = emit.unary(UnaryOp::IsInf { negative: false, positive: true }, x)?;
    let lowest = emit.unary(UnaryOp::IsInf { negative: true, positive: false }, x)?;
    let mut y = x;
    for (name, mask, default) in [("nan", is_missing, 0.0), ("posinf", highest, most), ("neginf", lowest, least)] {
        let number = call.float_argument(name, default)?;
        let number = call.emit.add_scalar(dtype, number)?;
        y = call.emit.push(Op::Where(Where {}), &[mask, number, y])?;
    }
    own_output(y)
}

pub(super) fn log_add_exp(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    own_output(log_of_sum(call.emit, a, b, UnaryOp::Exp)?)
}

pub(super) fn log_add_exp2(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    own_output(log_of_sum(call.emit, a, b, UnaryOp::Exp2)?)
}

/// Emits the logarithm of the sum of two powers, of e or 2; the larger one is factored out to avoid overflow.
pub(super) fn log_of_sum(emit: &mut Emit<'_>, a: ValueId, b: ValueId, power: UnaryOp) -> Outcome<ValueId> {
    let most = emit.binary(BinaryOp::Max, a, b)?;
    let apart = emit.binary(BinaryOp::Sub, a, b)?;
    let apart = emit.unary(UnaryOp::Abs, apart)?;
    let apart = emit.unary(UnaryOp::Neg, apart)?;
    let part = emit.unary(power, apart)?;
    let mut part = emit.unary(UnaryOp::Log1p, part)?;
    if power == UnaryOp::Exp2 {
        part = emit.binary_with(BinaryOp::Mul, part, std::f64::consts::LOG2_E)?;
    }
    emit.binary(BinaryOp::Add, most, part)
}

/// Emits the fractional part, which has the sign of the input.
pub(super) fn fractional_part(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let whole = call.emit.unary(UnaryOp::Trunc, x)?;
    own_output(call.emit.binary(BinaryOp::Sub, x, whole)?)
}

pub(super) fn threshold(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let dtype = call.emit.dtype(x)?;
    let (bound, value) = (call.operand_as("threshold", dtype)?, call.operand_as("value", dtype)?);
    let is_above = call.emit.compare(CompareOp::Greater, x, bound)?;
    own_output(call.emit.push(Op::Where(Where {}), &[is_above, x, value])?)
}

pub(super) fn logit(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor_argument("self")?;
    if let Some(epsilon) = call.optional_float("eps")? {
        x = call.emit.push(Op::Clip(Clip { low: epsilon, high: 1.0 - epsilon }), &[x])?;
    }
    let one = call.emit.add_scalar(call.emit.dtype(x)?, 1.0)?;
    let rest = call.emit.binary(BinaryOp::Sub, one, x)?;
    let odds = call.emit.binary(BinaryOp::Div, x, rest)?;
    own_output(call.emit.unary(UnaryOp::Log, odds)?)
}

/// Emits randomised leaky ReLU as in inference: the slope is the mean of its bounds. Refuses training mode.
pub(super) fn random_relu(call: &mut Call<'_, '_>) -> Outputs {
    if call.flag_argument("training", false)? {
        return unsupported("a random slope; export the model after `eval()`");
    }
    let alpha = (call.float_argument("lower", 0.125)? + call.float_argument("upper", 1.0 / 3.0)?) / 2.0;
    unary(call, UnaryOp::LeakyRelu { alpha })
}

pub(super) fn hypotenuse(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = operands(call)?;
    let (a, b) = (call.emit.unary(UnaryOp::Square, a)?, call.emit.unary(UnaryOp::Square, b)?);
    let sum = call.emit.binary(BinaryOp::Add, a, b)?;
    own_output(call.emit.unary(UnaryOp::Sqrt, sum)?)
}

pub(super) fn atan2(call: &mut Call<'_, '_>) -> Outputs {
    let [y, x] = operands(call)?;
    own_output(call.emit.emit_angle(y, x)?)
}

pub(super) fn bitwise_shift(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    binary(call, function)
}

pub(super) fn erfc(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let y = call.emit.unary(UnaryOp::Erf, x)?;
    let one = call.emit.add_scalar(call.emit.dtype(x)?, 1.0)?;
    own_output(call.emit.binary(BinaryOp::Sub, one, y)?)
}

pub(super) fn heaviside(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (x, values) = (call.operand_as("self", dtype)?, call.operand_as("values", dtype)?);
    let (zero, one) = (call.emit.add_scalar(dtype, 0.0)?, call.emit.add_scalar(dtype, 1.0)?);
    let is_above = call.emit.compare(CompareOp::Greater, x, zero)?;
    let is_zero = call.emit.compare(CompareOp::Equal, x, zero)?;
    let y = call.emit.push(Op::Where(Where {}), &[is_above, one, zero])?;
    own_output(call.emit.push(Op::Where(Where {}), &[is_zero, values, y])?)
}
