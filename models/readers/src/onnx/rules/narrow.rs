//! Casts to element types that graphs do not have: the numbers are rounded to those that the type holds.

use crate::narrow::{Narrow, SmallFloat};
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, Compare, CompareOp, Op, UnaryOp, Where};
use models::types::DType;

/// Operators whose results are elements of their first input.
const MOVES: &[&str] =
    &["Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"];

/// Notes on the results of an operator that moves elements what its first input can hold.
pub(in crate::onnx) fn follow(emit: &mut Emit<'_>, call: &Call<'_>, outputs: &[ValueId]) {
    let Some(narrow) = call.optional(0).and_then(|x| emit.narrow(x)) else { return };
    if MOVES.contains(&call.node.op_type.as_str()) {
        outputs.iter().for_each(|&y| emit.set_narrow(y, narrow));
    }
}

/// The numbers in another type, rounded as the node says where it is one of few bits.
pub(super) fn cast(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    x: ValueId,
    to: DType,
    narrow: Option<Narrow>,
) -> Outcome<ValueId> {
    let Some(narrow) = narrow.filter(|narrow| emit.narrow(x) != Some(*narrow)) else { return emit.cast(x, to) };
    let rounded = match narrow {
        Narrow::Whole { low, high } => lowest_bits(emit, x, low, high)?,
        Narrow::Float(SmallFloat::E8M0) => power_of_two(emit, call, x)?,
        Narrow::Float(format) => rounded(emit, x, format, call.int("saturate", 1) != 0)?,
    };
    let y = emit.cast(rounded, to)?;
    emit.set_narrow(y, narrow);
    Ok(y)
}

/// The lowest bits of integers, of which the highest counts negatively where the type has a sign.
fn lowest_bits(emit: &mut Emit<'_>, x: ValueId, low: i64, high: i64) -> Outcome<ValueId> {
    let whole = emit.cast(x, DType::I32)?;
    let bits = emit.binary_with(BinaryOp::BitAnd, whole, (high - low) as f64)?;
    if low == 0 {
        return Ok(bits);
    }
    let flipped = emit.binary_with(BinaryOp::BitXor, bits, -low as f64)?;
    emit.binary_with(BinaryOp::Add, flipped, low as f64)
}

/// The largest power of two up to the size of each number, within exponents.
///
/// The logarithm of a number just below a power of two may round up to it; callers compare with the number itself.
fn power_below(emit: &mut Emit<'_>, x: ValueId, (lowest, highest): (i32, i32)) -> Outcome<ValueId> {
    let size = emit.unary(UnaryOp::Abs, x)?;
    let log = emit.unary(UnaryOp::Log2, size)?;
    let level = emit.unary(UnaryOp::Floor, log)?;
    let level = emit.push(Op::Clip(Clip { low: lowest.into(), high: highest.into() }), &[level])?;
    emit.unary(UnaryOp::Exp2, level)
}

fn compare(emit: &mut Emit<'_>, function: CompareOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    emit.push(Op::Compare(Compare { function }), &[a, b])
}

fn choose(emit: &mut Emit<'_>, condition: ValueId, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    emit.push(Op::Where(Where {}), &[condition, a, b])
}

/// Rounds to the nearest number of a format, ties to the even one. A number of which the power of two is one too high is so near
/// to that power that it is rounded to it with either step.
fn rounded(emit: &mut Emit<'_>, x: ValueId, format: SmallFloat, saturates: bool) -> Outcome<ValueId> {
    let x = if emit.dtype(x)? == DType::F64 { x } else { emit.cast(x, DType::F32)? };
    let dtype = emit.dtype(x)?;
    let power = power_below(emit, x, format.exponents())?;
    let step = emit.binary_with(BinaryOp::Mul, power, f64::from(-format.fraction_bits()).exp2())?;
    let steps = emit.binary(BinaryOp::Div, x, step)?;
    let whole = emit.unary(UnaryOp::Round, steps)?;
    let y = emit.binary(BinaryOp::Mul, whole, step)?;
    let largest = format.largest();
    let is_nan = emit.unary(UnaryOp::IsNan, x)?;
    let without_number = if format == SmallFloat::E2M1 { emit.scalar(dtype, 0.0)? } else { x };
    let bounded = if saturates || format == SmallFloat::E2M1 {
        emit.push(Op::Clip(Clip { low: -largest, high: largest }), &[y])?
    } else {
        let beyond = if format == SmallFloat::E5M2 { f64::INFINITY } else { f64::NAN };
        let (above, below) = (emit.scalar(dtype, beyond)?, emit.scalar(dtype, -beyond)?);
        let (most, least) = (emit.scalar(dtype, largest)?, emit.scalar(dtype, -largest)?);
        let is_above = compare(emit, CompareOp::Greater, y, most)?;
        let is_below = compare(emit, CompareOp::Less, y, least)?;
        let y = choose(emit, is_above, above, y)?;
        choose(emit, is_below, below, y)?
    };
    choose(emit, is_nan, without_number, bounded)
}

/// Rounds to a power of two, by default away from zero.
fn power_of_two(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<ValueId> {
    let x = emit.cast(x, DType::F32)?;
    let (lowest, highest) = SmallFloat::E8M0.exponents();
    let power = power_below(emit, x, (lowest, highest))?;
    let twice = emit.binary_with(BinaryOp::Mul, power, 2.0)?;
    let y = match call.text("round_mode").unwrap_or("up") {
        "up" => {
            let is_above = compare(emit, CompareOp::Greater, x, power)?;
            choose(emit, is_above, twice, power)?
        }
        "down" => {
            let half = emit.binary_with(BinaryOp::Mul, power, 0.5)?;
            let is_below = compare(emit, CompareOp::Less, x, power)?;
            let lower = choose(emit, is_below, half, power)?;
            let is_twice = compare(emit, CompareOp::GreaterOrEqual, x, twice)?;
            choose(emit, is_twice, twice, lower)?
        }
        "nearest" => {
            let middle = emit.binary_with(BinaryOp::Mul, power, 1.5)?;
            let is_above = compare(emit, CompareOp::GreaterOrEqual, x, middle)?;
            choose(emit, is_above, twice, power)?
        }
        other => return malformed(format!("`round_mode` is `{other}`")),
    };
    let least = f64::from(lowest).exp2();
    let largest = SmallFloat::E8M0.largest();
    let bounded = emit.push(Op::Clip(Clip { low: least, high: largest }), &[y])?;
    let bounded = if call.int("saturate", 1) != 0 {
        bounded
    } else {
        let (most, nan) = (emit.scalar(DType::F32, largest)?, emit.scalar(DType::F32, f64::NAN)?);
        let is_beyond = compare(emit, CompareOp::Greater, y, most)?;
        choose(emit, is_beyond, nan, bounded)?
    };
    let is_nan = emit.unary(UnaryOp::IsNan, x)?;
    choose(emit, is_nan, x, bounded)
}
