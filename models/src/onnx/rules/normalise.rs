//! Normalisations.

use crate::graph::ValueId;
use crate::onnx::call::{Call, Outcome, malformed, unsupported};
use crate::onnx::emit::Emit;
use crate::operator::Op;

pub(super) fn batch_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    call.expect_int("training_mode", 0)?;
    call.expect_int("spatial", 1)?;
    let x = call.input(0)?;
    let dtype = emit.dtype(x)?;
    let mut inputs = vec![x];
    for index in 1..5 {
        // Statistics may be wider than the data.
        inputs.push(emit.cast(call.input(index)?, dtype)?);
    }
    Ok(vec![emit.push(Op::BatchNorm { epsilon: call.float("epsilon", 1e-5) }, &inputs)?])
}

pub(super) fn layer_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.axis(call.int("axis", -1), extents.len())?;
    let epsilon = call.float("epsilon", 1e-5);
    let (scale, shift) = (call.input(1)?, call.optional(2));
    let shift = match shift {
        Some(shift) => shift,
        None => emit.filled(emit.dtype(x)?, &extents[axis..], 0.0)?,
    };
    if emit.extents(scale)? != extents[axis..] || emit.extents(shift)? != extents[axis..] {
        return unsupported("its scale or bias is broadcast over the normalised dimensions");
    }
    Ok(vec![emit.push(Op::LayerNorm { axis: axis as i64, epsilon }, &[x, scale, shift])?])
}

/// Normalises each of these groups of channels, then scales each channel.
fn grouped(
    emit: &mut Emit<'_>,
    x: ValueId,
    groups: i64,
    epsilon: f64,
    vectors: Option<(ValueId, ValueId)>,
) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let [n, channels, rest @ ..] = extents.as_slice() else {
        return malformed(format!("the data has {} dimensions; at least 2 are needed", extents.len()));
    };
    if groups < 1 || channels % groups != 0 {
        return malformed(format!("{groups} groups do not divide {channels} channels"));
    }
    let length = rest.iter().product::<i64>() * (channels / groups);
    let dtype = emit.dtype(x)?;
    let rows = emit.reshape(x, &[*n, groups, length])?;
    let (one, zero) = (emit.filled(dtype, &[length], 1.0)?, emit.filled(dtype, &[length], 0.0)?);
    let y = emit.push(Op::LayerNorm { axis: 2, epsilon }, &[rows, one, zero])?;
    let y = emit.reshape(y, &extents)?;
    match vectors {
        Some((scale, shift)) => emit.push(Op::ScaleShift { axis: 1 }, &[y, scale, shift]),
        None => Ok(y),
    }
}

pub(super) fn instance_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let channels = emit.extents(x)?.get(1).copied().unwrap_or(1);
    let vectors = Some((call.input(1)?, call.input(2)?));
    Ok(vec![grouped(emit, x, channels, call.float("epsilon", 1e-5), vectors)?])
}

pub(super) fn group_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let (x, scale, shift) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let groups = call.int("num_groups", 0);
    let channels = emit.extents(x)?.get(1).copied().unwrap_or(1);
    let epsilon = call.float("epsilon", 1e-5);
    if call.opset < 21 && emit.extents(scale)? != [channels] {
        return unsupported("its scale is one number per group");
    }
    Ok(vec![grouped(emit, x, groups, epsilon, Some((scale, shift)))?])
}

pub(super) fn softmax(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    exponential(emit, call, false)
}

pub(super) fn log_softmax(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    exponential(emit, call, true)
}

fn exponential(emit: &mut Emit<'_>, call: &Call<'_>, log: bool) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.axis(call.int("axis", if call.opset < 13 { 1 } else { -1 }), extents.len())?;
    if call.opset >= 13 || axis + 1 == extents.len() {
        return Ok(vec![emit.push(Op::Softmax { axis: axis as i64, log }, &[x])?]);
    }
    // Before, all dimensions from the axis on were one.
    let (outer, inner) = extents.split_at(axis);
    let flat = emit.reshape(x, &[outer.iter().product(), inner.iter().product()])?;
    let y = emit.push(Op::Softmax { axis: 1, log }, &[flat])?;
    Ok(vec![emit.reshape(y, &extents)?])
}
