//! Operators that compute and have one batched input.

use super::movement::movement_step;
use super::place::{COMBINES, Operand, Outcome, Place, Step, index, shift_axis};
use models::operators::{
    ArgReduce, ArgTop, BiasAdd, CumSum, Dequantize, LayerNorm, LpNorm, MeanVarianceNorm, Op, Quantize, Reduce,
    Requantize, RmsNorm, ScaleShift, Softmax,
};

/// Operators whose first input has the batch and whose other inputs have none.
pub(super) fn single_step(op: &Op, place: Place, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (place.axis, operands[0].rank());
    let mut op = op.clone();
    let step = match &mut op {
        Op::Unary(_) | Op::Clip(_) | Op::Cast(_) | Op::Identity(_) => Step::Keep(op, a),
        Op::Softmax(Softmax { axis, .. })
        | Op::LpNorm(LpNorm { axis, .. })
        | Op::CumSum(CumSum { axis, .. })
        | Op::ArgTop(ArgTop { axis, .. })
        | Op::ScaleShift(ScaleShift { axis })
        | Op::BiasAdd(BiasAdd { axis }) => {
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::ArgReduce(ArgReduce { axis, keep, .. }) => {
            let to = a - usize::from(!*keep && index(*axis) < a);
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, to)
            } else {
                Step::Keep(op, to)
            }
        }
        Op::Reduce(Reduce { axes, keep, .. }) => {
            let before = axes.iter().filter(|&&axis| index(axis) < a).count();
            let to = if *keep { a } else { a - before };
            if axes.contains(&(a as i64)) {
                axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, to)
            } else {
                Step::Keep(op, to)
            }
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => {
            if axes.contains(&(a as i64)) {
                axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::LayerNorm(LayerNorm { axis, .. }) | Op::RmsNorm(RmsNorm { axis, .. }) => match a.cmp(&index(*axis)) {
            std::cmp::Ordering::Less => Step::Keep(op, a),
            std::cmp::Ordering::Equal => {
                *axis += 1;
                Step::Split(op, a)
            }
            std::cmp::Ordering::Greater => return Err(COMBINES.to_owned()),
        },
        Op::Pool(_) | Op::GlobalPool(_) | Op::AdaptivePool(_) | Op::Resize(_) if a < 2 => Step::Keep(op, a),
        Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) | Op::GroupNorm(_) | Op::Lrn(_) if a == 0 => {
            Step::Keep(op, a)
        }
        Op::BatchNorm(_) if a != 1 => Step::Keep(op, a),
        Op::Quantize(Quantize { axis, .. })
        | Op::Dequantize(Dequantize { axis, .. })
        | Op::Requantize(Requantize { axis, .. }) => {
            let is_scalar = operands[1..].iter().all(|operand| operand.rank() == 0);
            if !is_scalar && index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::Dense(_) | Op::QDense(_) if a + 1 < rank => Step::Keep(op, a),
        Op::Dense(_) | Op::QDense(_) => Step::Split(op, a),
        _ => return movement_step(op, place, operands),
    };
    Ok(step)
}
