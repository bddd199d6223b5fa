//! Which template makes the moves of a task.

use super::Template;
use models::einsum::Equation;
use models::operators::{
    ArgTop, Einsum, LayerNorm, LpNorm, MeanVarianceNorm, Reduce, RmsNorm, ScatterElements, ScatterNd, Softmax, Unary,
};
use models::{DType, Op, ReduceOp, ScatterOp, Task, TensorType, UnaryOp};

/// The template of a task: most follow from the operator alone.
pub fn template(task: &Task) -> Template {
    let anchor = &task.steps[0];
    match &anchor.op {
        Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::MatMul(_)
        | Op::Dense(_)
        | Op::QConv(_)
        | Op::QDense(_)
        | Op::QMatMul(_) => Template::Contraction,
        // A register tile needs two dimensions and something to sum.
        Op::Einsum(_) if anchor.output.rank() >= 2 && summed(task).is_some() => Template::Contraction,
        Op::Einsum(_) => Template::Spatial,
        Op::Softmax(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::GroupNorm(_)
        | Op::MeanVarianceNorm(_)
        | Op::LpNorm(_)
        | Op::Attention(_)
        | Op::ArgReduce(_)
        | Op::ArgTop(_)
        | Op::Reduce(Reduce { function: ReduceOp::LogSumExp, .. })
        | Op::ScatterElements(ScatterElements { combine: ScatterOp::Replace, .. })
        | Op::ScatterNd(ScatterNd { combine: ScatterOp::Replace }) => Template::Rows,
        Op::BatchNorm(_)
        | Op::ScaleShift(_)
        | Op::Lrn(_)
        | Op::Pool(_)
        | Op::GlobalPool(_)
        | Op::AdaptivePool(_)
        | Op::Reduce(_)
        | Op::CumSum(_)
        | Op::BiasAdd(_)
        | Op::Unary(_)
        | Op::Clip(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where(_)
        | Op::PRelu(_)
        | Op::Quantize(_)
        | Op::Dequantize(_)
        | Op::Requantize(_)
        | Op::Cast(_)
        | Op::Identity(_)
        | Op::Reshape(_)
        | Op::Flatten(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::BorderPad(_)
        | Op::Slice(_)
        | Op::Expand(_)
        | Op::Tile(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_)
        | Op::ScatterElements(_)
        | Op::ScatterNd(_)
        | Op::OneHot(_)
        | Op::Trilu(_)
        | Op::Rope(_)
        | Op::Resize(_) => Template::Spatial,
    }
}

/// Whether a task computes functions that have two forms on CPUs, see [`super::Functions`].
pub fn has_functions(task: &Task) -> bool {
    task.steps.iter().any(|step| {
        let is_narrow = matches!(step.output.dtype, DType::F32 | DType::F16 | DType::BF16);
        is_narrow
            && match &step.op {
                Op::Softmax(_) | Op::Attention(_) | Op::Reduce(Reduce { function: ReduceOp::LogSumExp, .. }) => true,
                Op::Unary(Unary { function }) => matches!(
                    function,
                    UnaryOp::Sigmoid
                        | UnaryOp::Tanh
                        | UnaryOp::Silu
                        | UnaryOp::Swish { .. }
                        | UnaryOp::Gelu
                        | UnaryOp::GeluTanh
                        | UnaryOp::Exp
                        | UnaryOp::Exp2
                        | UnaryOp::Expm1
                        | UnaryOp::Log
                        | UnaryOp::Log1p
                        | UnaryOp::Sinh
                        | UnaryOp::Cosh
                        | UnaryOp::Erf
                        | UnaryOp::Elu { .. }
                        | UnaryOp::Selu
                        | UnaryOp::Celu { .. }
                        | UnaryOp::Softplus
                        | UnaryOp::Mish
                ),
                _ => false,
            }
    })
}

/// The extent of the first summed letter of an Einstein sum.
pub fn summed(task: &Task) -> Option<i64> {
    let anchor = &task.steps[0];
    let Op::Einsum(Einsum { equation }) = &anchor.op else { return None };
    let types = anchor.inputs.iter().map(|operand| task.operand_type(*operand).ok());
    let types = types.collect::<Option<Vec<&TensorType>>>()?;
    let equation = Equation::read(equation, &types).ok()?;
    let first = equation.summed.first().map(|&letter| equation.extents[letter].clone())?;
    TensorType { dtype: anchor.output.dtype, shape: vec![first] }.extents().map(|extents| extents[0])
}

/// The dimensions of the result that a row has; its helpers are computed once for all of them.
pub fn rows_of(task: &Task, helpers_at: &str) -> Vec<usize> {
    let anchor = &task.steps[0];
    let rank = anchor.output.rank();
    let from = |axis: i64| usize::try_from(axis).unwrap_or(0)..rank;
    let one = |axis: i64| vec![usize::try_from(axis).unwrap_or(0)];
    let last = || vec![rank - 1];
    match &anchor.op {
        Op::Softmax(Softmax { axis, .. }) | Op::LpNorm(LpNorm { axis, .. }) | Op::ArgTop(ArgTop { axis, .. }) => {
            one(*axis)
        }
        Op::LayerNorm(LayerNorm { axis, .. }) | Op::RmsNorm(RmsNorm { axis, .. }) => from(*axis).collect(),
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => axes.iter().flat_map(|&axis| one(axis)).collect(),
        Op::GroupNorm(_) => (1..rank).collect(),
        // All queries of a head share its keys.
        Op::Attention(_) if helpers_at == "head" => vec![2, 3],
        Op::ScatterNd(_) => {
            let looked_up = anchor.inputs.get(1).and_then(|at| task.operand_type(*at).ok());
            let looked_up = looked_up.and_then(|ty| ty.extents()).and_then(|extents| extents.last().copied());
            let inner: Vec<usize> = from(looked_up.unwrap_or(0)).collect();
            if inner.is_empty() { last() } else { inner }
        }
        _ => last(),
    }
}

/// The extents of one of a task's parameters, none where they are not known.
pub(super) fn parameter_extents(task: &Task, parameter: usize) -> Vec<i64> {
    task.parameters.get(parameter).and_then(|parameter| parameter.ty.extents()).unwrap_or_default()
}
