//! Normalisations and softmax. Scales and shifts that a file leaves out are ones and zeros.

use super::{Call, Made, Memory, Outputs, own, push};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    BatchNorm, Compare, CompareOp, GroupNorm, LayerNorm, Op, Reduce, ReduceOp, RmsNorm, Softmax, Where,
};

/// A vector that may be left out.
fn vector(call: &mut Call<'_, '_>, name: &str, x: ValueId, extents: &[i64], default: f64) -> Outcome<ValueId> {
    let dtype = call.emit.dtype(x)?;
    match call.optional_tensor(name)? {
        Some(id) => {
            let id = call.emit.cast(id, dtype)?;
            call.emit.reshape(id, extents)
        }
        None => call.emit.filled(dtype, extents, default),
    }
}

fn input(call: &Call<'_, '_>) -> Outcome<ValueId> {
    call.tensor(if call.arguments.contains_key("input") { "input" } else { "self" })
}

pub(super) fn batch_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    if call.flag("training", false)? {
        return unsupported("it is in training; export the model after `eval()`");
    }
    let Some(&channels) = call.emit.extents(x)?.get(1) else { return malformed("the data needs 2 dimensions") };
    if !call.has("running_mean") || !call.has("running_var") {
        return unsupported("it has no running statistics");
    }
    let mut inputs = vec![x];
    for (name, default) in [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)] {
        inputs.push(vector(call, name, x, &[channels], default)?);
    }
    let epsilon = call.float("eps", 1e-5)?;
    push(call, Op::BatchNorm(BatchNorm { epsilon }), &inputs)
}

/// The extents of the last dimensions, over which is normalised, and the first of them.
fn last_dimensions(call: &Call<'_, '_>, x: ValueId) -> Outcome<(Vec<i64>, i64)> {
    let (shape, extents) = (call.ints("normalized_shape")?, call.emit.extents(x)?);
    if shape.is_empty() || !extents.ends_with(&shape) {
        return malformed(format!("`normalized_shape` {shape:?} is not the end of {extents:?}"));
    }
    Ok((shape.clone(), (extents.len() - shape.len()) as i64))
}

pub(super) fn layer_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let (shape, axis) = last_dimensions(call, x)?;
    let (scale, shift) = (vector(call, "weight", x, &shape, 1.0)?, vector(call, "bias", x, &shape, 0.0)?);
    let epsilon = call.float("eps", 1e-5)?;
    push(call, Op::LayerNorm(LayerNorm { axis, epsilon }), &[x, scale, shift])
}

pub(super) fn rms_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let (shape, axis) = last_dimensions(call, x)?;
    let scale = vector(call, "weight", x, &shape, 1.0)?;
    // Without one it is the smallest step of the type.
    let epsilon = call.float("eps", f64::from(f32::EPSILON))?;
    push(call, Op::RmsNorm(RmsNorm { axis, epsilon }), &[x, scale])
}

pub(super) fn group_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    let Some(&channels) = call.emit.extents(x)?.get(1) else { return malformed("the data needs 2 dimensions") };
    let groups = if call.operator == "native_group_norm" { call.int("group", 1)? } else { call.int("num_groups", 1)? };
    let (scale, shift) = (vector(call, "weight", x, &[channels], 1.0)?, vector(call, "bias", x, &[channels], 0.0)?);
    let epsilon = call.float("eps", 1e-5)?;
    push(call, Op::GroupNorm(GroupNorm { groups, epsilon }), &[x, scale, shift])
}

pub(super) fn instance_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = input(call)?;
    if call.has("running_mean") && !call.flag("use_input_stats", true)? {
        return unsupported("it uses running statistics");
    }
    let Some(&channels) = call.emit.extents(x)?.get(1) else { return malformed("the data needs 2 dimensions") };
    let (scale, shift) = (vector(call, "weight", x, &[channels], 1.0)?, vector(call, "bias", x, &[channels], 0.0)?);
    let epsilon = call.float("eps", 1e-5)?;
    push(call, Op::GroupNorm(GroupNorm { groups: channels, epsilon }), &[x, scale, shift])
}

pub(super) fn softmax(call: &mut Call<'_, '_>, log: bool) -> Outputs {
    let x = input(call)?;
    let dtype = call.result_dtype()?;
    let x = call.emit.cast(x, dtype)?;
    let axis = call.axis(x, "dim", -1)? as i64;
    let y = call.emit.push(Op::Softmax(Softmax { axis, log }), &[x])?;
    if call.operator != "_safe_softmax" {
        return own(y);
    }
    // A row that is hidden as a whole answers zeros, where a quotient would be no number.
    let lowest = call.emit.scalar(dtype, f64::NEG_INFINITY)?;
    let largest = Op::Reduce(Reduce { function: ReduceOp::Max, axes: vec![axis], keep: true });
    let largest = call.emit.push(largest, &[x])?;
    let is_hidden = call.emit.push(Op::Compare(Compare { function: CompareOp::Equal }), &[largest, lowest])?;
    let zero = call.emit.scalar(dtype, 0.0)?;
    let id = call.emit.push(Op::Where(Where {}), &[is_hidden, zero, y])?;
    Ok(vec![Made { id, window: Memory::Own }])
}
