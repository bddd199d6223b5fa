//! Normalisations of sums: of residual connections and of embeddings.

use super::fused::add_last_bias;
use crate::onnx::call::Call;
use crate::onnx::rules::{normalise, reduce};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Gather, LayerNorm, Op, ReduceOp, RmsNorm};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits `SkipLayerNormalization`; inputs: `input, skip, gamma, beta, bias`.
pub(super) fn skip_layer_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let sum = sum_inputs(emit, call, call.optional_input(4))?;
    let y = layer_norm(emit, sum, call.input(2)?, call.optional_input(3), call.float_attribute("epsilon", 1e-12))?;
    norm_outputs(call, y, sum)
}

/// Emits `SkipSimplifiedLayerNormalization`; inputs: `input, skip, gamma, bias`.
pub(super) fn skip_rms_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let sum = sum_inputs(emit, call, call.optional_input(3))?;
    let axis = last_axis(emit, sum)?;
    let op = Op::RmsNorm(RmsNorm { axis, epsilon: call.float_attribute("epsilon", 1e-12) });
    let y = emit.push(op, &[sum, call.input(2)?])?;
    norm_outputs(call, y, sum)
}

fn sum_inputs(emit: &mut Emit<'_>, call: &Call<'_>, bias: Option<ValueId>) -> Outcome<ValueId> {
    let sum = emit.binary(BinaryOp::Add, call.input(0)?, call.input(1)?)?;
    add_last_bias(emit, sum, bias)
}

fn norm_outputs(call: &Call<'_>, y: ValueId, sum: ValueId) -> Outputs {
    if call.has_output(1) || call.has_output(2) {
        return unsupported("mean and variance as outputs, which only training needs");
    }
    Ok(vec![y, sum, sum, sum])
}

fn last_axis(emit: &Emit<'_>, x: ValueId) -> Outcome<i64> {
    match emit.rank(x)? {
        0 => malformed("the input is a scalar"),
        rank => Ok(rank as i64 - 1),
    }
}

fn layer_norm(
    emit: &mut Emit<'_>,
    x: ValueId,
    scale: ValueId,
    shift: Option<ValueId>,
    epsilon: f64,
) -> Outcome<ValueId> {
    let axis = last_axis(emit, x)?;
    let extents = emit.extents(x)?[axis as usize..].to_vec();
    let shift = match shift {
        Some(shift) => shift,
        None => emit.add_filled(emit.dtype(x)?, &extents, 0.0)?,
    };
    let (scale, shift) =
        (normalise::broadcast_to(emit, scale, &extents)?, normalise::broadcast_to(emit, shift, &extents)?);
    emit.push(Op::LayerNorm(LayerNorm { axis, epsilon }), &[x, scale, shift])
}

/// Sums rows of three embedding tables and normalises the sum; inputs: `ids, segment ids, word table, position table,
/// segment table, gamma, beta, mask, position ids`.
pub(super) fn embed_layer_norm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let ids = call.input(0)?;
    let [batch, tokens] = emit.extents(ids)?[..] else { return malformed("ids must have 2 dimensions") };
    let mut sum = emit.push(Op::Gather(Gather { axis: 0 }), &[call.input(2)?, ids])?;
    let table = call.input(3)?;
    let places = match call.optional_input(8) {
        Some(places) => emit.push(Op::Gather(Gather { axis: 0 }), &[table, places])?,
        None => {
            let [rows, width] = emit.extents(table)?[..] else {
                return malformed("positions must have 2 dimensions");
            };
            if rows < tokens {
                return malformed(format!("{tokens} tokens exceed the {rows} rows of the position table"));
            }
            let first = emit.slice(table, 0, 0, tokens)?;
            emit.reshape(first, &[1, tokens, width])?
        }
    };
    sum = emit.binary(BinaryOp::Add, sum, places)?;
    if let (Some(kinds), Some(table)) = (call.optional_input(1), call.optional_input(4)) {
        let kinds = emit.push(Op::Gather(Gather { axis: 0 }), &[table, kinds])?;
        sum = emit.binary(BinaryOp::Add, sum, kinds)?;
    }
    let y = layer_norm(emit, sum, call.input(5)?, Some(call.input(6)?), call.float_attribute("epsilon", 1e-12))?;
    let lengths = match call.optional_input(7) {
        Some(mask) if call.has_output(1) => reduce::reduce_over(emit, mask, ReduceOp::Sum, vec![1], false)?,
        _ => emit.add_filled(DType::I32, &[batch], 0.0)?,
    };
    Ok(vec![y, lengths, sum])
}
