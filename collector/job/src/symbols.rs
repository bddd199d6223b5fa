//! Which dimensions of an operator may be symbols.
//!
//! Known without TVM, because it decides which tasks there are: a task that needs a number where it has a symbol is
//! compiled for each size by itself.

use models::{Dim, Op, ReduceOp, Step, Task, TensorType};

/// Why a task cannot be compiled with its symbols; nothing when it can.
pub fn refusal(task: &Task) -> Option<String> {
    let refused = task.steps.iter().find(|step| !keeps(task, step))?;
    Some(format!("`{}` needs numbers where the size changes", refused.op.name()))
}

/// Whether all dimensions of a step that its code needs numbers for have them.
fn keeps(task: &Task, step: &Step) -> bool {
    let inputs: Vec<&TensorType> = step.inputs.iter().filter_map(|operand| task.operand_type(*operand).ok()).collect();
    let is_known = |ty: &TensorType, dimension: usize| !matches!(ty.shape.get(dimension), Some(Dim::Symbol(_)));
    let from = |input: usize, first: usize| (first..inputs[input].rank()).all(|d| is_known(inputs[input], d));
    let axis = |axis: i64| usize::try_from(axis).unwrap_or(0);
    let last = |input: usize| inputs[input].rank().saturating_sub(1);
    let all = || (0..inputs.len()).all(|input| from(input, 0));
    match &step.op {
        Op::Dense | Op::QDense { .. } => from(0, last(0)) && from(1, 0),
        Op::Conv { .. } | Op::QConv { .. } | Op::ConvTranspose { .. } => from(0, 1) && from(1, 0),
        Op::Attention { window, .. } => {
            let is_sized = |input: usize| is_known(inputs[input], 1) && is_known(inputs[input], 3);
            let is_short = window.is_none() || (is_known(inputs[0], 2) && is_known(inputs[1], 2));
            (0..3).all(is_sized) && is_short
        }
        Op::LayerNorm { axis: first, .. } | Op::RmsNorm { axis: first, .. } => from(0, axis(*first)),
        Op::GroupNorm { .. } | Op::Lrn { .. } => from(0, 1),
        Op::MeanVarianceNorm { axes, .. } | Op::Reduce { function: ReduceOp::Mean, axes, .. } => {
            axes.iter().all(|&reduced| is_known(inputs[0], axis(reduced)))
        }
        Op::Pool { .. } | Op::GlobalPool { .. } | Op::AdaptivePool { .. } | Op::Resize { .. } => from(0, 2),
        Op::Concat { axis: joined } => inputs.iter().all(|ty| is_known(ty, axis(*joined))),
        Op::Rope { .. } => from(0, last(0)),
        Op::Trilu { .. } => from(0, last(0).saturating_sub(1)),
        Op::Pad { pads, .. } => {
            let rank = inputs[0].rank();
            (0..rank).all(|d| is_known(inputs[0], d) || pads[d] + pads[rank + d] == 0)
        }
        Op::Einsum { .. }
        | Op::BorderPad { .. }
        | Op::GatherNd { .. }
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::Reshape { .. }
        | Op::Flatten { .. } => all(),
        Op::MatMul { .. }
        | Op::QMatMul { .. }
        | Op::BatchNorm { .. }
        | Op::ScaleShift { .. }
        | Op::Softmax { .. }
        | Op::LpNorm { .. }
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ArgTop { .. }
        | Op::CumSum { .. }
        | Op::BiasAdd { .. }
        | Op::Unary { .. }
        | Op::Clip { .. }
        | Op::Binary { .. }
        | Op::Cast { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu
        | Op::Quantize { .. }
        | Op::Dequantize { .. }
        | Op::Requantize { .. }
        | Op::Transpose { .. }
        | Op::Slice { .. }
        | Op::Expand { .. }
        | Op::Tile { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::OneHot { .. }
        | Op::Identity => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, says: Option<&str>) {
        let task = Task::from_text(text).expect("a task");
        let refused = refusal(&task);
        match says {
            None => assert_eq!(refused, None, "{text}"),
            Some(says) => assert!(refused.as_ref().is_some_and(|why| why.contains(says)), "{text}: {refused:?}"),
        }
    }

    #[test]
    fn sizes_that_may_stay_open() {
        check("dense(f32[batch,n,64], f32[16,64])", None);
        check("dense(f32[batch,64], f32[n,64])", Some("`dense` needs numbers"));
        check("mat_mul(f32[4,m,k], f32[4,k,n]) transpose_a=false transpose_b=false | unary(_) function=\"relu\"", None);
        check("layer_norm(f32[n,64], f32[64], f32[64]) axis=1 epsilon=1e-5", None);
        check("layer_norm(f32[8,n], f32[n], f32[n]) axis=1 epsilon=1e-5", Some("`layer_norm` needs numbers"));
        check("reduce(f32[8,n]) function=\"mean\" axes=[1] keep=false", Some("`reduce_mean` needs numbers"));
        check("reduce(f32[8,n]) function=\"sum\" axes=[1] keep=false", None);
    }
}
