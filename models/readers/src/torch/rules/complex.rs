//! Complex numbers. The graph has real numbers alone: a complex tensor is a real one with a last dimension of two, the
//! real part first.

use super::movement::input;
use super::{Argument, Call, Outputs, Rule, own, signal, view};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Op, Reduce, ReduceOp, UnaryOp};
use models::types::TensorType;
use reference::Tensor;

/// The rule of an operator that reads or makes complex numbers.
pub(in crate::torch) fn rule(operator: &str) -> Option<Rule> {
    Some(match operator {
        "view_as_real" | "view_as_complex" | "alias" | "contiguous" | "detach" => |call| view(input(call)?),
        "clone" | "resolve_conj" | "resolve_neg" => |call| own(input(call)?),
        "complex" => complex,
        "to" | "_to_copy" => convert,
        "polar" => polar,
        "real" | "imag" => part,
        "abs" | "absolute" => size,
        "angle" => complex_angle,
        "conj" | "_conj" | "conj_physical" | "_conj_physical" => conjugate,
        "mul" | "multiply" => multiply,
        "add" | "sub" | "subtract" => add,
        "div" | "true_divide" => divide,
        "neg" => |call| {
            let x = input(call)?;
            own(call.emit.unary(UnaryOp::Neg, x)?)
        },
        "constant_pad_nd" | "pad" => padded,
        "cat" | "concat" | "stack" => together,
        "view" | "reshape" | "_unsafe_view" | "expand" | "permute" | "transpose" | "unsqueeze" | "squeeze"
        | "slice" | "select" | "flatten" | "unflatten" => moved,
        "fft_fft" | "fft_ifft" | "fft_rfft" | "fft_irfft" => signal::transform,
        "fft_fft2" | "fft_ifft2" | "fft_fftn" | "fft_ifftn" => signal::transforms,
        "_fft_r2c" | "_fft_c2c" | "_fft_c2r" => signal::core_transform,
        "stft" => signal::short_time,
        "istft" => signal::inverse_short_time,
        _ => return None,
    })
}

/// One part of complex numbers, without its dimension.
fn half(emit: &mut Emit<'_>, x: ValueId, which: i64) -> Outcome<ValueId> {
    let mut shape = emit.extents(x)?;
    let Some(2) = shape.pop() else { return malformed("a complex number has no two parts") };
    let cut = emit.slice(x, shape.len(), which, which + 1)?;
    emit.reshape(cut, &shape)
}

fn halves(emit: &mut Emit<'_>, x: ValueId) -> Outcome<[ValueId; 2]> {
    Ok([half(emit, x, 0)?, half(emit, x, 1)?])
}

fn joined(emit: &mut Emit<'_>, [real, imaginary]: [ValueId; 2]) -> Outcome<ValueId> {
    let mut shape = emit.extents(real)?;
    shape.push(1);
    let parts = [emit.reshape(real, &shape)?, emit.reshape(imaginary, &shape)?];
    emit.concat(&parts, shape.len() - 1)
}

fn complex(call: &mut Call<'_, '_>) -> Outputs {
    let parts = [call.tensor("real")?, call.tensor("imag")?];
    own(joined(call.emit, parts)?)
}

/// Real numbers as complex ones, or complex ones of another precision.
fn convert(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (input(call)?, call.result_dtype()?);
    let x = call.emit.cast(x, dtype)?;
    if call.complex.contains(&"self") {
        let is_kept = call.stated.first().is_some_and(|ty| ty.as_ref().map(TensorType::rank) == call.emit.rank(x).ok());
        return if is_kept { own(x) } else { unsupported("complex numbers become real ones") };
    }
    let extents = call.emit.extents(x)?;
    let zeros = call.emit.filled(dtype, &extents, 0.0)?;
    own(joined(call.emit, [x, zeros])?)
}

fn polar(call: &mut Call<'_, '_>) -> Outputs {
    let (size, angle) = (call.tensor("abs")?, call.tensor("angle")?);
    let (cosine, sine) = (call.emit.unary(UnaryOp::Cos, angle)?, call.emit.unary(UnaryOp::Sin, angle)?);
    let real = call.emit.binary(BinaryOp::Mul, size, cosine)?;
    let imaginary = call.emit.binary(BinaryOp::Mul, size, sine)?;
    own(joined(call.emit, [real, imaginary])?)
}

fn part(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    view(half(call.emit, x, i64::from(call.operator == "imag"))?)
}

fn size(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let axes = vec![call.emit.rank(x)? as i64 - 1];
    own(call.emit.push(Op::Reduce(Reduce { function: ReduceOp::L2, axes, keep: false }), &[x])?)
}

fn complex_angle(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let [real, imaginary] = halves(call.emit, x)?;
    own(call.emit.angle(imaginary, real)?)
}

fn conjugate(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let signs = Tensor::from_numbers(TensorType::new(call.emit.dtype(x)?, &[2]), &[1.0, -1.0])?;
    let signs = call.emit.constant_of(&signs)?;
    own(call.emit.binary(BinaryOp::Mul, x, signs)?)
}

/// An operand: complex, or real with a dimension for its parts.
enum ComplexOperand {
    Complex(ValueId),
    Real(ValueId),
}

fn operand(call: &mut Call<'_, '_>, name: &str) -> Outcome<ComplexOperand> {
    let Some(Argument::Tensor(x)) = call.arguments.get(name).cloned() else {
        let number = call.float(name, 1.0)?;
        let dtype = call.emit.dtype(input(call)?)?;
        return Ok(ComplexOperand::Real(call.emit.scalar(dtype, number)?));
    };
    if call.complex.contains(&name) {
        return Ok(ComplexOperand::Complex(x));
    }
    let shape = [call.emit.extents(x)?, vec![1]].concat();
    Ok(ComplexOperand::Real(call.emit.reshape(x, &shape)?))
}

fn multiply(call: &mut Call<'_, '_>) -> Outputs {
    own(match (operand(call, "self")?, operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Complex(b)) => product(call.emit, a, b)?,
        (
            ComplexOperand::Complex(a) | ComplexOperand::Real(a),
            ComplexOperand::Complex(b) | ComplexOperand::Real(b),
        ) => call.emit.binary(BinaryOp::Mul, a, b)?,
    })
}

/// `(a + bi)(c + di)`
fn product(emit: &mut Emit<'_>, x: ValueId, y: ValueId) -> Outcome<ValueId> {
    let ([a, b], [c, d]) = (halves(emit, x)?, halves(emit, y)?);
    let (ac, bd) = (emit.binary(BinaryOp::Mul, a, c)?, emit.binary(BinaryOp::Mul, b, d)?);
    let (ad, bc) = (emit.binary(BinaryOp::Mul, a, d)?, emit.binary(BinaryOp::Mul, b, c)?);
    let parts = [emit.binary(BinaryOp::Sub, ac, bd)?, emit.binary(BinaryOp::Add, ad, bc)?];
    joined(emit, parts)
}

fn add(call: &mut Call<'_, '_>) -> Outputs {
    let function = if call.operator == "add" { BinaryOp::Add } else { BinaryOp::Sub };
    match (operand(call, "self")?, operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Complex(b)) if call.float("alpha", 1.0)? == 1.0 => {
            own(call.emit.binary(function, a, b)?)
        }
        _ => unsupported("a complex number and a real one are added"),
    }
}

fn divide(call: &mut Call<'_, '_>) -> Outputs {
    match (operand(call, "self")?, operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Real(b)) => own(call.emit.binary(BinaryOp::Div, a, b)?),
        _ => unsupported("its divisor is complex"),
    }
}

/// Complex tensors joined along a dimension.
fn together(call: &mut Call<'_, '_>) -> Outputs {
    let parts = call.tensors("tensors")?;
    let Some(&first) = parts.first() else { return malformed("there is nothing to join") };
    let axis = call.int("dim", 0)?;
    let rank = call.emit.rank(first)? as i64 - i64::from(call.operator != "stack");
    call.arguments.insert("dim", Argument::Int(if axis < 0 { axis + rank } else { axis }));
    base(call)
}

/// Zeros around complex numbers.
fn padded(call: &mut Call<'_, '_>) -> Outputs {
    if call.float("value", 0.0)? != 0.0 {
        return unsupported("complex numbers are surrounded by others than zeros");
    }
    let pads = [vec![0, 0], call.ints("pad")?].concat();
    call.arguments.insert("pad", Argument::Ints(pads));
    base(call)
}

/// The rule for real numbers.
fn base(call: &mut Call<'_, '_>) -> Outputs {
    match super::rule(call.operator) {
        Some(rule) => rule(call),
        None => unsupported("its elements are complex numbers"),
    }
}

/// An operator that moves elements, with the dimension of parts behind all others.
fn moved(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let rank = call.emit.rank(x)? as i64 - 1;
    for name in ["size", "shape"] {
        if call.arguments.contains_key(name) {
            let sizes = [call.ints(name)?, vec![2]].concat();
            call.arguments.insert(name, Argument::Ints(sizes));
        }
    }
    let is_wider = call.operator == "unsqueeze";
    let front = |axis: i64| if axis < 0 { axis + rank + i64::from(is_wider) } else { axis };
    for name in ["dim", "dim0", "dim1", "start_dim", "end_dim"] {
        if call.arguments.contains_key(name) {
            let axes: Vec<i64> = call.ints(name)?.into_iter().map(front).collect();
            let argument = if let [axis] = axes[..] { Argument::Int(axis) } else { Argument::Ints(axes) };
            call.arguments.insert(name, argument);
        }
    }
    if call.operator == "flatten" && !call.arguments.contains_key("end_dim") {
        call.arguments.insert("end_dim", Argument::Int(rank - 1));
    }
    if call.operator == "permute" {
        let order: Vec<i64> = call.ints("dims")?.into_iter().map(front).chain([rank]).collect();
        call.arguments.insert("dims", Argument::Ints(order));
    }
    base(call)
}
