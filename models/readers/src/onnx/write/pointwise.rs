//! Functions of single elements.

use super::sheet::{Sheet, flag, float, int, text};
use super::{Made, unwritten};
use crate::onnx::messages::Attribute;
use models::graph::Node;
use models::operators::{
    BiasAdd, Binary, BinaryOp, Cast, Clip, Compare, CompareOp, Dequantize, Op, Quantize, Requantize, ScaleShift, Unary,
    UnaryOp,
};
use models::types::DType;

pub(super) fn pointwise(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let inputs = &node.inputs;
    let (rank, dtype) = (sheet.rank(inputs[0]), sheet.dtype(inputs[0]));
    let x = sheet.name(inputs[0]);
    match &node.op {
        Op::BiasAdd(BiasAdd { axis }) => {
            let bias = sheet.along(inputs[1], *axis, rank);
            Ok(sheet.call("Add", &[&x, &bias], Vec::new()))
        }
        Op::ScaleShift(ScaleShift { axis }) => {
            let (scale, shift) = (sheet.along(inputs[1], *axis, rank), sheet.along(inputs[2], *axis, rank));
            let scaled = sheet.call("Mul", &[&x, &scale], Vec::new());
            Ok(sheet.call("Add", &[&scaled, &shift], Vec::new()))
        }
        Op::Unary(Unary { function }) => Ok(unary(sheet, *function, &x, dtype)),
        Op::Clip(Clip { low, high }) => {
            let (low, high) = (sheet.number(dtype, *low), sheet.number(dtype, *high));
            Ok(sheet.call("Clip", &[&x, &low, &high], Vec::new()))
        }
        Op::Binary(Binary { function }) => {
            let other = sheet.name(inputs[1]);
            binary(sheet, *function, &x, &other, dtype)
        }
        Op::Cast(Cast { to }) => Ok(sheet.cast(&x, *to)),
        Op::Compare(Compare { function }) => {
            let other = sheet.name(inputs[1]);
            let operator = match function {
                CompareOp::Equal | CompareOp::NotEqual => "Equal",
                CompareOp::Less => "Less",
                CompareOp::LessOrEqual => "LessOrEqual",
                CompareOp::Greater => "Greater",
                CompareOp::GreaterOrEqual => "GreaterOrEqual",
            };
            let is_so = sheet.call(operator, &[&x, &other], Vec::new());
            Ok(match function {
                CompareOp::NotEqual => sheet.call("Not", &[&is_so], Vec::new()),
                _ => is_so,
            })
        }
        Op::Where(_) => {
            let (yes, no) = (sheet.name(inputs[1]), sheet.name(inputs[2]));
            Ok(sheet.call("Where", &[&x, &yes, &no], Vec::new()))
        }
        Op::PRelu(_) => {
            let slope = sheet.name(inputs[1]);
            Ok(sheet.call("PRelu", &[&x, &slope], Vec::new()))
        }
        Op::Quantize(Quantize { to, axis }) => {
            if !matches!(to, DType::I8 | DType::U8) {
                return Err(format!("ONNX quantises to i8 and u8 in this version, not to {to}"));
            }
            let scale = sheet.name(inputs[1]);
            // Without a zero point the result would have no sign.
            let zero = match inputs.get(2) {
                Some(zero) => sheet.name(*zero),
                None => sheet.filled(*to, &sheet.extents(inputs[1]), 0.0),
            };
            Ok(sheet.call("QuantizeLinear", &[&x, &scale, &zero], vec![int("axis", *axis)]))
        }
        Op::Dequantize(Dequantize { axis }) => {
            let names = sheet.names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.call("DequantizeLinear", &names, vec![int("axis", *axis)]))
        }
        Op::Requantize(Requantize { to, axis, zero, low, high }) => {
            let wide = sheet.dtype(inputs[1]);
            let multiplier = sheet.along(inputs[1], *axis, rank);
            let wide_x = sheet.cast(&x, wide);
            let scaled = sheet.call("Mul", &[&wide_x, &multiplier], Vec::new());
            let rounded = sheet.call("Round", &[&scaled], Vec::new());
            let zero = sheet.number(wide, *zero as f64);
            let moved = sheet.call("Add", &[&rounded, &zero], Vec::new());
            let (low, high) = (sheet.number(wide, *low as f64), sheet.number(wide, *high as f64));
            let inside = sheet.call("Clip", &[&moved, &low, &high], Vec::new());
            Ok(sheet.cast(&inside, *to))
        }
        other => unwritten(other),
    }
}

/// A function of one element: the operator of that name, or a few that make it.
fn unary(sheet: &mut Sheet<'_>, function: UnaryOp, x: &str, dtype: DType) -> String {
    let named = |operator: &'static str| (operator, Vec::new());
    let (operator, attributes): (&str, Vec<Attribute>) = match function {
        UnaryOp::Relu => named("Relu"),
        UnaryOp::LeakyRelu { alpha } => ("LeakyRelu", vec![float("alpha", alpha)]),
        UnaryOp::Sigmoid => named("Sigmoid"),
        UnaryOp::HardSigmoid => ("HardSigmoid", vec![float("alpha", 1.0 / 6.0), float("beta", 0.5)]),
        UnaryOp::HardSigmoidOf { slope, offset } => ("HardSigmoid", vec![float("alpha", slope), float("beta", offset)]),
        UnaryOp::Tanh => named("Tanh"),
        UnaryOp::HardSwish => named("HardSwish"),
        UnaryOp::Gelu => named("Gelu"),
        UnaryOp::GeluTanh => ("Gelu", vec![text("approximate", "tanh")]),
        UnaryOp::Exp => named("Exp"),
        UnaryOp::Log => named("Log"),
        UnaryOp::Sqrt => named("Sqrt"),
        UnaryOp::Neg => named("Neg"),
        UnaryOp::Abs => named("Abs"),
        UnaryOp::Sin => named("Sin"),
        UnaryOp::Cos => named("Cos"),
        UnaryOp::Tan => named("Tan"),
        UnaryOp::Asin => named("Asin"),
        UnaryOp::Acos => named("Acos"),
        UnaryOp::Atan => named("Atan"),
        UnaryOp::Sinh => named("Sinh"),
        UnaryOp::Cosh => named("Cosh"),
        UnaryOp::Asinh => named("Asinh"),
        UnaryOp::Acosh => named("Acosh"),
        UnaryOp::Atanh => named("Atanh"),
        UnaryOp::Erf => named("Erf"),
        UnaryOp::Reciprocal => named("Reciprocal"),
        UnaryOp::Floor => named("Floor"),
        UnaryOp::Ceil => named("Ceil"),
        UnaryOp::Round => named("Round"),
        UnaryOp::Sign => named("Sign"),
        UnaryOp::Elu { alpha } => ("Elu", vec![float("alpha", alpha)]),
        UnaryOp::Selu => named("Selu"),
        UnaryOp::Celu { alpha } => ("Celu", vec![float("alpha", alpha)]),
        UnaryOp::Softplus => named("Softplus"),
        UnaryOp::Softsign => named("Softsign"),
        UnaryOp::Mish => named("Mish"),
        UnaryOp::ThresholdedRelu { alpha } => ("ThresholdedRelu", vec![float("alpha", alpha)]),
        UnaryOp::Shrink { lambda, bias } => ("Shrink", vec![float("lambd", lambda), float("bias", bias)]),
        UnaryOp::IsNan => named("IsNaN"),
        UnaryOp::IsInf { negative, positive } => {
            ("IsInf", vec![flag("detect_negative", negative), flag("detect_positive", positive)])
        }
        UnaryOp::Not => named("Not"),
        UnaryOp::BitNot => named("BitwiseNot"),
        UnaryOp::Silu
        | UnaryOp::Swish { .. }
        | UnaryOp::Exp2
        | UnaryOp::Expm1
        | UnaryOp::Log2
        | UnaryOp::Log10
        | UnaryOp::Log1p
        | UnaryOp::Rsqrt
        | UnaryOp::Square
        | UnaryOp::Trunc => return composed(sheet, function, x, dtype),
    };
    sheet.call(operator, &[x], attributes)
}

/// What has no operator of its own.
fn composed(sheet: &mut Sheet<'_>, function: UnaryOp, x: &str, dtype: DType) -> String {
    let mut with = |operator: &str, left: &str, number: f64| {
        let number = sheet.number(dtype, number);
        sheet.call(operator, &[left, &number], Vec::new())
    };
    match function {
        UnaryOp::Silu => {
            let gate = sheet.call("Sigmoid", &[x], Vec::new());
            sheet.call("Mul", &[x, &gate], Vec::new())
        }
        UnaryOp::Swish { beta } => {
            let scaled = with("Mul", x, beta);
            let gate = sheet.call("Sigmoid", &[&scaled], Vec::new());
            sheet.call("Mul", &[x, &gate], Vec::new())
        }
        UnaryOp::Exp2 => {
            let two = sheet.number(dtype, 2.0);
            sheet.call("Pow", &[&two, x], Vec::new())
        }
        UnaryOp::Expm1 => {
            let power = sheet.call("Exp", &[x], Vec::new());
            let one = sheet.number(dtype, 1.0);
            sheet.call("Sub", &[&power, &one], Vec::new())
        }
        UnaryOp::Log2 | UnaryOp::Log10 => {
            let log = sheet.call("Log", &[x], Vec::new());
            let base: f64 = if function == UnaryOp::Log2 { 2.0 } else { 10.0 };
            let factor = sheet.number(dtype, 1.0 / base.ln());
            sheet.call("Mul", &[&log, &factor], Vec::new())
        }
        UnaryOp::Log1p => {
            let above = with("Add", x, 1.0);
            sheet.call("Log", &[&above], Vec::new())
        }
        UnaryOp::Rsqrt => {
            let root = sheet.call("Sqrt", &[x], Vec::new());
            sheet.call("Reciprocal", &[&root], Vec::new())
        }
        UnaryOp::Square => sheet.call("Mul", &[x, x], Vec::new()),
        UnaryOp::Trunc => {
            let (sign, size) = (sheet.call("Sign", &[x], Vec::new()), sheet.call("Abs", &[x], Vec::new()));
            let whole = sheet.call("Floor", &[&size], Vec::new());
            sheet.call("Mul", &[&sign, &whole], Vec::new())
        }
        other => unreachable!("`{}` has an operator of its own", other.name()),
    }
}

fn binary(sheet: &mut Sheet<'_>, function: BinaryOp, a: &str, b: &str, dtype: DType) -> Made {
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let (operator, attributes) = match function {
        BinaryOp::Add => ("Add", Vec::new()),
        BinaryOp::Sub => ("Sub", Vec::new()),
        BinaryOp::Mul => ("Mul", Vec::new()),
        BinaryOp::Div => ("Div", Vec::new()),
        BinaryOp::Max => ("Max", Vec::new()),
        BinaryOp::Min => ("Min", Vec::new()),
        BinaryOp::Pow => ("Pow", Vec::new()),
        BinaryOp::Mod if dtype.is_float() => {
            let quotient = sheet.call("Div", &[a, b], Vec::new());
            let whole = sheet.call("Floor", &[&quotient], Vec::new());
            let part = sheet.call("Mul", &[&whole, b], Vec::new());
            return Ok(sheet.call("Sub", &[a, &part], Vec::new()));
        }
        BinaryOp::Mod => ("Mod", Vec::new()),
        BinaryOp::Fmod => ("Mod", vec![flag("fmod", true)]),
        BinaryOp::FloorDiv if dtype.is_float() => {
            let quotient = sheet.call("Div", &[a, b], Vec::new());
            return Ok(sheet.call("Floor", &[&quotient], Vec::new()));
        }
        // Of integers ONNX cuts a quotient off; what divides without rest is the same either way.
        BinaryOp::FloorDiv if is_signed => {
            let rest = sheet.call("Mod", &[a, b], Vec::new());
            let multiple = sheet.call("Sub", &[a, &rest], Vec::new());
            return Ok(sheet.call("Div", &[&multiple, b], Vec::new()));
        }
        BinaryOp::FloorDiv => ("Div", Vec::new()),
        BinaryOp::BitAnd => ("BitwiseAnd", Vec::new()),
        BinaryOp::BitOr => ("BitwiseOr", Vec::new()),
        BinaryOp::BitXor => ("BitwiseXor", Vec::new()),
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight if is_signed => {
            return Err(format!("ONNX shifts integers without a sign, not {dtype}"));
        }
        BinaryOp::ShiftLeft => ("BitShift", vec![text("direction", "LEFT")]),
        BinaryOp::ShiftRight => ("BitShift", vec![text("direction", "RIGHT")]),
        BinaryOp::And => ("And", Vec::new()),
        BinaryOp::Or => ("Or", Vec::new()),
        BinaryOp::Xor => ("Xor", Vec::new()),
    };
    Ok(sheet.call(operator, &[a, b], attributes))
}
