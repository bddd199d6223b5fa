//! Import rules of pointwise functions.

use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, Op, PRelu, UnaryOp, Where};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

macro_rules! unary {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(call: &mut Call<'_, '_>) -> Outputs {
            unary(call, UnaryOp::$function)
        })*
    };
}

unary! {
    floor => Floor,
    sigmoid => Sigmoid,
    relu => Relu,
    tanh => Tanh,
    exp => Exp,
    neg => Neg,
    sin => Sin,
    cos => Cos,
    log => Log,
    sqrt => Sqrt,
    rsqrt => Rsqrt,
    square => Square,
    abs => Abs,
    ceil => Ceil,
    round => Round,
    hard_swish => HardSwish,
    sign => Sign,
}

fn unary(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    let x = call.real(0)?;
    Ok(vec![call.emit.unary(function, x)?])
}

macro_rules! binary {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(call: &mut Call<'_, '_>) -> Outputs {
            binary(call, BinaryOp::$function)
        })*
    };
}

binary! {
    add => Add,
    mul => Mul,
    sub => Sub,
    div => Div,
    maximum => Max,
    minimum => Min,
    pow => Pow,
    floor_div => FloorDiv,
    floor_mod => Mod,
    or => Or,
    and => And,
    bit_xor => BitXor,
    right_shift => ShiftRight,
}

/// Emits a binary function. `ADD`, `SUB`, `MUL` and `DIV` may have an activation, in their first option field.
fn binary(call: &mut Call<'_, '_>, function: BinaryOp) -> Outputs {
    let (a, b) = (call.real(0)?, call.real(1)?);
    let y = call.binary(function, a, b)?;
    let has_activation = matches!(function, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div);
    let activation = if has_activation { call.read_activation(0)? } else { Activation::None };
    Ok(vec![call.apply_activation(y, activation)?])
}

pub(super) fn identity(call: &mut Call<'_, '_>) -> Outputs {
    Ok(vec![call.real(0)?])
}

pub(super) fn quantise_real(call: &mut Call<'_, '_>) -> Outputs {
    let is_stored = call.scales_of_output(0).is_some_and(|(scales, to)| {
        call.scales_of_input(0) == Some(scales) && call.input(0).is_ok_and(|x| call.emit.dtype(x).ok() == Some(to))
    });
    Ok(vec![if is_stored { call.input(0)? } else { call.real(0)? }])
}

pub(super) fn relu1(call: &mut Call<'_, '_>) -> Outputs {
    clip_bounds(call, -1.0, 1.0)
}

pub(super) fn relu0(call: &mut Call<'_, '_>) -> Outputs {
    clip_bounds(call, 0.0, 1.0)
}

pub(super) fn relu6(call: &mut Call<'_, '_>) -> Outputs {
    clip_bounds(call, 0.0, 6.0)
}

fn clip_bounds(call: &mut Call<'_, '_>, low: f64, high: f64) -> Outputs {
    let x = call.real(0)?;
    Ok(vec![call.emit.push(Op::Clip(Clip { low, high }), &[x])?])
}

pub(super) fn leaky_relu(call: &mut Call<'_, '_>) -> Outputs {
    let alpha = call.float_option(0)?;
    unary(call, UnaryOp::LeakyRelu { alpha })
}

pub(super) fn elu(call: &mut Call<'_, '_>) -> Outputs {
    unary(call, UnaryOp::Elu { alpha: 1.0 })
}

pub(super) fn gelu(call: &mut Call<'_, '_>) -> Outputs {
    let function = if call.flag_option(0)? { UnaryOp::GeluTanh } else { UnaryOp::Gelu };
    unary(call, function)
}

pub(super) fn not(call: &mut Call<'_, '_>) -> Outputs {
    unary(call, UnaryOp::Not)
}

pub(super) fn p_relu(call: &mut Call<'_, '_>) -> Outputs {
    let (x, slope) = (call.real(0)?, call.real(1)?);
    Ok(vec![call.emit.push(Op::PRelu(PRelu {}), &[x, slope])?])
}

pub(super) fn squared_difference(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (call.real(0)?, call.real(1)?);
    let difference = call.binary(BinaryOp::Sub, a, b)?;
    Ok(vec![call.emit.unary(UnaryOp::Square, difference)?])
}

pub(super) fn add_n(call: &mut Call<'_, '_>) -> Outputs {
    let parts = call.real_inputs()?;
    let sum = parts[1..].iter().try_fold(parts[0], |sum, &next| call.binary(BinaryOp::Add, sum, next))?;
    Ok(vec![sum])
}

pub(super) fn cast(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.real(0)?;
    let to = call.output_dtype(0)?;
    let x = match (call.emit.dtype(x)?, to) {
        // A cast from a float cuts towards zero.
        (from, to) if from.is_float() && !to.is_float() && to != DType::Bool => call.emit.unary(UnaryOp::Trunc, x)?,
        _ => x,
    };
    Ok(vec![call.emit.cast(x, to)?])
}

macro_rules! compare {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(call: &mut Call<'_, '_>) -> Outputs {
            let (a, b) = (call.real(0)?, call.real(1)?);
            Ok(vec![call.emit.compare(CompareOp::$function, a, b)?])
        })*
    };
}

compare! {
    less => Less,
    less_equal => LessOrEqual,
    greater => Greater,
    greater_equal => GreaterOrEqual,
    equal => Equal,
    not_equal => NotEqual,
}

/// Emits a selection. In the old operator (`SELECT`), a vector condition selects whole rows.
pub(super) fn select(call: &mut Call<'_, '_>) -> Outputs {
    let (mut condition, yes, no) = (call.input(0)?, call.real(1)?, call.real(2)?);
    let (rank, extents) = (call.emit.rank(yes)?, call.emit.extents(condition)?);
    if extents.len() == 1 && rank > 1 && call.emit.extents(no)?.len() == rank && call.operator.code == 64 {
        let mut shape = vec![1; rank];
        shape[0] = extents[0];
        condition = call.emit.reshape(condition, &shape)?;
    }
    if call.emit.dtype(condition)? != DType::Bool {
        return malformed("the condition must be bool");
    }
    Ok(vec![call.emit.push(Op::Where(Where {}), &[condition, yes, no])?])
}

pub(super) fn atan2(call: &mut Call<'_, '_>) -> Outputs {
    let (y, x) = (call.real(0)?, call.real(1)?);
    Ok(vec![call.emit.emit_angle(y, x)?])
}
