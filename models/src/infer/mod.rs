//! Shape rules: what an operator makes of the types it is given.
//!
//! Every reader and every pass goes through here, so a rule exists once. Attributes come from files, hence nothing
//! is trusted: extents are computed in 128 bits or with checks, and an error names the number that was wrong.
//! Symbols pass through wherever a dimension is only carried along; where arithmetic is needed they are refused.

mod index;
mod movement;
mod reduce;
mod window;

use crate::einsum::Equation;
use crate::error::{Error, Result};
use crate::operator::{BinaryOp, CompareOp, Op, UnaryOp};
use crate::types::{DType, Dim, TensorType};

/// Reasons are plain words here; `infer` adds the operator and its inputs.
type Rule<T> = std::result::Result<T, String>;

/// The type of an operator's output.
pub fn infer(op: &Op, inputs: &[&TensorType]) -> Result<TensorType> {
    check_inputs(op, inputs).and_then(|()| rule(op, inputs)).and_then(check_output).map_err(|reason| Error::Infer {
        op: op.name(),
        inputs: inputs.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", "),
        reason,
    })
}

/// Element type in which a contraction of this element type answers: narrow integers are summed in 32 bits.
pub fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::I16 | DType::U8 | DType::U16 => DType::I32,
        wide => wide,
    }
}

fn check_inputs(op: &Op, inputs: &[&TensorType]) -> Rule<()> {
    let arity = op.arity();
    if !arity.contains(&inputs.len()) {
        return Err(match (arity.start(), arity.end()) {
            (low, high) if low == high => format!("takes {low} inputs, got {}", inputs.len()),
            (low, high) => format!("takes {low} to {high} inputs, got {}", inputs.len()),
        });
    }
    inputs.iter().try_for_each(|ty| check_type(ty))
}

fn check_output(ty: TensorType) -> Rule<TensorType> {
    check_type(&ty).map(|()| ty)
}

/// Extents must not be negative, and no product of some of them may overflow, also not next to an extent of 0.
pub fn check_type(ty: &TensorType) -> Rule<()> {
    let mut bytes = ty.dtype.bytes();
    for dim in &ty.shape {
        let Dim::Known(extent) = dim else { continue };
        let extent = u64::try_from(*extent).map_err(|_| format!("{ty} has the negative extent {extent}"))?;
        let product = bytes.checked_mul(extent.max(1));
        bytes = product.ok_or_else(|| format!("{ty} has more bytes than 64 bits can count"))?;
    }
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
fn rule(op: &Op, inputs: &[&TensorType]) -> Rule<TensorType> {
    let x = inputs[0];
    match op {
        Op::Conv { strides, pads, dilations, groups } => {
            window::conv(x, inputs[1], &window::Window { strides, pads, dilations, groups: *groups })
        }
        Op::ConvTranspose { strides, pads, output_pads, dilations, groups } => {
            let window = window::Window { strides, pads, dilations, groups: *groups };
            window::conv_transpose(x, inputs[1], output_pads, &window)
        }
        Op::MatMul { transpose_a, transpose_b } => mat_mul(x, inputs[1], *transpose_a, *transpose_b),
        Op::Dense => dense(x, inputs[1]),
        Op::BatchNorm { epsilon } => {
            finite_positive(*epsilon, "epsilon")?;
            floating(x)?;
            vectors(x, 1, &inputs[1..])
        }
        Op::LayerNorm { axis, epsilon } => {
            finite_positive(*epsilon, "epsilon")?;
            layer_norm(x, axis_of(*axis, x)?, &inputs[1..])
        }
        Op::ScaleShift { axis } | Op::BiasAdd { axis } => vectors(x, axis_of(*axis, x)?, &inputs[1..]),
        Op::Softmax { axis, .. } => {
            axis_of(*axis, x)?;
            floating(x)
        }
        Op::Pool { mode, kernel, strides, pads, dilations, ceil, .. } => {
            numeric(x)?;
            let window = window::Window { strides, pads, dilations, groups: 1 };
            window::pool(x, *mode, kernel, &window, *ceil)
        }
        Op::GlobalPool { mode } => window::global_pool(x, *mode),
        Op::Unary { function } => unary(*function, x),
        Op::Clip { low, high } => {
            if !(low.is_finite() && high.is_finite() && low <= high) {
                return Err(format!(
                    "bounds {low} and {high} must be finite and in order; for an open side give the largest number \
                     of the element type"
                ));
            }
            numeric(x)
        }
        Op::Binary { function } => {
            same_dtype(x, inputs[1])?;
            binary(*function, x)?;
            Ok(TensorType { dtype: x.dtype, shape: broadcast(&x.shape, &inputs[1].shape)? })
        }
        Op::Compare { function } => {
            same_dtype(x, inputs[1])?;
            match function {
                CompareOp::Equal | CompareOp::NotEqual => {}
                CompareOp::Less | CompareOp::LessOrEqual | CompareOp::Greater | CompareOp::GreaterOrEqual => {
                    numeric(x)?;
                }
            }
            Ok(TensorType { dtype: DType::Bool, shape: broadcast(&x.shape, &inputs[1].shape)? })
        }
        Op::Where => {
            if x.dtype != DType::Bool {
                return Err(format!("the condition must be bool, not {}", x.dtype));
            }
            same_dtype(inputs[1], inputs[2])?;
            let values = broadcast(&inputs[1].shape, &inputs[2].shape)?;
            Ok(TensorType { dtype: inputs[1].dtype, shape: broadcast(&x.shape, &values)? })
        }
        Op::PRelu => {
            same_dtype(x, inputs[1])?;
            if broadcast(&x.shape, &inputs[1].shape)? != x.shape {
                return Err(format!("the slope {} does not broadcast to {x}", inputs[1]));
            }
            floating(x)
        }
        Op::Quantize { to, axis } => reduce::quantize(x, &inputs[1..], *to, *axis),
        Op::Dequantize { axis } => reduce::dequantize(x, &inputs[1..], *axis),
        Op::Requantize { to, axis, zero, low, high } => {
            reduce::requantize(x, inputs[1], *to, *axis, [*zero, *low, *high])
        }
        Op::Cast { to } => Ok(TensorType { dtype: *to, shape: x.shape.clone() }),
        Op::Reshape { shape } => movement::reshape(x, shape),
        Op::Flatten { axis } => movement::flatten(x, *axis),
        Op::Transpose { permutation } => movement::transpose(x, permutation),
        Op::Concat { axis } => movement::concat(inputs, *axis),
        Op::Pad { pads, value } => movement::pad(x, pads, *value),
        Op::Slice { axes, starts, stops, steps } => movement::slice(x, axes, starts, stops, steps),
        Op::Resize { mode, extents } => movement::resize(x, *mode, extents),
        Op::BorderPad { border, pads } => index::border_pad(x, *border, pads),
        Op::Expand { shape } => index::expand(x, shape),
        Op::Tile { repeats } => index::tile(x, repeats),
        Op::Gather { axis } => index::gather(x, inputs[1], *axis),
        Op::GatherElements { axis } => index::gather_elements(x, inputs[1], *axis),
        Op::GatherNd { batch } => index::gather_nd(x, inputs[1], *batch),
        Op::ScatterElements { axis, combine } => index::scatter_elements(inputs, *axis, *combine),
        Op::ScatterNd { combine } => index::scatter_nd(inputs, *combine),
        Op::OneHot { axis, depth, on, off, to } => index::one_hot(x, *axis, *depth, [*on, *off], *to),
        Op::Trilu { diagonal, .. } => index::trilu(x, *diagonal),
        Op::Rope { rotary, .. } => index::rope(x, &inputs[1..], *rotary),
        Op::Reduce { function, axes, keep } => reduce::reduce(x, *function, axes, *keep),
        Op::ArgReduce { axis, keep, .. } => reduce::arg_reduce(x, *axis, *keep),
        Op::ArgTop { count, axis, .. } => reduce::arg_top(x, *count, *axis),
        Op::CumSum { axis, .. } => {
            axis_of(*axis, x)?;
            numeric(x)
        }
        Op::RmsNorm { axis, epsilon } => reduce::rms_norm(x, inputs[1], *axis, *epsilon),
        Op::GroupNorm { groups, epsilon } => reduce::group_norm(x, &inputs[1..], *groups, *epsilon),
        Op::MeanVarianceNorm { axes, epsilon } => reduce::mean_variance_norm(x, axes, *epsilon),
        Op::LpNorm { axis, order } => reduce::lp_norm(x, *axis, *order),
        Op::Lrn { size, alpha, beta, bias } => {
            reduce::lrn(x, *size, [("alpha", *alpha), ("beta", *beta), ("bias", *bias)])
        }
        Op::AdaptivePool { mode, extents } => window::adaptive_pool(x, *mode, extents),
        Op::Einsum { equation } => einsum(inputs, equation),
        Op::Attention { scale, window, softcap, .. } => {
            finite_positive(*scale, "scale")?;
            softcap.map_or(Ok(()), |softcap| finite_positive(softcap, "softcap"))?;
            if let Some(window) = window.filter(|window| *window < 1) {
                return Err(format!("a window of {window} places must be at least 1"));
            }
            attention(inputs)
        }
        Op::QConv { strides, pads, dilations, groups, x_zero, w_zero } => {
            let [x, w] = reduce::quantised([(x, *x_zero), (inputs[1], *w_zero)])?;
            window::conv(&x, &w, &window::Window { strides, pads, dilations, groups: *groups })
        }
        Op::QDense { x_zero, w_zero } => {
            let [x, w] = reduce::quantised([(x, *x_zero), (inputs[1], *w_zero)])?;
            dense(&x, &w)
        }
        Op::QMatMul { a_zero, b_zero } => {
            let [a, b] = reduce::quantised([(x, *a_zero), (inputs[1], *b_zero)])?;
            mat_mul(&a, &b, false, false)
        }
        Op::Identity => Ok(x.clone()),
    }
}

fn einsum(inputs: &[&TensorType], equation: &str) -> Rule<TensorType> {
    for input in inputs {
        same_dtype(inputs[0], input)?;
    }
    numeric(inputs[0])?;
    let equation = Equation::read(equation, inputs)?;
    let shape = equation.output.iter().map(|&letter| equation.extents[letter].clone()).collect();
    Ok(TensorType { dtype: accumulator(inputs[0].dtype), shape })
}

fn attention(inputs: &[&TensorType]) -> Rule<TensorType> {
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    floating(q)?;
    for (name, ty) in [("q", q), ("k", k), ("v", v)] {
        same_dtype(q, ty)?;
        if ty.rank() != 4 {
            return Err(format!("`{name}` must have 4 dimensions (batch, heads, places, width), has {}", ty.rank()));
        }
    }
    let heads = known(&q.shape[1], "the heads of `q`")?;
    let kept = known(&k.shape[1], "the heads of `k`")?;
    if kept < 1 || heads % kept != 0 {
        return Err(format!("{kept} heads of `k` do not divide {heads} heads of `q`"));
    }
    let agree = q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3] && k.shape[..3] == v.shape[..3];
    if !agree {
        return Err("`q` and `k` must agree in batch and width, `k` and `v` in batch, heads and places".to_owned());
    }
    if k.shape[2] == Dim::Known(0) {
        return Err("there are no places to look at".to_owned());
    }
    if let Some(mask) = inputs.get(3) {
        same_dtype(q, mask)?;
        let scores = [&q.shape[..3], &k.shape[2..3]].concat();
        if broadcast(&mask.shape, &scores)? != scores {
            return Err(format!("the mask {mask} does not broadcast to the scores"));
        }
    }
    Ok(TensorType { dtype: q.dtype, shape: [&q.shape[..3], &v.shape[3..]].concat() })
}

/// Which element types a function of two elements takes.
fn binary(function: BinaryOp, x: &TensorType) -> Rule<TensorType> {
    match function {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Max
        | BinaryOp::Min
        | BinaryOp::Mod
        | BinaryOp::Fmod
        | BinaryOp::FloorDiv => numeric(x),
        BinaryOp::Pow => floating(x),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
            integer(x)
        }
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => boolean(x),
    }
}

fn mat_mul(a: &TensorType, b: &TensorType, transpose_a: bool, transpose_b: bool) -> Rule<TensorType> {
    same_dtype(a, b)?;
    numeric(a)?;
    for (name, ty) in [("a", a), ("b", b)] {
        if ty.rank() < 2 {
            return Err(format!("`{name}` must have at least 2 dimensions, has {}; reshape it first", ty.rank()));
        }
    }
    let (a_batch, a_matrix) = a.shape.split_at(a.rank() - 2);
    let (b_batch, b_matrix) = b.shape.split_at(b.rank() - 2);
    let (m, k) = if transpose_a { (&a_matrix[1], &a_matrix[0]) } else { (&a_matrix[0], &a_matrix[1]) };
    let (k_of_b, n) = if transpose_b { (&b_matrix[1], &b_matrix[0]) } else { (&b_matrix[0], &b_matrix[1]) };
    if k != k_of_b {
        return Err(format!("`a` is summed over {k} elements, `b` over {k_of_b}"));
    }
    let mut shape = broadcast(a_batch, b_batch)?;
    shape.extend([m.clone(), n.clone()]);
    Ok(TensorType { dtype: accumulator(a.dtype), shape })
}

fn dense(x: &TensorType, w: &TensorType) -> Rule<TensorType> {
    same_dtype(x, w)?;
    numeric(x)?;
    let [n, k] = w.shape.as_slice() else {
        return Err(format!("`w` must have 2 dimensions (outputs, inputs), has {}", w.rank()));
    };
    let Some((last, leading)) = x.shape.split_last() else {
        return Err("`x` must have at least 1 dimension".to_owned());
    };
    if last != k {
        return Err(format!("the last dimension of `x` is {last}, `w` takes {k}"));
    }
    let mut shape = leading.to_vec();
    shape.push(n.clone());
    Ok(TensorType { dtype: accumulator(x.dtype), shape })
}

/// Rule of operators with one vector per channel: each vector has the extent of `axis`; the output is as `x`.
fn vectors(x: &TensorType, axis: usize, vectors: &[&TensorType]) -> Rule<TensorType> {
    let Some(channels) = x.shape.get(axis) else {
        return Err(format!("`x` has {} dimensions, the channel is dimension {axis}", x.rank()));
    };
    numeric(x)?;
    for vector in vectors {
        same_dtype(x, vector)?;
        if vector.shape.as_slice() != std::slice::from_ref(channels) {
            return Err(format!("{vector} must be a vector of {channels}, one element per channel"));
        }
    }
    Ok(x.clone())
}

fn layer_norm(x: &TensorType, axis: usize, vectors: &[&TensorType]) -> Rule<TensorType> {
    for vector in vectors {
        same_dtype(x, vector)?;
        if vector.shape != x.shape[axis..] {
            return Err(format!("{vector} must have the shape of `x` from dimension {axis} on"));
        }
    }
    floating(x)
}

fn unary(function: UnaryOp, x: &TensorType) -> Rule<TensorType> {
    let finite = |name: &str, number: f64| {
        if number.is_finite() { Ok(()) } else { Err(format!("{name} {number} must be finite")) }
    };
    match function {
        UnaryOp::Relu | UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Square | UnaryOp::Sign => return numeric(x),
        UnaryOp::Not => return boolean(x),
        UnaryOp::BitNot => return integer(x),
        UnaryOp::IsNan | UnaryOp::IsInf { .. } => {
            return Ok(TensorType { dtype: DType::Bool, shape: floating(x)?.shape });
        }
        UnaryOp::LeakyRelu { alpha } | UnaryOp::Elu { alpha } | UnaryOp::ThresholdedRelu { alpha } => {
            finite("alpha", alpha)?;
        }
        UnaryOp::Celu { alpha } => finite_positive(alpha, "alpha")?,
        UnaryOp::HardSigmoidOf { slope, offset } => finite("slope", slope).and(finite("offset", offset))?,
        UnaryOp::Swish { beta } => finite("beta", beta)?,
        UnaryOp::Shrink { lambda, bias } => finite("lambda", lambda).and(finite("bias", bias))?,
        UnaryOp::Sigmoid
        | UnaryOp::HardSigmoid
        | UnaryOp::Tanh
        | UnaryOp::Silu
        | UnaryOp::HardSwish
        | UnaryOp::Gelu
        | UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Sqrt
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::Erf
        | UnaryOp::Exp2
        | UnaryOp::Expm1
        | UnaryOp::Log2
        | UnaryOp::Log10
        | UnaryOp::Log1p
        | UnaryOp::Rsqrt
        | UnaryOp::Reciprocal
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::Selu
        | UnaryOp::Softplus
        | UnaryOp::Softsign
        | UnaryOp::Mish
        | UnaryOp::GeluTanh => {}
    }
    floating(x)
}

/// The shape two shapes broadcast to, as numpy does.
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Rule<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let one = Dim::Known(1);
    let from = |shape: &[Dim], index: usize| match (index + shape.len()).checked_sub(rank) {
        Some(index) => shape[index].clone(),
        None => one.clone(),
    };
    (0..rank)
        .map(|index| match (from(a, index), from(b, index)) {
            (a, b) if a == b || b == one => Ok(a),
            (a, b) if a == one => Ok(b),
            (a, b) => Err(format!("extents {a} and {b} of dimension {index} do not broadcast")),
        })
        .collect()
}

/// The axis as an index; the builder has made negative ones positive.
pub(super) fn axis_of(axis: i64, x: &TensorType) -> Rule<usize> {
    usize::try_from(axis)
        .ok()
        .filter(|&axis| axis < x.rank())
        .ok_or_else(|| format!("axis {axis} is not below the rank {}", x.rank()))
}

fn same_dtype(a: &TensorType, b: &TensorType) -> Rule<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(format!("element types {} and {} differ; cast one of them", a.dtype, b.dtype))
}

fn floating(x: &TensorType) -> Rule<TensorType> {
    if x.dtype.is_float() { Ok(x.clone()) } else { Err(format!("needs a floating type, not {}", x.dtype)) }
}

fn numeric(x: &TensorType) -> Rule<TensorType> {
    if x.dtype == DType::Bool { Err("needs numbers, not bool".to_owned()) } else { Ok(x.clone()) }
}

fn integer(x: &TensorType) -> Rule<TensorType> {
    if x.dtype.is_float() || x.dtype == DType::Bool {
        return Err(format!("needs integers, not {}", x.dtype));
    }
    Ok(x.clone())
}

fn boolean(x: &TensorType) -> Rule<TensorType> {
    if x.dtype == DType::Bool { Ok(x.clone()) } else { Err(format!("needs bool, not {}", x.dtype)) }
}

fn finite_positive(value: f64, name: &str) -> Rule<()> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{name} {value} must be finite and positive")) }
}

fn known(dim: &Dim, what: &str) -> Rule<i64> {
    match dim {
        Dim::Known(extent) => Ok(*extent),
        Dim::Symbol(name) => Err(format!("{what} is the symbol `{name}`; bind it to a number first")),
    }
}

#[cfg(test)]
mod tests;
