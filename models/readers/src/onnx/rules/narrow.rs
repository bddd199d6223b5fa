//! Casts to element types that graphs do not support: numbers are rounded to values of the narrow type.

use crate::narrow::{Narrow, SmallFloat};
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, Op, UnaryOp, Where};
use models::types::DType;

/// Operators that only move elements of their first input, so that the value range stays valid.
const MOVES: &[&str] =
    &["Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"];

pub(in crate::onnx) fn propagate_range(emit: &mut Emit<'_>, call: &Call<'_>, outputs: &[ValueId]) {
    let Some(narrow) = call.optional_input(0).and_then(|x| emit.narrow_range(x)) else { return };
    if MOVES.contains(&call.node.op_type.as_str()) {
        outputs.iter().for_each(|&y| emit.set_narrow(y, narrow));
    }
}

pub(super) fn cast_narrow(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    x: ValueId,
    to: DType,
    narrow: Option<Narrow>,
) -> Outcome<ValueId> {
    let Some(narrow) = narrow.filter(|narrow| emit.narrow_range(x) != Some(*narrow)) else { return emit.cast(x, to) };
    let rounded = match narrow {
        Narrow::Whole { low, high } => lowest_bits(emit, x, low, high)?,
        Narrow::Float(SmallFloat::E8M0) => power_of_two(emit, call, x)?,
        Narrow::Float(format) => round_to_format(emit, x, format, call.int_attribute("saturate", 1) != 0)?,
    };
    let y = emit.cast(rounded, to)?;
    emit.set_narrow(y, narrow);
    Ok(y)
}

/// Keeps the lowest bits of integers, with sign extension for signed types.
fn lowest_bits(emit: &mut Emit<'_>, x: ValueId, low: i64, high: i64) -> Outcome<ValueId> {
    let whole = emit.cast(x, DType::I32)?;
    let bits = emit.binary_with(BinaryOp::BitAnd, whole, (high - low) as f64)?;
    if low == 0 {
        return Ok(bits);
    }
    let flipped = emit.binary_with(BinaryOp::BitXor, bits, -low as f64)?;
    emit.binary_with(BinaryOp::Add, flipped, low as f64)
}

/// Returns the largest power of two up to each magnitude. Rounding may give the next power, which callers must allow.
fn power_below(emit: &mut Emit<'_>, x: ValueId, (lowest, highest): (i32, i32)) -> Outcome<ValueId> {
    let size = emit.unary(UnaryOp::Abs, x)?;
    let log = emit.unary(UnaryOp::Log2, size)?;
    let level = emit.unary(UnaryOp::Floor, log)?;
    let level = emit.push(Op::Clip(Clip { low: lowest.into(), high: highest.into() }), &[level])?;
    emit.unary(UnaryOp::Exp2, level)
}

fn emit_select(emit: &mut Emit<'_>, condition: ValueId, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    emit.push(Op::Where(Where {}), &[condition, a, b])
}

/// Rounds to the nearest value of a format, ties to even. [`power_below`] may return the next power of two for numbers
/// just below; these round to that power in any case.
fn round_to_format(emit: &mut Emit<'_>, x: ValueId, format: SmallFloat, saturates: bool) -> Outcome<ValueId> {
    let x = if emit.dtype(x)? == DType::F64 { x } else { emit.cast(x, DType::F32)? };
    let dtype = emit.dtype(x)?;
    let power = power_below(emit, x, format.exponent_range())?;
    let step = emit.binary_with(BinaryOp::Mul, power, f64::from(-format.fraction_bits()).exp2())?;
    let steps = emit.binary(BinaryOp::Div, x, step)?;
    let whole = emit.unary(UnaryOp::Round, steps)?;
    let y = emit.binary(BinaryOp::Mul, whole, step)?;
    let largest = format.max_finite();
    let is_nan = emit.unary(UnaryOp::IsNan, x)?;
    let without_number = if format == SmallFloat::E2M1 { emit.add_scalar(dtype, 0.0)? } else { x };
    let bounded = if saturates || format == SmallFloat::E2M1 {
        emit.push(Op::Clip(Clip { low: -largest, high: largest }), &[y])?
    } else {
        let beyond = if format == SmallFloat::E5M2 { f64::INFINITY } else { f64::NAN };
        let (above, below) = (emit.add_scalar(dtype, beyond)?, emit.add_scalar(dtype, -beyond)?);
        let (most, least) = (emit.add_scalar(dtype, largest)?, emit.add_scalar(dtype, -largest)?);
        let is_above = emit.compare(CompareOp::Greater, y, most)?;
        let is_below = emit.compare(CompareOp::Less, y, least)?;
        let y = emit_select(emit, is_above, above, y)?;
        emit_select(emit, is_below, below, y)?
    };
    emit_select(emit, is_nan, without_number, bounded)
}

/// Rounds to a power of two, by default away from zero.
fn power_of_two(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<ValueId> {
    let x = emit.cast(x, DType::F32)?;
    let (lowest, highest) = SmallFloat::E8M0.exponent_range();
    let power = power_below(emit, x, (lowest, highest))?;
    let twice = emit.binary_with(BinaryOp::Mul, power, 2.0)?;
    let y = match call.text_attribute("round_mode").unwrap_or("up") {
        "up" => {
            let is_above = emit.compare(CompareOp::Greater, x, power)?;
            emit_select(emit, is_above, twice, power)?
        }
        "down" => {
            let half = emit.binary_with(BinaryOp::Mul, power, 0.5)?;
            let is_below = emit.compare(CompareOp::Less, x, power)?;
            let lower = emit_select(emit, is_below, half, power)?;
            let is_twice = emit.compare(CompareOp::GreaterOrEqual, x, twice)?;
            emit_select(emit, is_twice, twice, lower)?
        }
        "nearest" => {
            let middle = emit.binary_with(BinaryOp::Mul, power, 1.5)?;
            let is_above = emit.compare(CompareOp::GreaterOrEqual, x, middle)?;
            emit_select(emit, is_above, twice, power)?
        }
        other => return malformed(format!("`round_mode` has the unknown value `{other}`")),
    };
    let least = f64::from(lowest).exp2();
    let largest = SmallFloat::E8M0.max_finite();
    let bounded = emit.push(Op::Clip(Clip { low: least, high: largest }), &[y])?;
    let bounded = if call.int_attribute("saturate", 1) != 0 {
        bounded
    } else {
        let (most, nan) = (emit.add_scalar(DType::F32, largest)?, emit.add_scalar(DType::F32, f64::NAN)?);
        let is_beyond = emit.compare(CompareOp::Greater, y, most)?;
        emit_select(emit, is_beyond, nan, bounded)?
    };
    let is_nan = emit.unary(UnaryOp::IsNan, x)?;
    emit_select(emit, is_nan, x, bounded)
}
