//! Classification losses, as found in files that were exported for training.

use super::reduce::reduce_over;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Gather, GatherElements, Op, ReduceOp, Softmax, UnaryOp, Where};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits cross entropy of `scores[n, c, d…], labels[n, d…], weights[c]`; also returns the log-probabilities.
pub(super) fn cross_entropy(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let logarithms = emit.push(Op::Softmax(Softmax { axis: 1, log: true }), &[call.input(0)?])?;
    Ok(vec![loss_of_log_probabilities(emit, call, logarithms)?, logarithms])
}

pub(super) fn negative_log_likelihood(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    Ok(vec![loss_of_log_probabilities(emit, call, call.input(0)?)?])
}

fn loss_of_log_probabilities(emit: &mut Emit<'_>, call: &Call<'_>, x: ValueId) -> Outcome<ValueId> {
    let labels = emit.cast(call.input(1)?, DType::I64)?;
    let (shape, dtype) = (emit.extents(labels)?, emit.dtype(x)?);
    if emit.rank(x)? != shape.len() + 1 || shape.is_empty() {
        return malformed(format!("the shapes of scores {} and labels {} do not fit", emit.ty(x)?, emit.ty(labels)?));
    }
    let (mut safe, mut counts) = (labels, None);
    if let Some(ignored) = call.optional_int("ignore_index") {
        let ignored = emit.add_scalar(DType::I64, ignored as f64)?;
        let is_ignored = emit.compare(CompareOp::Equal, labels, ignored)?;
        let first = emit.add_scalar(DType::I64, 0.0)?;
        safe = emit.push(Op::Where(Where {}), &[is_ignored, first, labels])?;
        let (none, all) = (emit.add_scalar(dtype, 0.0)?, emit.add_scalar(dtype, 1.0)?);
        counts = Some(emit.push(Op::Where(Where {}), &[is_ignored, none, all])?);
    }
    if let Some(weights) = call.optional_input(2) {
        let own = emit.push(Op::Gather(Gather { axis: 0 }), &[weights, safe])?;
        counts = Some(match counts {
            Some(counts) => emit.binary(BinaryOp::Mul, counts, own)?,
            None => own,
        });
    }
    let mut at = shape.clone();
    at.insert(1, 1);
    let at = emit.reshape(safe, &at)?;
    let found = emit.push(Op::GatherElements(GatherElements { axis: 1 }), &[x, at])?;
    let found = emit.reshape(found, &shape)?;
    let mut loss = emit.unary(UnaryOp::Neg, found)?;
    if let Some(counts) = counts {
        loss = emit.binary(BinaryOp::Mul, loss, counts)?;
    }
    let all: Vec<usize> = (0..shape.len()).collect();
    match (call.text_attribute("reduction").unwrap_or("mean"), counts) {
        ("none", _) => Ok(loss),
        ("sum", _) => reduce_over(emit, loss, ReduceOp::Sum, all, false),
        ("mean", None) => reduce_over(emit, loss, ReduceOp::Mean, all, false),
        ("mean", Some(counts)) => {
            // The mean is weighted by the weights of the labels.
            let sum = reduce_over(emit, loss, ReduceOp::Sum, all.clone(), false)?;
            let count = reduce_over(emit, counts, ReduceOp::Sum, all, false)?;
            emit.binary(BinaryOp::Div, sum, count)
        }
        (other, _) => malformed(format!("`reduction` has the unknown value `{other}`")),
    }
}
