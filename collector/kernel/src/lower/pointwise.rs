//! Lowers element-wise operators, with operands broadcast to the output.

use super::{Element, Output, Part, Result, Writer};
use crate::tvm::expression::{Expression, Tensor, constant, index_constant};
use models::operators::{BiasAdd, Binary, Cast, Clip, Compare, ScaleShift, Unary};
use models::{BinaryOp, CompareOp, DType, Op, UnaryOp};

type PointwiseRule<'a> = Box<dyn Fn(&[Expression]) -> Element + 'a>;

pub(super) fn lower_pointwise(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    let dtype = output.dtype;
    let read = |operand: usize, place: &[Expression]| broadcast_read(&inputs[operand], place);
    let (name, element): (&str, PointwiseRule) = match op {
        Op::ScaleShift(ScaleShift { axis }) => (
            "scale_shift",
            Box::new(|place| {
                let channel = [place[axis_of(*axis, place.len())].clone()];
                read(0, place)?.mul(&inputs[1].element_at(&channel)?)?.add(&inputs[2].element_at(&channel)?)
            }),
        ),
        Op::BiasAdd(BiasAdd { axis }) => (
            "bias",
            Box::new(|place| {
                let channel = [place[axis_of(*axis, place.len())].clone()];
                read(0, place)?.add(&inputs[1].element_at(&channel)?)
            }),
        ),
        Op::Unary(Unary { function }) => {
            (function.name(), Box::new(|place| apply_unary(*function, &read(0, place)?, inputs[0].dtype)))
        }
        Op::Clip(Clip { low, high }) => {
            let (low, high) = (saturate_constant(dtype, *low), saturate_constant(dtype, *high));
            ("clip", Box::new(move |place| read(0, place)?.max(&constant(dtype, low)?)?.min(&constant(dtype, high)?)))
        }
        Op::Binary(Binary { function }) => {
            (function.name(), Box::new(|place| apply_binary(*function, &read(0, place)?, &read(1, place)?, dtype)))
        }
        Op::Compare(Compare { function }) => {
            let compares_itself = inputs[0].dtype.is_float() && inputs[0].is_same(&inputs[1])?;
            let element = move |place: &[Expression]| match compares_itself {
                true => compare_with_itself(*function, &read(0, place)?, inputs[0].dtype),
                false => compare_elements(*function, &read(0, place)?, &read(1, place)?, inputs[0].dtype),
            };
            (function.name(), Box::new(element))
        }
        Op::Where(_) => ("where", Box::new(|place| read(0, place)?.select(&read(1, place)?, &read(2, place)?))),
        Op::PRelu(_) => (
            "p_relu",
            Box::new(|place| {
                let x = read(0, place)?;
                x.less(&constant(dtype, 0.0)?)?.select(&x.mul(&read(1, place)?)?, &x)
            }),
        ),
        Op::Cast(Cast { to }) => {
            ("cast", Box::new(|place| cast_element(&read(0, place)?, inputs[0].dtype, *to, output.place > 0)))
        }
        Op::Identity(_) => ("identity", Box::new(|place| read(0, place))),
        _ => return Ok(None),
    };
    writer
        .add_block(&output.block_name(name), output.block_part(), output.element_type(), |place| element(place))
        .map(Some)
}

pub(super) fn broadcast_read(operand: &Tensor, place: &[Expression]) -> Element {
    let skipped = place.len() - operand.extents.len();
    let indices = operand
        .extents
        .iter()
        .zip(&place[skipped..])
        .map(|(extent, variable)| if extent.is_always(1) { index_constant(0) } else { Ok(variable.clone()) })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    operand.element_at(&indices)
}

/// Converts an axis to an index; a negative axis counts from the end.
pub(super) fn axis_of(axis: i64, rank: usize) -> usize {
    let rank = i64::try_from(rank).expect("a rank is small");
    usize::try_from(if axis < 0 { axis + rank } else { axis }).expect("checked by shape inference")
}

/// Converts an element. TVM computes in 32 bits what has the type bf16 and drops casts between the two, so casts to bf16,
/// and those from bf16 of an element that another step has computed, round explicitly.
fn cast_element(x: &Expression, from: DType, to: DType, is_computed: bool) -> Element {
    match (from, to) {
        (DType::BF16, DType::BF16) => Ok(x.clone()),
        (DType::BF16, _) if is_computed => convert(round_to_bfloat(&x.cast(DType::F32)?)?, DType::F32, to),
        // These have at most the eight digits of bf16.
        (DType::Bool | DType::I8 | DType::U8, DType::BF16) => x.cast(to),
        (_, DType::BF16) => round_to_bfloat(&convert(x.clone(), from, DType::F32)?)?.cast(to),
        _ => x.cast(to),
    }
}

/// Rounds a number of 32 bits to the nearest one of bf16, ties to even; NaN stays NaN.
fn round_to_bfloat(x: &Expression) -> Element {
    let number = |number: i64| constant(DType::U32, number as f64);
    let bits = x.call_unary("tirx.reinterpret", DType::U32)?;
    let is_odd = bits.shift_right(&number(16)?)?.bit_and(&number(1)?)?;
    let rounded = bits.add(&is_odd.add(&number(0x7FFF)?)?)?.bit_and(&number(0xFFFF_0000)?)?;
    let is_nan = bits.bit_and(&number(0x7FFF_FFFF)?)?.greater(&number(0x7F80_0000)?)?;
    is_nan.select(&bits, &rounded)?.call_unary("tirx.reinterpret", DType::F32)
}

/// Rounds sums, which may be padded, to the type of the result.
pub(super) fn narrow_sums(writer: &mut Writer, sums: Tensor, output: &Output) -> Result<Tensor> {
    if sums.dtype == output.dtype {
        return Ok(sums);
    }
    writer.add_block(&output.block_name("narrow"), Part::Epilogue, (output.dtype, &sums.extents), |i| {
        sums.element_at(i)?.cast(output.dtype)
    })
}

/// Converts an element to another type; a cast to the same type is omitted.
pub(super) fn convert(x: Expression, from: DType, to: DType) -> Element {
    if from == to { Ok(x) } else { x.cast(to) }
}

/// Reads an element in the type of sums.
pub(super) fn read_wide(tensor: &Tensor, at: &[Expression]) -> Element {
    convert(tensor.element_at(at)?, tensor.dtype, wide_type(tensor.dtype))
}

/// Clamps a constant to the range of its type: a bound outside of it has no effect and cannot be represented.
fn saturate_constant(dtype: DType, number: f64) -> f64 {
    if dtype.is_float() {
        return number;
    }
    let bits = i32::try_from(8 * dtype.size_bytes()).expect("an element has few bytes");
    let is_unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool);
    let (low, values) = if is_unsigned { (0.0, bits) } else { (-f64::from(bits - 1).exp2(), bits - 1) };
    number.clamp(low, f64::from(values).exp2() - 1.0)
}

/// Returns the type in which transcendental functions are computed: processors have none for half precision.
pub(super) fn wide_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Returns `weight`, which is `exp(difference)`, or 0 if the difference is below `least`. For each number that is smaller
/// than the smallest normal one, as weights of masked positions are, a CPU takes over a hundred cycles.
pub(super) fn drop_tiny_weight(weight: &Expression, difference: &Expression, least: f64, dtype: DType) -> Element {
    match dtype {
        DType::F32 => Ok(difference.less(&constant(dtype, least)?)?.select(&constant(dtype, 0.0)?, weight)?),
        _ => Ok(weight.clone()),
    }
}

pub(super) fn apply_unary(function: UnaryOp, x: &Expression, dtype: DType) -> Element {
    let is_exact = match function {
        UnaryOp::Relu
        | UnaryOp::LeakyRelu { .. }
        | UnaryOp::HardSigmoid
        | UnaryOp::HardSwish
        | UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Square
        | UnaryOp::Sign
        | UnaryOp::ThresholdedRelu { .. }
        | UnaryOp::Not
        | UnaryOp::BitNot => true,
        _ => wide_type(dtype) == dtype,
    };
    if is_exact {
        return unary_in(function, x, dtype);
    }
    let result = unary_in(function, &x.cast(wide_type(dtype))?, wide_type(dtype))?;
    match function {
        UnaryOp::IsNan | UnaryOp::IsInf { .. } => Ok(result),
        _ => result.cast(dtype),
    }
}

fn unary_in(function: UnaryOp, x: &Expression, dtype: DType) -> Element {
    let number = |value: f64| constant(dtype, value);
    let clipped = |x: &Expression, slope: f64, offset: f64| {
        x.mul(&number(slope)?)?.add(&number(offset)?)?.max(&number(0.0)?)?.min(&number(1.0)?)
    };
    let is_negative = || x.less(&number(0.0)?);
    let sigmoid = |x: &Expression| x.call_unary("tirx.sigmoid", dtype);
    // `exp` gets only arguments up to zero, so that the branch that is not selected does not overflow.
    let elu = |x: &Expression, alpha: f64| {
        let grown = x.min(&number(0.0)?)?.call_unary("tirx.exp", dtype)?.sub(&number(1.0)?)?.mul(&number(alpha)?)?;
        x.less(&number(0.0)?)?.select(&grown, x)
    };
    let softplus = || {
        let small = number(0.0)?.sub(&x.abs()?)?.call_unary("tirx.exp", dtype)?.call_unary("tirx.log1p", dtype)?;
        x.max(&number(0.0)?)?.add(&small)
    };
    match function {
        UnaryOp::Relu => x.max(&number(0.0)?),
        UnaryOp::LeakyRelu { alpha } => is_negative()?.select(&x.mul(&number(alpha)?)?, x),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::HardSigmoid => clipped(x, 1.0 / 6.0, 0.5),
        UnaryOp::HardSigmoidOf { slope, offset } => clipped(x, slope, offset),
        UnaryOp::Tanh => x.call_unary("tirx.tanh", dtype),
        UnaryOp::Silu => x.mul(&sigmoid(x)?),
        UnaryOp::Swish { beta } => x.mul(&sigmoid(&x.mul(&number(beta)?)?)?),
        UnaryOp::HardSwish => x.mul(&clipped(x, 1.0 / 6.0, 0.5)?),
        UnaryOp::Gelu => {
            let erf = x.mul(&number(std::f64::consts::FRAC_1_SQRT_2)?)?.call_unary("tirx.erf", dtype)?;
            x.mul(&number(0.5)?)?.mul(&erf.add(&number(1.0)?)?)
        }
        UnaryOp::GeluTanh => {
            let factor = (2.0 / std::f64::consts::PI).sqrt();
            // `factor · (x + 0.044715 x³)`
            let cubed = x.mul(x)?.mul(&number(0.044_715 * factor)?)?.add(&number(factor)?)?.mul(x)?;
            x.mul(&number(0.5)?)?.mul(&cubed.call_unary("tirx.tanh", dtype)?.add(&number(1.0)?)?)
        }
        UnaryOp::Exp => x.call_unary("tirx.exp", dtype),
        UnaryOp::Exp2 => x.call_unary("tirx.exp2", dtype),
        // Near zero, `exp(x) - 1` cancels; `2 sinh(x / 2) exp(x / 2)` is equal and stays precise.
        UnaryOp::Expm1 => {
            let half = x.mul(&number(0.5)?)?;
            vector_sinh(&half, dtype)?.mul(&half.call_unary("tirx.exp", dtype)?)?.mul(&number(2.0)?)
        }
        UnaryOp::Log => x.call_unary("tirx.log", dtype),
        UnaryOp::Log2 => x.call_unary("prim.log2", dtype),
        UnaryOp::Log10 => x.call_unary("tirx.log10", dtype),
        UnaryOp::Log1p => x.call_unary("tirx.log1p", dtype),
        UnaryOp::Sqrt => x.call_unary("tirx.sqrt", dtype),
        UnaryOp::Rsqrt => number(1.0)?.div(&x.call_unary("tirx.sqrt", dtype)?),
        UnaryOp::Reciprocal => number(1.0)?.div(x),
        UnaryOp::Square => x.mul(x),
        UnaryOp::Neg => number(0.0)?.sub(x),
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) => x.min(&number(1.0)?),
        UnaryOp::Sign => {
            // Neither above nor below zero are zero and NaN.
            let below = is_negative()?.select(&number(-1.0)?, x)?;
            x.greater(&number(0.0)?)?.select(&number(1.0)?, &below)
        }
        UnaryOp::Sin => x.call_unary("tirx.sin", dtype),
        UnaryOp::Cos => x.call_unary("tirx.cos", dtype),
        UnaryOp::Tan => x.call_unary("tirx.tan", dtype),
        UnaryOp::Asin => x.call_unary("tirx.asin", dtype),
        UnaryOp::Acos => x.call_unary("tirx.acos", dtype),
        UnaryOp::Atan => x.call_unary("tirx.atan", dtype),
        UnaryOp::Sinh => vector_sinh(x, dtype),
        UnaryOp::Cosh => {
            let grown = x.call_unary("tirx.exp", dtype)?;
            grown.add(&number(1.0)?.div(&grown)?)?.mul(&number(0.5)?)
        }
        UnaryOp::Asinh => x.call_unary("tirx.asinh", dtype),
        UnaryOp::Acosh => x.call_unary("tirx.acosh", dtype),
        UnaryOp::Atanh => x.call_unary("tirx.atanh", dtype),
        UnaryOp::Erf => x.call_unary("tirx.erf", dtype),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.nearest(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::Elu { alpha } => elu(x, alpha),
        UnaryOp::Selu => elu(x, 1.673_263_242_354_377_2)?.mul(&number(1.050_700_987_355_480_5)?),
        UnaryOp::Celu { alpha } => elu(&x.mul(&number(1.0 / alpha)?)?, 1.0)?.mul(&number(alpha)?),
        UnaryOp::Softplus => softplus(),
        UnaryOp::Softsign => x.div(&x.abs()?.add(&number(1.0)?)?),
        // `tanh(log(1 + e))` is `n / (n + 2)` with `n = e (e + 2)`; beyond 20 it is one.
        UnaryOp::Mish => {
            let grown = x.min(&number(20.0)?)?.call_unary("tirx.exp", dtype)?;
            let above = grown.mul(&grown.add(&number(2.0)?)?)?;
            x.mul(&above.div(&above.add(&number(2.0)?)?)?)
        }
        UnaryOp::ThresholdedRelu { alpha } => x.greater(&number(alpha)?)?.select(x, &number(0.0)?),
        UnaryOp::Shrink { lambda, bias } => {
            let above = x.greater(&number(lambda)?)?.select(&x.sub(&number(bias)?)?, &number(0.0)?)?;
            x.less(&number(-lambda)?)?.select(&x.add(&number(bias)?)?, &above)
        }
        UnaryOp::IsNan => x.is_nan(),
        UnaryOp::IsInf { negative: true, positive: true } => x.is_inf(),
        UnaryOp::IsInf { negative: true, positive: false } => x.is_inf()?.and(&is_negative()?),
        UnaryOp::IsInf { negative: false, positive: true } => x.is_inf()?.and(&x.greater(&number(0.0)?)?),
        UnaryOp::IsInf { negative: false, positive: false } => constant(DType::Bool, 0.0),
        UnaryOp::Not => x.not(),
        UnaryOp::BitNot => x.bit_not(),
    }
}

/// Computes the hyperbolic sine, which TVM lacks for vectors. A series near zero avoids cancellation.
fn vector_sinh(x: &Expression, dtype: DType) -> Element {
    const TERMS: i32 = 10;
    let number = |value: f64| constant(dtype, value);
    let square = x.mul(x)?;
    let mut series = number(1.0)?;
    for term in (1..TERMS).rev() {
        let factor = 1.0 / f64::from(2 * term * (2 * term + 1));
        series = series.mul(&square)?.mul(&number(factor)?)?.add(&number(1.0)?)?;
    }
    let grown = x.call_unary("tirx.exp", dtype)?;
    let difference = grown.sub(&number(1.0)?.div(&grown)?)?.mul(&number(0.5)?)?;
    x.abs()?.less(&number(1.0)?)?.select(&series.mul(x)?, &difference)
}

fn apply_binary(function: BinaryOp, left: &Expression, right: &Expression, dtype: DType) -> Element {
    // For narrower floats, the quotient and its product with the divisor are exact in `f64`, and so is the remainder.
    let remainder = |round: fn(&Expression) -> Element| {
        let (left, right) = (left.cast(DType::F64)?, right.cast(DType::F64)?);
        left.sub(&round(&left.div(&right)?)?.mul(&right)?)?.cast(dtype)
    };
    match function {
        BinaryOp::Add => left.add(right),
        BinaryOp::Sub => left.sub(right),
        BinaryOp::Mul => left.mul(right),
        BinaryOp::Div => left.div(right),
        BinaryOp::Max => left.max(right),
        BinaryOp::Min => left.min(right),
        BinaryOp::Pow if wide_type(dtype) == dtype => left.function_with("tirx.pow", right, dtype),
        BinaryOp::Pow => {
            let wide = wide_type(dtype);
            left.cast(wide)?.function_with("tirx.pow", &right.cast(wide)?, wide)?.cast(dtype)
        }
        BinaryOp::Fmod if dtype.is_float() => remainder(Expression::trunc),
        BinaryOp::Fmod => left.truncated_mod(right),
        BinaryOp::Mod if dtype.is_float() => remainder(Expression::floor),
        BinaryOp::Mod => left.floor_mod(right),
        BinaryOp::FloorDiv if dtype.is_float() => {
            left.cast(DType::F64)?.div(&right.cast(DType::F64)?)?.floor()?.cast(dtype)
        }
        BinaryOp::FloorDiv => left.floor_div(right),
        BinaryOp::BitAnd => left.bit_and(right),
        BinaryOp::BitOr => left.bit_or(right),
        BinaryOp::BitXor => left.bit_xor(right),
        BinaryOp::ShiftLeft => left.shift_left(right),
        BinaryOp::ShiftRight => left.shift_right(right),
        BinaryOp::And => left.and(right),
        BinaryOp::Or => left.or(right),
        BinaryOp::Xor => compare_elements(CompareOp::NotEqual, left, right, dtype),
    }
}

fn compare_elements(function: CompareOp, left: &Expression, right: &Expression, dtype: DType) -> Element {
    let narrow = |x: &Expression| if dtype == DType::Bool { x.cast(DType::U8) } else { Ok(x.clone()) };
    match function {
        // TVM's code generator treats booleans as floats when it compares them.
        CompareOp::Equal => narrow(left)?.equal(&narrow(right)?),
        CompareOp::NotEqual => narrow(left)?.differs(&narrow(right)?),
        CompareOp::Less => left.less(right),
        CompareOp::LessOrEqual => left.at_most(right),
        CompareOp::Greater => left.greater(right),
        CompareOp::GreaterOrEqual => left.at_least(right),
    }
}

/// Compares a number with itself, which TVM takes for equal although NaN is not.
fn compare_with_itself(function: CompareOp, x: &Expression, dtype: DType) -> Element {
    let (otherwise, for_nan) = match function {
        CompareOp::Equal | CompareOp::LessOrEqual | CompareOp::GreaterOrEqual => (1.0, 0.0),
        CompareOp::NotEqual => (0.0, 1.0),
        CompareOp::Less | CompareOp::Greater => (0.0, 0.0),
    };
    let is_nan = apply_unary(UnaryOp::IsNan, x, dtype)?;
    is_nan.select(&constant(DType::Bool, for_nan)?, &constant(DType::Bool, otherwise)?)
}
