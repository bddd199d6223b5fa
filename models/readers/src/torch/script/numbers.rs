//! Arithmetic and comparisons of known numbers, with the semantics of Python.

use super::heap::{Heap, Value, number_of};
use crate::{Outcome, malformed};
use models::types::DType;

pub(super) fn as_kind(name: &str, number: f64, dtype: DType) -> Value {
    match name {
        "int" | "Int" | "IntImplicit" => Value::Int(number as i64),
        "float" | "Float" | "FloatImplicit" => Value::Float(number),
        "bool" | "Bool" => Value::Bool(number != 0.0),
        _ if dtype.is_float() => Value::Float(number),
        _ if dtype == DType::Bool => Value::Bool(number != 0.0),
        _ => Value::Int(number as i64),
    }
}

pub(super) fn eval_numbers(heap: &mut Heap, name: &str, given: &[Value]) -> Outcome<Option<Value>> {
    match (name, given) {
        ("__not__", &[Value::Bool(flag)]) => return Ok(Some(Value::Bool(!flag))),
        ("__is__" | "__isnot__", &[a, b]) => return Ok(Some(Value::Bool((a == b) == (name == "__is__")))),
        ("eq" | "ne", &[a, b]) => return Ok(Some(Value::Bool(heap.values_equal(a, b, 0)? == (name == "eq")))),
        ("int" | "Int" | "float" | "Float" | "bool" | "Bool" | "IntImplicit" | "FloatImplicit", &[value]) => {
            return Ok(number_of(value).map(|number| match (name, value) {
                ("int" | "Int" | "IntImplicit", Value::Int(exact)) => Value::Int(exact),
                _ => as_kind(name, number, DType::F64),
            }));
        }
        ("ScalarImplicit" | "Scalar", &[value]) => return Ok(Some(value)),
        _ => {}
    }
    let integer = |value: Value| match value {
        Value::Int(number) => Some(number),
        Value::Bool(flag) => Some(flag.into()),
        _ => None,
    };
    let result = match *given {
        [a] => match integer(a) {
            Some(a) => eval_integer(name, a),
            None => number_of(a).and_then(|a| eval_float(name, a)),
        },
        [a, b] => match (integer(a), integer(b)) {
            (Some(x), Some(y)) => {
                let are_flags = matches!((a, b), (Value::Bool(_), Value::Bool(_)));
                eval_integer_pair(name, x, y).map(|made| match made {
                    Value::Int(number) if are_flags && name.starts_with("__") => Value::Bool(number != 0),
                    made => made,
                })
            }
            _ => number_of(a).zip(number_of(b)).and_then(|(a, b)| eval_float_pair(name, a, b)),
        },
        _ => None,
    };
    let is_arithmetic =
        matches!(name, "add" | "sub" | "mul" | "floordiv" | "remainder" | "div" | "pow" | "neg" | "mod");
    let are_numbers = !given.is_empty() && given.iter().all(|&value| number_of(value).is_some());
    match result {
        None if is_arithmetic && are_numbers => malformed(format!("`{name}` is undefined for these numbers")),
        result => Ok(result),
    }
}

fn eval_integer(name: &str, a: i64) -> Option<Value> {
    Some(match name {
        "neg" => Value::Int(a.checked_neg()?),
        "abs" => Value::Int(a.checked_abs()?),
        "floor" | "ceil" | "round" => Value::Int(a),
        "__not__" => Value::Bool(a == 0),
        _ => return eval_float(name, a as f64),
    })
}

fn eval_float(name: &str, a: f64) -> Option<Value> {
    Some(match name {
        "neg" => Value::Float(-a),
        "abs" => Value::Float(a.abs()),
        "floor" => Value::Int(a.floor() as i64),
        "ceil" => Value::Int(a.ceil() as i64),
        "round" => Value::Float(a.round_ties_even()),
        "sqrt" => Value::Float(a.sqrt()),
        "exp" => Value::Float(a.exp()),
        "log" => Value::Float(a.ln()),
        "log2" => Value::Float(a.log2()),
        "log10" => Value::Float(a.log10()),
        "log1p" => Value::Float(a.ln_1p()),
        "sin" => Value::Float(a.sin()),
        "cos" => Value::Float(a.cos()),
        "tanh" => Value::Float(a.tanh()),
        "isnan" => Value::Bool(a.is_nan()),
        "isinf" => Value::Bool(a.is_infinite()),
        _ => return None,
    })
}

fn eval_integer_pair(name: &str, a: i64, b: i64) -> Option<Value> {
    Some(match name {
        "add" => Value::Int(a.checked_add(b)?),
        "sub" => Value::Int(a.checked_sub(b)?),
        "mul" => Value::Int(a.checked_mul(b)?),
        "floordiv" | "floor_divide" => {
            let quotient = a.checked_div(b)?;
            Value::Int(quotient - i64::from(a.checked_rem(b)? != 0 && (a < 0) != (b < 0)))
        }
        "remainder" | "mod" => {
            let rest = a.checked_rem(b)?;
            Value::Int(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        }
        "pow" if b >= 0 => Value::Int(a.checked_pow(u32::try_from(b).ok()?)?),
        "max" => Value::Int(a.max(b)),
        "min" => Value::Int(a.min(b)),
        "__and__" => Value::Int(a & b),
        "__or__" => Value::Int(a | b),
        "__xor__" => Value::Int(a ^ b),
        "__lshift__" => Value::Int(a.checked_shl(u32::try_from(b).ok()?)?),
        "__rshift__" => Value::Int(a.checked_shr(u32::try_from(b).ok()?)?),
        "lt" => Value::Bool(a < b),
        "le" => Value::Bool(a <= b),
        "gt" => Value::Bool(a > b),
        "ge" => Value::Bool(a >= b),
        _ => return eval_float_pair(name, a as f64, b as f64),
    })
}

fn eval_float_pair(name: &str, a: f64, b: f64) -> Option<Value> {
    Some(match name {
        "add" => Value::Float(a + b),
        "sub" => Value::Float(a - b),
        "mul" => Value::Float(a * b),
        "div" | "true_divide" if b != 0.0 => Value::Float(a / b),
        "floordiv" | "floor_divide" if b != 0.0 => Value::Float((a / b).floor()),
        "remainder" | "mod" if b != 0.0 => Value::Float(a - b * (a / b).floor()),
        "pow" => Value::Float(a.powf(b)),
        "max" => Value::Float(a.max(b)),
        "min" => Value::Float(a.min(b)),
        "lt" => Value::Bool(a < b),
        "le" => Value::Bool(a <= b),
        "gt" => Value::Bool(a > b),
        "ge" => Value::Bool(a >= b),
        "atan2" => Value::Float(a.atan2(b)),
        _ => return None,
    })
}
