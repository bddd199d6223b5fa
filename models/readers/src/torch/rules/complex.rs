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
        "reciprocal" => reciprocal,
        "neg" => |call| {
            let x = primary_input(call)?;
            own_output(call.emit.unary(UnaryOp::Neg, x)?)
        },
        "constant_pad_nd" | "pad" => pad_complex,
        "cat" | "concat" | "stack" => concat_complex,
        "copy" => super::create::copy_into,
        "zeros" | "zeros_like" | "new_zeros" | "empty" | "full" => complex_zeros,
        "matmul" | "mm" | "bmm" => |call| complex_contraction(call, &["self", "mat2", "other"]),
        "einsum" => complex_einsum,
        "sum" | "mean" => |call| with_front_axes(call, real_rule),
        "exp" => complex_exponential,
        "fft_fftshift" | "fft_ifftshift" => |call| with_front_axes(call, signal::shift_frequencies),
        "view" | "reshape" | "_unsafe_view" | "expand" | "permute" | "transpose" | "unsqueeze" | "squeeze"
        | "slice" | "select" | "flatten" | "unflatten" | "slice_scatter" | "select_scatter" | "index_select" => {
            move_elements
        }
        "numpy_T" | "t" => reverse_dimensions,
        "fft_fft" | "fft_ifft" | "fft_rfft" | "fft_irfft" => signal::single_transform,
        "fft_fft2" | "fft_ifft2" | "fft_fftn" | "fft_ifftn" | "fft_rfft2" | "fft_rfftn" | "fft_irfft2"
        | "fft_irfftn" => signal::multi_transform,
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
    let (a, b) = (complex_operand(call, "self")?, complex_operand(call, "other")?);
    let alpha = call.float_argument("alpha", 1.0)?;
    let emit = &mut *call.emit;
    let (a, b) = (widen_operand(emit, a)?, widen_operand(emit, b)?);
    let b = if alpha == 1.0 { b } else { emit.binary_with(BinaryOp::Mul, b, alpha)? };
    own_output(emit.binary(function, a, b)?)
}

/// Returns an operand with an imaginary part, which is zero for a real one.
fn widen_operand(emit: &mut Emit<'_>, operand: ComplexOperand) -> Outcome<ValueId> {
    match operand {
        ComplexOperand::Complex(x) => Ok(x),
        ComplexOperand::Real(x) => {
            let mut shape = emit.extents(x)?;
            if shape.pop().is_none() {
                let x = emit.reshape(x, &[1])?;
                return widen_operand(emit, ComplexOperand::Real(x));
            }
            let x = emit.reshape(x, &shape)?;
            let zeros = emit.add_filled(emit.dtype(x)?, &shape, 0.0)?;
            join_parts(emit, [x, zeros])
        }
    }
}

fn divide_complex(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (complex_operand(call, "self")?, complex_operand(call, "other")?);
    let emit = &mut *call.emit;
    let (a, b) = match (a, b) {
        (ComplexOperand::Complex(a), ComplexOperand::Real(b)) => {
            return own_output(emit.binary(BinaryOp::Div, a, b)?);
        }
        (a, ComplexOperand::Complex(b)) => (widen_operand(emit, a)?, b),
        (ComplexOperand::Real(_), ComplexOperand::Real(_)) => return unsupported("complex operands"),
    };
    own_output(quotient(emit, a, b)?)
}

fn reciprocal(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let one = Tensor::from_numbers(TensorType::new(call.emit.dtype(x)?, &[2]), &[1.0, 0.0])?;
    let one = call.emit.constant_of(&one)?;
    own_output(quotient(call.emit, one, x)?)
}

/// Divides complex numbers: the product with the conjugate of the divisor, divided by the squared size of the divisor.
fn quotient(emit: &mut Emit<'_>, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    let signs = Tensor::from_numbers(TensorType::new(emit.dtype(b)?, &[2]), &[1.0, -1.0])?;
    let signs = emit.constant_of(&signs)?;
    let conjugate = emit.binary(BinaryOp::Mul, b, signs)?;
    let product = complex_product(emit, a, conjugate)?;
    let axes = vec![emit.rank(b)? as i64 - 1];
    let squares = emit.unary(UnaryOp::Square, b)?;
    let size = emit.push(Op::Reduce(Reduce { function: ReduceOp::Sum, axes, keep: true }), &[squares])?;
    emit.binary(BinaryOp::Div, product, size)
}

fn complex_zeros(call: &mut Call<'_, '_>) -> Outputs {
    let ty = call.result_type()?;
    if call.float_argument("fill_value", 0.0)? != 0.0 {
        return unsupported("filling a complex tensor with a number other than zero");
    }
    let extents = match (call.arguments.contains_key("size"), call.optional_tensor("self")?) {
        (true, _) => [call.int_list("size")?, vec![2]].concat(),
        (false, Some(x)) if call.complex.contains(&"self") => call.emit.extents(x)?,
        (false, Some(x)) => [call.emit.extents(x)?, vec![2]].concat(),
        (false, None) => ty.extents().unwrap_or_default(),
    };
    own_output(call.emit.add_filled(ty.dtype, &extents, 0.0)?)
}

/// Splits the operands of a product into real and imaginary parts. A real operand has no imaginary part.
fn operand_parts(emit: &mut Emit<'_>, operands: [(ValueId, bool); 2]) -> Outcome<[(ValueId, Option<ValueId>); 2]> {
    let mut parts = |(id, is_complex): (ValueId, bool)| -> Outcome<(ValueId, Option<ValueId>)> {
        if !is_complex {
            return Ok((id, None));
        }
        let [real, imaginary] = split_parts(emit, id)?;
        Ok((real, Some(imaginary)))
    };
    Ok([parts(operands[0])?, parts(operands[1])?])
}

/// Computes a complex product by a rule of real products, which reads its operands from the arguments.
fn product_of_parts(
    call: &mut Call<'_, '_>,
    [(a, b), (c, d)]: [(ValueId, Option<ValueId>); 2],
    mut real_product: impl FnMut(&mut Call<'_, '_>, ValueId, ValueId) -> Outcome<ValueId>,
) -> Outputs {
    let mut real = real_product(call, a, c)?;
    if let (Some(b), Some(d)) = (b, d) {
        let part = real_product(call, b, d)?;
        real = call.emit.binary(BinaryOp::Sub, real, part)?;
    }
    let mut imaginary = None;
    for (x, y) in [(Some(a), d), (b, Some(c))] {
        let (Some(x), Some(y)) = (x, y) else { continue };
        let part = real_product(call, x, y)?;
        imaginary = Some(match imaginary {
            Some(before) => call.emit.binary(BinaryOp::Add, before, part)?,
            None => part,
        });
    }
    match imaginary {
        Some(imaginary) => own_output(join_parts(call.emit, [real, imaginary])?),
        None => unsupported("complex operands"),
    }
}

fn only_output(call: &mut Call<'_, '_>) -> Outcome<ValueId> {
    let made = real_rule(call)?;
    made.first().map_or_else(|| malformed("the operator has no result"), |output| Ok(output.id))
}

fn complex_contraction(call: &mut Call<'_, '_>, names: &[&'static str]) -> Outputs {
    let present: Vec<&'static str> = names.iter().copied().filter(|name| call.has_argument(name)).collect();
    let [first, second] = present[..] else { return malformed("a product needs two operands") };
    let operands = [
        (call.tensor_argument(first)?, call.complex.contains(&first)),
        (call.tensor_argument(second)?, call.complex.contains(&second)),
    ];
    let parts = operand_parts(call.emit, operands)?;
    product_of_parts(call, parts, |call, a, b| {
        call.arguments.insert(first, Argument::Tensor(a));
        call.arguments.insert(second, Argument::Tensor(b));
        only_output(call)
    })
}

fn complex_einsum(call: &mut Call<'_, '_>) -> Outputs {
    let [a, b] = call.tensor_list("tensors")?[..] else {
        return unsupported("complex operands, other than two");
    };
    // A term names all dimensions but the one of real and imaginary parts.
    let equation = call.text_argument("equation", "")?;
    for (term, id) in equation.split("->").next().unwrap_or("").split(',').zip([a, b]) {
        let named = term.chars().filter(|letter| letter.is_alphabetic()).count();
        if !term.contains('.') && named + 1 != call.emit.rank(id)? {
            return unsupported("a product of complex and real operands");
        }
    }
    let parts = operand_parts(call.emit, [(a, true), (b, true)])?;
    product_of_parts(call, parts, |call, a, b| {
        call.arguments.insert("tensors", Argument::Tensors(vec![Some(a), Some(b)]));
        only_output(call)
    })
}

/// Runs a rule with explicit axes, which do not include the dimension of real and imaginary parts.
fn with_front_axes(call: &mut Call<'_, '_>, rule: Rule) -> Outputs {
    let rank = signal::rank_of_numbers(call.emit, primary_input(call)?, true)? as i64;
    let dims = call.int_list("dim")?;
    let front = |axis: i64| if axis < 0 { axis + rank } else { axis };
    let dims: Vec<i64> = if dims.is_empty() { (0..rank).collect() } else { dims.into_iter().map(front).collect() };
    call.arguments.insert("dim", Argument::Ints(dims));
    rule(call)
}

fn complex_exponential(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let emit = &mut *call.emit;
    let [real, angle] = split_parts(emit, x)?;
    let size = emit.unary(UnaryOp::Exp, real)?;
    let (cosine, sine) = (emit.unary(UnaryOp::Cos, angle)?, emit.unary(UnaryOp::Sin, angle)?);
    let parts = [emit.binary(BinaryOp::Mul, size, cosine)?, emit.binary(BinaryOp::Mul, size, sine)?];
    own_output(join_parts(emit, parts)?)
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

fn reverse_dimensions(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let rank = signal::rank_of_numbers(call.emit, x, true)?;
    let order: Vec<usize> = (0..rank).rev().chain([rank]).collect();
    view_output(call.emit.transpose(x, &order)?)
}

fn move_elements(call: &mut Call<'_, '_>) -> Outputs {
    let rank = signal::rank_of_numbers(call.emit, primary_input(call)?, true)? as i64;
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
