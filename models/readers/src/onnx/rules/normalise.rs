//! Import rules of normalisations.

use super::reduce::reduce_over;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    BatchNorm, BinaryOp, Expand, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, Op, ReduceOp, RmsNorm, Softmax,
    UnaryOp,
};
use std::collections::BTreeSet;

pub(super) fn batch_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    call.expect_int("spatial", 1)?;
    if call.flag_attribute("training_mode") {
        return training_batch_norm(emit, call);
    }
    let x = call.input(0)?;
    let dtype = emit.dtype(x)?;
    let mut inputs = vec![x];
    for index in 1..5 {
        // Scale, shift and statistics may have a wider type than the data.
        inputs.push(emit.cast(call.input(index)?, dtype)?);
    }
    Ok(vec![emit.push(Op::BatchNorm(BatchNorm { epsilon: call.float_attribute("epsilon", 1e-5) }), &inputs)?])
}

fn training_batch_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let (rank, dtype) = (emit.rank(x)?, emit.dtype(x)?);
    if rank < 2 {
        return malformed(format!("input {} has no channels", emit.ty(x)?));
    }
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let mean = reduce_over(emit, x, ReduceOp::Mean, axes.clone(), true)?;
    let centred = emit.binary(BinaryOp::Sub, x, mean)?;
    let squares = emit.unary(UnaryOp::Square, centred)?;
    let variance = reduce_over(emit, squares, ReduceOp::Mean, axes, false)?;
    let channels = emit.extents(variance)?;
    let mean = emit.reshape(mean, &channels)?;
    let (scale, shift) = (emit.cast(call.input(1)?, dtype)?, emit.cast(call.input(2)?, dtype)?);
    let op = Op::BatchNorm(BatchNorm { epsilon: call.float_attribute("epsilon", 1e-5) });
    let mut outputs = vec![emit.push(op, &[x, scale, shift, mean, variance])?];
    let momentum = call.float_attribute("momentum", 0.9);
    for (index, own) in [(3, mean), (4, variance)] {
        let before = call.input(index)?;
        let own = emit.cast(own, emit.dtype(before)?)?;
        let kept = emit.binary_with(BinaryOp::Mul, before, momentum)?;
        let added = emit.binary_with(BinaryOp::Mul, own, 1.0 - momentum)?;
        outputs.push(emit.binary(BinaryOp::Add, kept, added)?);
    }
    Ok(outputs)
}

pub(super) fn layer_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", -1), extents.len())?;
    let epsilon = call.float_attribute("epsilon", 1e-5);
    let dtype = emit.dtype(x)?;
    let scale = broadcast_to(emit, call.input(1)?, &extents[axis..])?;
    let shift = match call.optional_input(2) {
        Some(shift) => broadcast_to(emit, shift, &extents[axis..])?,
        None => emit.add_filled(dtype, &extents[axis..], 0.0)?,
    };
    let mut outputs = vec![emit.push(Op::LayerNorm(LayerNorm { axis: axis as i64, epsilon }), &[x, scale, shift])?];
    if call.has_output(1) || call.has_output(2) {
        let axes: Vec<usize> = (axis..extents.len()).collect();
        let mean = reduce_over(emit, x, ReduceOp::Mean, axes.clone(), true)?;
        let centred = emit.binary(BinaryOp::Sub, x, mean)?;
        let squares = emit.unary(UnaryOp::Square, centred)?;
        let variance = reduce_over(emit, squares, ReduceOp::Mean, axes, true)?;
        let variance = emit.binary_with(BinaryOp::Add, variance, epsilon)?;
        outputs.extend([mean, emit.unary(UnaryOp::Rsqrt, variance)?]);
    }
    Ok(outputs)
}

pub(super) fn broadcast_to(emit: &mut Emit<'_>, id: ValueId, extents: &[i64]) -> Outcome<ValueId> {
    if emit.extents(id)? == extents {
        return Ok(id);
    }
    if emit.rank(id)? > extents.len() {
        return unsupported(format!(
            "a scale or shift {} that broadcasts beyond the normalised dimensions",
            emit.ty(id)?
        ));
    }
    emit.push(Op::Expand(Expand { shape: extents.to_vec() }), &[id])
}

pub(super) fn rms_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", -1), extents.len())?;
    let scale = broadcast_to(emit, call.input(1)?, &extents[axis..])?;
    let op = Op::RmsNorm(RmsNorm { axis: axis as i64, epsilon: call.float_attribute("epsilon", 1e-5) });
    Ok(vec![emit.push(op, &[x, scale])?])
}

pub(super) fn instance_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let groups = emit.extents(x)?.get(1).copied().unwrap_or(1);
    let op = Op::GroupNorm(GroupNorm { groups, epsilon: call.float_attribute("epsilon", 1e-5) });
    Ok(vec![emit.push(op, &[x, call.input(1)?, call.input(2)?])?])
}

pub(super) fn group_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let groups = call.int_attribute("num_groups", 0);
    let channels = emit.extents(x)?.get(1).copied().unwrap_or(1);
    if groups < 1 || channels % groups != 0 {
        return malformed(format!("{groups} groups do not divide {channels} channels"));
    }
    let mut inputs = vec![x];
    for index in [1, 2] {
        let mut vector = call.input(index)?;
        // Before version 21 there was one number per group.
        if call.opset < 21 && groups != channels {
            let column = emit.reshape(vector, &[groups, 1])?;
            let wide = emit.push(Op::Expand(Expand { shape: vec![groups, channels / groups] }), &[column])?;
            vector = emit.reshape(wide, &[channels])?;
        }
        inputs.push(vector);
    }
    Ok(vec![emit.push(Op::GroupNorm(GroupNorm { groups, epsilon: call.float_attribute("epsilon", 1e-5) }), &inputs)?])
}

pub(super) fn mean_variance_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let rank = emit.rank(x)?;
    let axes = call.int_list("axes").unwrap_or_else(|| vec![0, 2, 3]);
    let axes =
        axes.iter().map(|&axis| Ok(emit.resolve_axis(axis, rank)? as i64)).collect::<Outcome<BTreeSet<i64>>>()?;
    let op = Op::MeanVarianceNorm(MeanVarianceNorm { axes: axes.into_iter().collect(), epsilon: 1e-9 });
    Ok(vec![emit.push(op, &[x])?])
}

pub(super) fn lp_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", -1), emit.rank(x)?)? as i64;
    Ok(vec![emit.push(Op::LpNorm(LpNorm { axis, order: call.int_attribute("p", 2) }), &[x])?])
}

pub(super) fn lrn(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let (alpha, beta, bias) =
        (call.float_attribute("alpha", 1e-4), call.float_attribute("beta", 0.75), call.float_attribute("bias", 1.0));
    let (x, size) = (call.input(0)?, call.int_attribute("size", 0));
    // Twice the channels cover all channels from each one. `alpha` is divided by the size.
    let most = emit.extents(x)?.get(1).map_or(1, |channels| channels.saturating_mul(2).max(1));
    let (size, alpha) = if size > most { (most, alpha * most as f64 / size as f64) } else { (size, alpha) };
    Ok(vec![emit.push(Op::Lrn(Lrn { size, alpha, beta, bias }), &[x])?])
}

pub(super) fn softmax(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    node_softmax(emit, call, false)
}

pub(super) fn log_softmax(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    node_softmax(emit, call, true)
}

fn node_softmax(emit: &mut Emit<'_>, call: &Call<'_>, log: bool) -> Outcome<Vec<ValueId>> {
    let axis = call.int_attribute("axis", if call.opset < 13 { 1 } else { -1 });
    Ok(vec![softmax_of_opset(emit, call.input(0)?, axis, call.opset, log)?])
}

pub(super) fn softmax_of_opset(emit: &mut Emit<'_>, x: ValueId, axis: i64, opset: i64, log: bool) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let axis = emit.resolve_axis(axis, extents.len())?;
    if opset >= 13 || axis + 1 == extents.len() {
        return emit.push(Op::Softmax(Softmax { axis: axis as i64, log }), &[x]);
    }
    // Before version 13, softmax runs over all dimensions from the axis on, as one.
    let (outer, inner) = extents.split_at(axis);
    let flat = emit.reshape(x, &[outer.iter().product(), inner.iter().product()])?;
    let y = emit.push(Op::Softmax(Softmax { axis: 1, log }), &[flat])?;
    emit.reshape(y, &extents)
}
