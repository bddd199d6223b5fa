//! Operators that compute and have one batched input.

use super::movement::movement_step;
use super::position::{BatchPosition, COMBINES, Operand, Outcome, Step, index, split_axes};
use models::operators::{
    ArgReduce, ArgTop, BiasAdd, CumSum, Dequantize, LayerNorm, LpNorm, MeanVarianceNorm, Op, Quantize, Reduce,
    Requantize, RmsNorm, ScaleShift, Softmax,
};
use std::slice::from_mut;

/// Converts an operator whose first input has the batch and whose other inputs have none.
pub(super) fn single_step(op: &Op, position: BatchPosition, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (position.axis, operands[0].rank());
    let mut op = op.clone();
    let (is_split, axis) = match &mut op {
        Op::Unary(_) | Op::Clip(_) | Op::Cast(_) | Op::Identity(_) => (false, a),
        Op::Softmax(Softmax { axis, .. })
        | Op::LpNorm(LpNorm { axis, .. })
        | Op::CumSum(CumSum { axis, .. })
        | Op::ArgTop(ArgTop { axis, .. })
        | Op::ScaleShift(ScaleShift { axis })
        | Op::BiasAdd(BiasAdd { axis }) => (split_axes(from_mut(axis), a), a),
        Op::ArgReduce(ArgReduce { axis, keep, .. }) => {
            let to = a - usize::from(!*keep && index(*axis) < a);
            (split_axes(from_mut(axis), a), to)
        }
        Op::Reduce(Reduce { axes, keep, .. }) => {
            let before = axes.iter().filter(|&&axis| index(axis) < a).count();
            let to = if *keep { a } else { a - before };
            (split_axes(axes, a), to)
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => (split_axes(axes, a), a),
        Op::LayerNorm(LayerNorm { axis, .. }) | Op::RmsNorm(RmsNorm { axis, .. }) => {
            if index(*axis) < a {
                return Err(COMBINES.to_owned());
            }
            (split_axes(from_mut(axis), a), a)
        }
        Op::Pool(_) | Op::GlobalPool(_) | Op::AdaptivePool(_) | Op::Resize(_) if a < 2 => (false, a),
        Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) | Op::GroupNorm(_) | Op::Lrn(_) if a == 0 => (false, a),
        Op::BatchNorm(_) if a != 1 => (false, a),
        Op::Quantize(Quantize { axis, .. })
        | Op::Dequantize(Dequantize { axis, .. })
        | Op::Requantize(Requantize { axis, .. }) => {
            let is_scalar = operands[1..].iter().all(|operand| operand.rank() == 0);
            (!is_scalar && split_axes(from_mut(axis), a), a)
        }
        Op::Dense(_) | Op::QDense(_) => (a + 1 == rank, a),
        _ => return movement_step(op, position, operands),
    };
    Ok(Step { op, axis, is_split })
}
