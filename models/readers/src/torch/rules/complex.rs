//! Complex numbers: a complex tensor has an additional last dimension of two, for the real and the imaginary part.

use super::movement::primary_input;
use super::{Argument, Call, Outputs, Rule, own_output, signal, view_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Op, Reduce, ReduceOp, UnaryOp};
use models::types::TensorType;
use reference::Tensor;

pub(in crate::torch) fn find_rule(operator: &str) -> Option<Rule> {
    Some(match operator {
        "view_as_real" | "view_as_complex" | "alias" | "contiguous" | "detach" => {
            |call| view_output(primary_input(call)?)
        }
        "clone" | "resolve_conj" | "resolve_neg" => |call| own_output(primary_input(call)?),
        "complex" => make_complex,
        "to" | "_to_copy" => convert_complex,
        "polar" => polar,
        "real" | "imag" => complex_part,
        "abs" | "absolute" => size,
        "angle" => complex_angle,
        "conj" | "_conj" | "conj_physical" | "_conj_physical" => conjugate,
        "mul" | "multiply" => multiply_complex,
        "add" | "sub" | "subtract" => add_complex,
        "div" | "true_divide" => divide_complex,
        "neg" => |call| {
            let x = primary_input(call)?;
            own_output(call.emit.unary(UnaryOp::Neg, x)?)
        },
        "constant_pad_nd" | "pad" => pad_complex,
        "cat" | "concat" | "stack" => concat_complex,
        "view" | "reshape" | "_unsafe_view" | "expand" | "permute" | "transpose" | "unsqueeze" | "squeeze"
        | "slice" | "select" | "flatten" | "unflatten" => move_elements,
        "fft_fft" | "fft_ifft" | "fft_rfft" | "fft_irfft" => signal::single_transform,
        "fft_fft2" | "fft_ifft2" | "fft_fftn" | "fft_ifftn" => signal::multi_transform,
        "_fft_r2c" | "_fft_c2c" | "_fft_c2r" => signal::core_transform,
        "stft" => signal::short_time,
        "istft" => signal::inverse_short_time,
        _ => return None,
    })
}

fn take_part(emit: &mut Emit<'_>, x: ValueId, which: i64) -> Outcome<ValueId> {
    let mut shape = emit.extents(x)?;
    let Some(2) = shape.pop() else { return malformed("the last extent of a complex tensor is not 2") };
    let cut = emit.slice(x, shape.len(), which, which + 1)?;
    emit.reshape(cut, &shape)
}

fn split_parts(emit: &mut Emit<'_>, x: ValueId) -> Outcome<[ValueId; 2]> {
    Ok([take_part(emit, x, 0)?, take_part(emit, x, 1)?])
}

fn join_parts(emit: &mut Emit<'_>, [real, imaginary]: [ValueId; 2]) -> Outcome<ValueId> {
    let mut shape = emit.extents(real)?;
    shape.push(1);
    let parts = [emit.reshape(real, &shape)?, emit.reshape(imaginary, &shape)?];
    emit.concat_parts(&parts, shape.len() - 1)
}

fn make_complex(call: &mut Call<'_, '_>) -> Outputs {
    let parts = [call.tensor_argument("real")?, call.tensor_argument("imag")?];
    own_output(join_parts(call.emit, parts)?)
}

fn convert_complex(call: &mut Call<'_, '_>) -> Outputs {
    let (x, dtype) = (primary_input(call)?, call.result_dtype()?);
    let x = call.emit.cast(x, dtype)?;
    if call.complex.contains(&"self") {
        let is_kept = call.stated.first().is_some_and(|ty| ty.as_ref().map(TensorType::rank) == call.emit.rank(x).ok());
        return if is_kept { own_output(x) } else { unsupported("converting complex numbers to real ones") };
    }
    let extents = call.emit.extents(x)?;
    let zeros = call.emit.add_filled(dtype, &extents, 0.0)?;
    own_output(join_parts(call.emit, [x, zeros])?)
}

fn polar(call: &mut Call<'_, '_>) -> Outputs {
    let (size, angle) = (call.tensor_argument("abs")?, call.tensor_argument("angle")?);
    let (cosine, sine) = (call.emit.unary(UnaryOp::Cos, angle)?, call.emit.unary(UnaryOp::Sin, angle)?);
    let real = call.emit.binary(BinaryOp::Mul, size, cosine)?;
    let imaginary = call.emit.binary(BinaryOp::Mul, size, sine)?;
    own_output(join_parts(call.emit, [real, imaginary])?)
}

fn complex_part(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    view_output(take_part(call.emit, x, i64::from(call.operator == "imag"))?)
}

fn size(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let axes = vec![call.emit.rank(x)? as i64 - 1];
    own_output(call.emit.push(Op::Reduce(Reduce { function: ReduceOp::L2, axes, keep: false }), &[x])?)
}

fn complex_angle(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let [real, imaginary] = split_parts(call.emit, x)?;
    own_output(call.emit.emit_angle(imaginary, real)?)
}

fn conjugate(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let signs = Tensor::from_numbers(TensorType::new(call.emit.dtype(x)?, &[2]), &[1.0, -1.0])?;
    let signs = call.emit.constant_of(&signs)?;
    own_output(call.emit.binary(BinaryOp::Mul, x, signs)?)
}

enum ComplexOperand {
    Complex(ValueId),
    Real(ValueId),
}

fn complex_operand(call: &mut Call<'_, '_>, name: &str) -> Outcome<ComplexOperand> {
    let Some(Argument::Tensor(x)) = call.arguments.get(name).cloned() else {
        let number = call.float_argument(name, 1.0)?;
        let dtype = call.emit.dtype(primary_input(call)?)?;
        return Ok(ComplexOperand::Real(call.emit.add_scalar(dtype, number)?));
    };
    if call.complex.contains(&name) {
        return Ok(ComplexOperand::Complex(x));
    }
    let shape = [call.emit.extents(x)?, vec![1]].concat();
    Ok(ComplexOperand::Real(call.emit.reshape(x, &shape)?))
}

fn multiply_complex(call: &mut Call<'_, '_>) -> Outputs {
    own_output(match (complex_operand(call, "self")?, complex_operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Complex(b)) => complex_product(call.emit, a, b)?,
        (
            ComplexOperand::Complex(a) | ComplexOperand::Real(a),
            ComplexOperand::Complex(b) | ComplexOperand::Real(b),
        ) => call.emit.binary(BinaryOp::Mul, a, b)?,
    })
}

fn complex_product(emit: &mut Emit<'_>, x: ValueId, y: ValueId) -> Outcome<ValueId> {
    let ([a, b], [c, d]) = (split_parts(emit, x)?, split_parts(emit, y)?);
    let (ac, bd) = (emit.binary(BinaryOp::Mul, a, c)?, emit.binary(BinaryOp::Mul, b, d)?);
    let (ad, bc) = (emit.binary(BinaryOp::Mul, a, d)?, emit.binary(BinaryOp::Mul, b, c)?);
    let parts = [emit.binary(BinaryOp::Sub, ac, bd)?, emit.binary(BinaryOp::Add, ad, bc)?];
    join_parts(emit, parts)
}

fn add_complex(call: &mut Call<'_, '_>) -> Outputs {
    let function = if call.operator == "add" { BinaryOp::Add } else { BinaryOp::Sub };
    match (complex_operand(call, "self")?, complex_operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Complex(b)) if call.float_argument("alpha", 1.0)? == 1.0 => {
            own_output(call.emit.binary(function, a, b)?)
        }
        _ => unsupported("adding complex and real numbers"),
    }
}

fn divide_complex(call: &mut Call<'_, '_>) -> Outputs {
    match (complex_operand(call, "self")?, complex_operand(call, "other")?) {
        (ComplexOperand::Complex(a), ComplexOperand::Real(b)) => own_output(call.emit.binary(BinaryOp::Div, a, b)?),
        _ => unsupported("a complex divisor"),
    }
}

fn concat_complex(call: &mut Call<'_, '_>) -> Outputs {
    let parts = call.tensor_list("tensors")?;
    let Some(&first) = parts.first() else { return malformed("there are no tensors to concatenate") };
    let axis = call.int_argument("dim", 0)?;
    let rank = call.emit.rank(first)? as i64 - i64::from(call.operator != "stack");
    call.arguments.insert("dim", Argument::Int(if axis < 0 { axis + rank } else { axis }));
    real_rule(call)
}

fn pad_complex(call: &mut Call<'_, '_>) -> Outputs {
    if call.float_argument("value", 0.0)? != 0.0 {
        return unsupported("padding complex numbers with values other than zero");
    }
    let pads = [vec![0, 0], call.int_list("pad")?].concat();
    call.arguments.insert("pad", Argument::Ints(pads));
    real_rule(call)
}

fn real_rule(call: &mut Call<'_, '_>) -> Outputs {
    match super::find_rule(call.operator) {
        Some(rule) => rule(call),
        None => unsupported("complex operands"),
    }
}

fn move_elements(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = call.emit.rank(x)? as i64 - 1;
    for name in ["size", "shape"] {
        if call.arguments.contains_key(name) {
            let sizes = [call.int_list(name)?, vec![2]].concat();
            call.arguments.insert(name, Argument::Ints(sizes));
        }
    }
    let is_wider = call.operator == "unsqueeze";
    let front = |axis: i64| if axis < 0 { axis + rank + i64::from(is_wider) } else { axis };
    for name in ["dim", "dim0", "dim1", "start_dim", "end_dim"] {
        if call.arguments.contains_key(name) {
            let axes: Vec<i64> = call.int_list(name)?.into_iter().map(front).collect();
            let argument = if let [axis] = axes[..] { Argument::Int(axis) } else { Argument::Ints(axes) };
            call.arguments.insert(name, argument);
        }
    }
    if call.operator == "flatten" && !call.arguments.contains_key("end_dim") {
        call.arguments.insert("end_dim", Argument::Int(rank - 1));
    }
    if call.operator == "permute" {
        let order: Vec<i64> = call.int_list("dims")?.into_iter().map(front).chain([rank]).collect();
        call.arguments.insert("dims", Argument::Ints(order));
    }
    real_rule(call)
}
