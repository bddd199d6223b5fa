//! Functions of single elements, broadcast over the output.

use super::{Output, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Tensor, constant, index};
use models::{BinaryOp, DType, Op, UnaryOp};

type Element = std::result::Result<Expression, TvmError>;

/// Makes the element at an output position.
type At<'a> = Box<dyn Fn(&[Expression]) -> Element + 'a>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let dtype = output.dtype;
    let read = |operand: usize, place: &[Expression]| broadcast_read(&inputs[operand], place);
    let (name, element): (&str, At<'_>) = match op {
        Op::ScaleShift { axis } => (
            "scale_shift",
            Box::new(|place| {
                let channel = [place[axis_of(*axis, place.len())].clone()];
                read(0, place)?.mul(&inputs[1].at(&channel)?)?.add(&inputs[2].at(&channel)?)
            }),
        ),
        Op::BiasAdd { axis } => (
            "bias",
            Box::new(|place| {
                let channel = [place[axis_of(*axis, place.len())].clone()];
                read(0, place)?.add(&inputs[1].at(&channel)?)
            }),
        ),
        Op::Unary { function } => (unary_name(*function), Box::new(|place| unary(*function, &read(0, place)?, dtype))),
        Op::Clip { low, high } => (
            "clip",
            Box::new(|place| {
                let (low, high) = (saturated(dtype, *low), saturated(dtype, *high));
                read(0, place)?.max(&constant(dtype, low)?)?.min(&constant(dtype, high)?)
            }),
        ),
        Op::Binary { function } => {
            (binary_name(*function), Box::new(|place| binary(*function, &read(0, place)?, &read(1, place)?)))
        }
        Op::Cast { to } => ("cast", Box::new(|place| read(0, place)?.cast(*to))),
        Op::Identity => ("identity", Box::new(|place| read(0, place))),
        other => unreachable!("`{other:?}` is not pointwise"),
    };
    writer.block(&output.name(name), output.part(), output.like(), |place| element(place))
}

/// Reads an operand at an output position, as numpy broadcasts it.
pub(super) fn broadcast_read(operand: &Tensor, place: &[Expression]) -> Element {
    let skipped = place.len() - operand.extents.len();
    let indices = operand
        .extents
        .iter()
        .zip(&place[skipped..])
        .map(|(&extent, variable)| if extent == 1 { index(0) } else { Ok(variable.clone()) })
        .collect::<std::result::Result<Vec<_>, _>>()?;
    operand.at(&indices)
}

/// A dimension counted from the end when negative.
pub(crate) fn axis_of(axis: i64, rank: usize) -> usize {
    let rank = i64::try_from(rank).expect("a rank is small");
    usize::try_from(if axis < 0 { axis + rank } else { axis }).expect("checked by shape inference")
}

/// The nearest number the element type has: a bound beyond its range bounds nothing, and is no constant of it.
fn saturated(dtype: DType, number: f64) -> f64 {
    if dtype.is_float() {
        return number;
    }
    let bits = i32::try_from(8 * dtype.bytes()).expect("an element has few bytes");
    let is_unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool);
    let (low, values) = if is_unsigned { (0.0, bits) } else { (-f64::from(bits - 1).exp2(), bits - 1) };
    number.clamp(low, f64::from(values).exp2() - 1.0)
}

fn unary_name(function: UnaryOp) -> &'static str {
    match function {
        UnaryOp::Relu => "relu",
        UnaryOp::LeakyRelu { .. } => "leaky_relu",
        UnaryOp::Sigmoid => "sigmoid",
        UnaryOp::HardSigmoid => "hard_sigmoid",
        UnaryOp::Tanh => "tanh",
        UnaryOp::Silu => "silu",
        UnaryOp::HardSwish => "hard_swish",
        UnaryOp::Gelu => "gelu",
        UnaryOp::Exp => "exp",
        UnaryOp::Log => "log",
        UnaryOp::Sqrt => "sqrt",
        UnaryOp::Neg => "neg",
        UnaryOp::Abs => "abs",
    }
}

fn unary(function: UnaryOp, x: &Expression, dtype: DType) -> Element {
    let number = |value: f64| constant(dtype, value);
    let hard_sigmoid =
        |x: &Expression| x.mul(&number(1.0 / 6.0)?)?.add(&number(0.5)?)?.max(&number(0.0)?)?.min(&number(1.0)?);
    match function {
        UnaryOp::Relu => x.max(&number(0.0)?),
        UnaryOp::LeakyRelu { alpha } => x.less(&number(0.0)?)?.select(&x.mul(&number(alpha)?)?, x),
        UnaryOp::Sigmoid => x.function("tirx.sigmoid", dtype),
        UnaryOp::HardSigmoid => hard_sigmoid(x),
        UnaryOp::Tanh => x.function("tirx.tanh", dtype),
        UnaryOp::Silu => x.mul(&x.function("tirx.sigmoid", dtype)?),
        UnaryOp::HardSwish => x.mul(&hard_sigmoid(x)?),
        UnaryOp::Gelu => {
            // The error function exists in single and double precision only.
            let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
            let argument = x.cast(wide)?.mul(&constant(wide, std::f64::consts::FRAC_1_SQRT_2)?)?;
            let erf = argument.function("tirx.erf", wide)?.cast(dtype)?;
            x.mul(&number(0.5)?)?.mul(&erf.add(&number(1.0)?)?)
        }
        UnaryOp::Exp => x.function("tirx.exp", dtype),
        UnaryOp::Log => x.function("tirx.log", dtype),
        UnaryOp::Sqrt => x.function("tirx.sqrt", dtype),
        UnaryOp::Neg => number(0.0)?.sub(x),
        UnaryOp::Abs => x.abs(),
    }
}

fn binary_name(function: BinaryOp) -> &'static str {
    match function {
        BinaryOp::Add => "add",
        BinaryOp::Sub => "sub",
        BinaryOp::Mul => "mul",
        BinaryOp::Div => "div",
        BinaryOp::Max => "max",
        BinaryOp::Min => "min",
    }
}

fn binary(function: BinaryOp, left: &Expression, right: &Expression) -> Element {
    match function {
        BinaryOp::Add => left.add(right),
        BinaryOp::Sub => left.sub(right),
        BinaryOp::Mul => left.mul(right),
        BinaryOp::Div => left.div(right),
        BinaryOp::Max => left.max(right),
        BinaryOp::Min => left.min(right),
    }
}
