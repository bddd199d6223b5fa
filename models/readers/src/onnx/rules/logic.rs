//! Comparisons, selection, and logical and bitwise functions.

use super::pointwise::operands;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Op, UnaryOp, Where};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

macro_rules! compare {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
            let (a, b) = operands(emit, call)?;
            Ok(vec![emit.compare(CompareOp::$function, a, b)?])
        })*
    };
}

compare! {
    equal => Equal,
    less => Less,
    less_or_equal => LessOrEqual,
    greater => Greater,
    greater_or_equal => GreaterOrEqual,
}

macro_rules! binary {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
            let (a, b) = operands(emit, call)?;
            Ok(vec![emit.binary(BinaryOp::$function, a, b)?])
        })*
    };
}

binary! {
    and => And,
    or => Or,
    xor => Xor,
    bit_and => BitAnd,
    bit_or => BitOr,
    bit_xor => BitXor,
}

pub(super) fn logical_not(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::Not, call.input(0)?)?])
}

pub(super) fn bit_not(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::BitNot, call.input(0)?)?])
}

pub(super) fn bit_shift(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let function = match call.text_attribute("direction") {
        Some("LEFT") => BinaryOp::ShiftLeft,
        Some("RIGHT") => BinaryOp::ShiftRight,
        other => return malformed(format!("`direction` has the unknown value {other:?}")),
    };
    let (x, mut places) = (call.input(0)?, call.input(1)?);
    let dtype = emit.dtype(x)?;
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if function == BinaryOp::ShiftRight && is_signed {
        // A negative number of places shifts everything out.
        let zero = emit.add_scalar(dtype, 0.0)?;
        let all = emit.add_scalar(dtype, (8 * dtype.size_bytes() - 1) as f64)?;
        let is_negative = emit.compare(CompareOp::Less, places, zero)?;
        places = emit.push(Op::Where(Where {}), &[is_negative, all, places])?;
    }
    Ok(vec![emit.binary(function, x, places)?])
}

pub(super) fn is_nan(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.unary(UnaryOp::IsNan, call.input(0)?)?])
}

pub(super) fn is_inf(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (negative, positive) =
        (call.int_attribute("detect_negative", 1) != 0, call.int_attribute("detect_positive", 1) != 0);
    Ok(vec![emit.unary(UnaryOp::IsInf { negative, positive }, call.input(0)?)?])
}

pub(super) fn select_where(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![emit.push(Op::Where(Where {}), &[call.input(0)?, call.input(1)?, call.input(2)?])?])
}
