//! Normalisations and softmax. Omitted scales are ones, omitted shifts zeros.

use super::{Call, Memory, Outputs, RuleOutput, own_output, push_output};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    BatchNorm, BinaryOp, CompareOp, GroupNorm, LayerNorm, Op, Reduce, ReduceOp, RmsNorm, ScaleShift, Softmax, UnaryOp,
    Where,
};

fn optional_vector(call: &mut Call<'_, '_>, name: &str, x: ValueId, extents: &[i64], default: f64) -> Outcome<ValueId> {
    let dtype = call.emit.dtype(x)?;
    match call.optional_tensor(name)? {
        Some(id) => {
            let id = call.emit.cast(id, dtype)?;
            call.emit.reshape(id, extents)
        }
        None => call.emit.add_filled(dtype, extents, default),
    }
}

fn primary_input(call: &Call<'_, '_>) -> Outcome<ValueId> {
    call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })
}

pub(super) fn batch_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let Some(&channels) = call.emit.extents(x)?.get(1) else {
        return malformed("the input must have at least 2 dimensions");
    };
    let is_training = call.flag_argument("training", call.operator == "_native_batch_norm_legit_functional")?;
    let has_statistics = call.has_argument("running_mean") && call.has_argument("running_var");
    // Weight standardisation normalises constants by their own statistics, also at inference.
    if is_training && has_statistics && call.emit.builder.constant_data(x).is_none() {
        return unsupported("batch normalisation in training mode; export the model after `eval()`");
    }
    let epsilon = call.float_argument("eps", 1e-5)?;
    if is_training || !has_statistics {
        return own_output(normalised_by_batch(call, x, channels, epsilon)?);
    }
    let mut inputs = vec![x];
    for (name, default) in [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)] {
        inputs.push(optional_vector(call, name, x, &[channels], default)?);
    }
    push_output(call, Op::BatchNorm(BatchNorm { epsilon }), &inputs)
}

fn normalised_by_batch(call: &mut Call<'_, '_>, x: ValueId, channels: i64, epsilon: f64) -> Outcome<ValueId> {
    let rank = call.emit.rank(x)?;
    let (scale, shift) =
        (optional_vector(call, "weight", x, &[channels], 1.0)?, optional_vector(call, "bias", x, &[channels], 0.0)?);
    if call.emit.extents(x)?[0] == 1 && rank > 2 {
        return call.emit.push(Op::GroupNorm(GroupNorm { groups: channels, epsilon }), &[x, scale, shift]);
    }
    let axes: Vec<i64> = (0..rank as i64).filter(|&axis| axis != 1).collect();
    let emit = &mut *call.emit;
    let mean = Op::Reduce(Reduce { function: ReduceOp::Mean, axes, keep: true });
    let centre = emit.push(mean.clone(), &[x])?;
    let apart = emit.binary(BinaryOp::Sub, x, centre)?;
    let squares = emit.unary(UnaryOp::Square, apart)?;
    let variance = emit.push(mean, &[squares])?;
    let variance = emit.binary_with(BinaryOp::Add, variance, epsilon)?;
    let factor = emit.unary(UnaryOp::Rsqrt, variance)?;
    let y = emit.binary(BinaryOp::Mul, apart, factor)?;
    emit.push(Op::ScaleShift(ScaleShift { axis: 1 }), &[y, scale, shift])
}

/// Returns the extents of the normalised last dimensions, and the first normalised axis.
fn last_dimensions(call: &Call<'_, '_>, x: ValueId) -> Outcome<(Vec<i64>, i64)> {
    let (shape, extents) = (call.int_list("normalized_shape")?, call.emit.extents(x)?);
    if shape.is_empty() || !extents.ends_with(&shape) {
        return malformed(format!("`normalized_shape` {shape:?} is not the end of {extents:?}"));
    }
    Ok((shape.clone(), (extents.len() - shape.len()) as i64))
}

pub(super) fn layer_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (shape, axis) = last_dimensions(call, x)?;
    let (scale, shift) =
        (optional_vector(call, "weight", x, &shape, 1.0)?, optional_vector(call, "bias", x, &shape, 0.0)?);
    let epsilon = call.float_argument("eps", 1e-5)?;
    push_output(call, Op::LayerNorm(LayerNorm { axis, epsilon }), &[x, scale, shift])
}

pub(super) fn rms_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let (shape, axis) = last_dimensions(call, x)?;
    let scale = optional_vector(call, "weight", x, &shape, 1.0)?;
    // The default is the machine epsilon of the type.
    let epsilon = call.float_argument("eps", f64::from(f32::EPSILON))?;
    push_output(call, Op::RmsNorm(RmsNorm { axis, epsilon }), &[x, scale])
}

pub(super) fn group_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let Some(&channels) = call.emit.extents(x)?.get(1) else {
        return malformed("the input must have at least 2 dimensions");
    };
    let groups = if call.operator == "native_group_norm" {
        call.int_argument("group", 1)?
    } else {
        call.int_argument("num_groups", 1)?
    };
    let (scale, shift) =
        (optional_vector(call, "weight", x, &[channels], 1.0)?, optional_vector(call, "bias", x, &[channels], 0.0)?);
    let epsilon = call.float_argument("eps", 1e-5)?;
    push_output(call, Op::GroupNorm(GroupNorm { groups, epsilon }), &[x, scale, shift])
}

pub(super) fn instance_norm(call: &mut Call<'_, '_>) -> Outputs {
    if call.has_argument("running_mean") && !call.flag_argument("use_input_stats", true)? {
        return batch_norm(call);
    }
    let x = primary_input(call)?;
    let Some(&channels) = call.emit.extents(x)?.get(1) else {
        return malformed("the input must have at least 2 dimensions");
    };
    let (scale, shift) =
        (optional_vector(call, "weight", x, &[channels], 1.0)?, optional_vector(call, "bias", x, &[channels], 0.0)?);
    let epsilon = call.float_argument("eps", 1e-5)?;
    push_output(call, Op::GroupNorm(GroupNorm { groups: channels, epsilon }), &[x, scale, shift])
}

pub(super) fn softmax(call: &mut Call<'_, '_>, log: bool) -> Outputs {
    let x = primary_input(call)?;
    let dtype = call.result_dtype()?;
    let x = call.emit.cast(x, dtype)?;
    let axis = call.axis_argument(x, "dim", -1)? as i64;
    if call.emit.rank(x)? == 0 {
        return own_output(call.emit.add_scalar(dtype, if log { 0.0 } else { 1.0 })?);
    }
    let y = call.emit.push(Op::Softmax(Softmax { axis, log }), &[x])?;
    if call.operator != "_safe_softmax" {
        return own_output(y);
    }
    // A fully masked row gives zeros instead of NaN.
    let lowest = call.emit.add_scalar(dtype, f64::NEG_INFINITY)?;
    let largest = Op::Reduce(Reduce { function: ReduceOp::Max, axes: vec![axis], keep: true });
    let largest = call.emit.push(largest, &[x])?;
    let is_hidden = call.emit.compare(CompareOp::Equal, largest, lowest)?;
    let zero = call.emit.add_scalar(dtype, 0.0)?;
    let id = call.emit.push(Op::Where(Where {}), &[is_hidden, zero, y])?;
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}

/// Returns `v · g / |v|` and `|v|`; the norm is over all dimensions but `dim`.
pub(super) fn weight_norm(call: &mut Call<'_, '_>) -> Outputs {
    let (v, g) = (call.tensor_argument("v")?, call.tensor_argument("g")?);
    let rank = call.emit.rank(v)? as i64;
    let dim = call.int_argument("dim", 0)?;
    let kept = if dim == -1 { None } else { Some(call.emit.resolve_axis(dim, rank as usize)? as i64) };
    let axes: Vec<i64> = (0..rank).filter(|&axis| Some(axis) != kept).collect();
    let emit = &mut *call.emit;
    let length = emit.push(Op::Reduce(Reduce { function: ReduceOp::L2, axes, keep: true }), &[v])?;
    let factor = emit.binary(BinaryOp::Div, g, length)?;
    let w = emit.binary(BinaryOp::Mul, v, factor)?;
    Ok([w, length].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

pub(super) fn cosine_similarity(call: &mut Call<'_, '_>) -> Outputs {
    let (mut a, mut b) = (call.tensor_argument("x1")?, call.tensor_argument("x2")?);
    let epsilon = call.float_argument("eps", 1e-8)?;
    let product = call.emit.binary(BinaryOp::Mul, a, b)?;
    let axis = call.axis_argument(product, "dim", 1)? as i64;
    let emit = &mut *call.emit;
    let from_end = axis - emit.rank(product)? as i64;
    for x in [&mut a, &mut b] {
        let axes = vec![emit.resolve_axis(from_end, emit.rank(*x)?)? as i64];
        let length = emit.push(Op::Reduce(Reduce { function: ReduceOp::L2, axes, keep: true }), &[*x])?;
        let length = emit.binary_with(BinaryOp::Max, length, epsilon)?;
        *x = emit.binary(BinaryOp::Div, *x, length)?;
    }
    let y = emit.binary(BinaryOp::Mul, a, b)?;
    own_output(emit.push(Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![axis], keep: false }), &[y])?)
}
