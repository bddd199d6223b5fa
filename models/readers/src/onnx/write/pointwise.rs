//! Writes pointwise functions.

use super::sheet::{Sheet, flag_attribute, float_attribute, int_attribute, text_attribute};
use super::{NameResult, refuse_operator};
use crate::onnx::messages::Attribute;
use models::graph::Node;
use models::operators::{
    BiasAdd, Binary, BinaryOp, Cast, Clip, Compare, CompareOp, Dequantize, Op, Quantize, Requantize, ScaleShift, Unary,
    UnaryOp,
};
use models::types::DType;

pub(super) fn write_pointwise(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let inputs = &node.inputs;
    let (rank, dtype) = (sheet.rank(inputs[0]), sheet.dtype(inputs[0]));
    let x = sheet.value_name(inputs[0]);
    match &node.op {
        Op::BiasAdd(BiasAdd { axis }) => {
            let bias = sheet.broadcast_along(inputs[1], *axis, rank);
            Ok(sheet.add_node("Add", &[&x, &bias], Vec::new()))
        }
        Op::ScaleShift(ScaleShift { axis }) => {
            let (scale, shift) =
                (sheet.broadcast_along(inputs[1], *axis, rank), sheet.broadcast_along(inputs[2], *axis, rank));
            let scaled = sheet.add_node("Mul", &[&x, &scale], Vec::new());
            Ok(sheet.add_node("Add", &[&scaled, &shift], Vec::new()))
        }
        Op::Unary(Unary { function }) => Ok(write_unary(sheet, *function, &x, dtype)),
        Op::Clip(Clip { low, high }) => {
            let (low, high) = (sheet.add_scalar(dtype, *low), sheet.add_scalar(dtype, *high));
            Ok(sheet.add_node("Clip", &[&x, &low, &high], Vec::new()))
        }
        Op::Binary(Binary { function }) => {
            let other = sheet.value_name(inputs[1]);
            write_binary(sheet, *function, &x, &other, dtype)
        }
        Op::Cast(Cast { to }) => Ok(sheet.cast(&x, *to)),
        Op::Compare(Compare { function }) => {
            let other = sheet.value_name(inputs[1]);
            let operator = match function {
                CompareOp::Equal | CompareOp::NotEqual => "Equal",
                CompareOp::Less => "Less",
                CompareOp::LessOrEqual => "LessOrEqual",
                CompareOp::Greater => "Greater",
                CompareOp::GreaterOrEqual => "GreaterOrEqual",
            };
            let is_so = sheet.add_node(operator, &[&x, &other], Vec::new());
            Ok(match function {
                CompareOp::NotEqual => sheet.add_node("Not", &[&is_so], Vec::new()),
                _ => is_so,
            })
        }
        Op::Where(_) => {
            let (yes, no) = (sheet.value_name(inputs[1]), sheet.value_name(inputs[2]));
            Ok(sheet.add_node("Where", &[&x, &yes, &no], Vec::new()))
        }
        Op::PRelu(_) => {
            let slope = sheet.value_name(inputs[1]);
            Ok(sheet.add_node("PRelu", &[&x, &slope], Vec::new()))
        }
        Op::Quantize(Quantize { to, axis }) => {
            if !matches!(to, DType::I8 | DType::U8) {
                return Err(format!("this ONNX version quantises to i8 and u8, not to {to}"));
            }
            let scale = sheet.value_name(inputs[1]);
            // The zero point determines the type of the result; without one, the type is u8.
            let zero = match inputs.get(2) {
                Some(zero) => sheet.value_name(*zero),
                None => sheet.add_filled(*to, &sheet.extents(inputs[1]), 0.0),
            };
            Ok(sheet.add_node("QuantizeLinear", &[&x, &scale, &zero], vec![int_attribute("axis", *axis)]))
        }
        Op::Dequantize(Dequantize { axis }) => {
            let names = sheet.value_names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.add_node("DequantizeLinear", &names, vec![int_attribute("axis", *axis)]))
        }
        Op::Requantize(Requantize { to, axis, zero, low, high }) => {
            let wide = sheet.dtype(inputs[1]);
            let multiplier = sheet.broadcast_along(inputs[1], *axis, rank);
            let wide_x = sheet.cast(&x, wide);
            let scaled = sheet.add_node("Mul", &[&wide_x, &multiplier], Vec::new());
            let rounded = sheet.add_node("Round", &[&scaled], Vec::new());
            let zero = sheet.add_scalar(wide, *zero as f64);
            let moved = sheet.add_node("Add", &[&rounded, &zero], Vec::new());
            let (low, high) = (sheet.add_scalar(wide, *low as f64), sheet.add_scalar(wide, *high as f64));
            let inside = sheet.add_node("Clip", &[&moved, &low, &high], Vec::new());
            Ok(sheet.cast(&inside, *to))
        }
        other => refuse_operator(other),
    }
}

fn write_unary(sheet: &mut Sheet<'_>, function: UnaryOp, x: &str, dtype: DType) -> String {
    let named = |operator: &'static str| (operator, Vec::new());
    let (operator, attributes): (&str, Vec<Attribute>) = match function {
        UnaryOp::Relu => named("Relu"),
        UnaryOp::LeakyRelu { alpha } => ("LeakyRelu", vec![float_attribute("alpha", alpha)]),
        UnaryOp::Sigmoid => named("Sigmoid"),
        UnaryOp::HardSigmoid => {
            ("HardSigmoid", vec![float_attribute("alpha", 1.0 / 6.0), float_attribute("beta", 0.5)])
        }
        UnaryOp::HardSigmoidOf { slope, offset } => {
            ("HardSigmoid", vec![float_attribute("alpha", slope), float_attribute("beta", offset)])
        }
        UnaryOp::Tanh => named("Tanh"),
        UnaryOp::HardSwish => named("HardSwish"),
        UnaryOp::Gelu => named("Gelu"),
        UnaryOp::GeluTanh => ("Gelu", vec![text_attribute("approximate", "tanh")]),
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
        UnaryOp::Elu { alpha } => ("Elu", vec![float_attribute("alpha", alpha)]),
        UnaryOp::Selu => named("Selu"),
        UnaryOp::Celu { alpha } => ("Celu", vec![float_attribute("alpha", alpha)]),
        UnaryOp::Softplus => named("Softplus"),
        UnaryOp::Softsign => named("Softsign"),
        UnaryOp::Mish => named("Mish"),
        UnaryOp::ThresholdedRelu { alpha } => ("ThresholdedRelu", vec![float_attribute("alpha", alpha)]),
        UnaryOp::Shrink { lambda, bias } => {
            ("Shrink", vec![float_attribute("lambd", lambda), float_attribute("bias", bias)])
        }
        UnaryOp::IsNan => named("IsNaN"),
        UnaryOp::IsInf { negative, positive } => {
            ("IsInf", vec![flag_attribute("detect_negative", negative), flag_attribute("detect_positive", positive)])
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
        | UnaryOp::Trunc => return write_composed(sheet, function, x, dtype),
    };
    sheet.add_node(operator, &[x], attributes)
}

fn write_composed(sheet: &mut Sheet<'_>, function: UnaryOp, x: &str, dtype: DType) -> String {
    let mut with = |operator: &str, left: &str, number: f64| {
        let number = sheet.add_scalar(dtype, number);
        sheet.add_node(operator, &[left, &number], Vec::new())
    };
    match function {
        UnaryOp::Silu => {
            let gate = sheet.add_node("Sigmoid", &[x], Vec::new());
            sheet.add_node("Mul", &[x, &gate], Vec::new())
        }
        UnaryOp::Swish { beta } => {
            let scaled = with("Mul", x, beta);
            let gate = sheet.add_node("Sigmoid", &[&scaled], Vec::new());
            sheet.add_node("Mul", &[x, &gate], Vec::new())
        }
        UnaryOp::Exp2 => {
            let two = sheet.add_scalar(dtype, 2.0);
            sheet.add_node("Pow", &[&two, x], Vec::new())
        }
        UnaryOp::Expm1 => {
            let power = sheet.add_node("Exp", &[x], Vec::new());
            let one = sheet.add_scalar(dtype, 1.0);
            sheet.add_node("Sub", &[&power, &one], Vec::new())
        }
        UnaryOp::Log2 | UnaryOp::Log10 => {
            let log = sheet.add_node("Log", &[x], Vec::new());
            let base: f64 = if function == UnaryOp::Log2 { 2.0 } else { 10.0 };
            let factor = sheet.add_scalar(dtype, 1.0 / base.ln());
            sheet.add_node("Mul", &[&log, &factor], Vec::new())
        }
        UnaryOp::Log1p => {
            let above = with("Add", x, 1.0);
            sheet.add_node("Log", &[&above], Vec::new())
        }
        UnaryOp::Rsqrt => {
            let root = sheet.add_node("Sqrt", &[x], Vec::new());
            sheet.add_node("Reciprocal", &[&root], Vec::new())
        }
        UnaryOp::Square => sheet.add_node("Mul", &[x, x], Vec::new()),
        UnaryOp::Trunc => {
            let (sign, size) = (sheet.add_node("Sign", &[x], Vec::new()), sheet.add_node("Abs", &[x], Vec::new()));
            let whole = sheet.add_node("Floor", &[&size], Vec::new());
            sheet.add_node("Mul", &[&sign, &whole], Vec::new())
        }
        other => unreachable!("`{}` has an operator of its own", other.name()),
    }
}

fn write_binary(sheet: &mut Sheet<'_>, function: BinaryOp, a: &str, b: &str, dtype: DType) -> NameResult {
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
            let quotient = sheet.add_node("Div", &[a, b], Vec::new());
            let whole = sheet.add_node("Floor", &[&quotient], Vec::new());
            let part = sheet.add_node("Mul", &[&whole, b], Vec::new());
            return Ok(sheet.add_node("Sub", &[a, &part], Vec::new()));
        }
        BinaryOp::Mod => ("Mod", Vec::new()),
        BinaryOp::Fmod => ("Mod", vec![flag_attribute("fmod", true)]),
        BinaryOp::FloorDiv if dtype.is_float() => {
            let quotient = sheet.add_node("Div", &[a, b], Vec::new());
            return Ok(sheet.add_node("Floor", &[&quotient], Vec::new()));
        }
        // ONNX truncates integer quotients. After subtracting the floored remainder, the division is exact.
        BinaryOp::FloorDiv if is_signed => {
            let rest = sheet.add_node("Mod", &[a, b], Vec::new());
            let multiple = sheet.add_node("Sub", &[a, &rest], Vec::new());
            return Ok(sheet.add_node("Div", &[&multiple, b], Vec::new()));
        }
        BinaryOp::FloorDiv => ("Div", Vec::new()),
        BinaryOp::BitAnd => ("BitwiseAnd", Vec::new()),
        BinaryOp::BitOr => ("BitwiseOr", Vec::new()),
        BinaryOp::BitXor => ("BitwiseXor", Vec::new()),
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight if is_signed => {
            return Err(format!("ONNX shifts only unsigned integers, not {dtype}"));
        }
        BinaryOp::ShiftLeft => ("BitShift", vec![text_attribute("direction", "LEFT")]),
        BinaryOp::ShiftRight => ("BitShift", vec![text_attribute("direction", "RIGHT")]),
        BinaryOp::And => ("And", Vec::new()),
        BinaryOp::Or => ("Or", Vec::new()),
        BinaryOp::Xor => ("Xor", Vec::new()),
    };
    Ok(sheet.add_node(operator, &[a, b], attributes))
}
