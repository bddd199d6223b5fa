//! Selects the template that generates the code of a task.

use super::Template;
use super::choices::HelpersAt;
use models::einsum::Equation;
use models::operators::{
    ArgTop, Einsum, LayerNorm, LpNorm, MeanVarianceNorm, Reduce, RmsNorm, ScatterElements, ScatterNd, Softmax, Unary,
};
use models::{Class, DType, Op, ReduceOp, ScatterOp, Task, TensorType, UnaryOp};

pub fn task_template(task: &Task) -> Template {
    let anchor = &task.steps[0];
    match &anchor.op {
        // A register tile needs a result with two dimensions, and a sum.
        Op::Einsum(_) if anchor.output.rank() < 2 || summed_extent(task).is_none() => Template::Spatial,
        Op::Attention(_)
        | Op::ArgReduce(_)
        | Op::ArgTop(_)
        | Op::Reduce(Reduce { function: ReduceOp::LogSumExp, .. })
        | Op::ScatterElements(ScatterElements { combine: ScatterOp::Replace, .. })
        | Op::ScatterNd(ScatterNd { combine: ScatterOp::Replace }) => Template::Rows,
        Op::BatchNorm(_) | Op::Lrn(_) => Template::Spatial,
        other => match other.class() {
            Class::Contraction => Template::Contraction,
            Class::Normalisation => Template::Rows,
            Class::Pool | Class::Reduction | Class::Pointwise | Class::Movement | Class::View => Template::Spatial,
        },
    }
}

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

pub fn summed_extent(task: &Task) -> Option<i64> {
    let anchor = &task.steps[0];
    let Op::Einsum(Einsum { equation }) = &anchor.op else { return None };
    let types = anchor.inputs.iter().map(|operand| task.operand_type(*operand).ok());
    let types = types.collect::<Option<Vec<&TensorType>>>()?;
    let equation = Equation::read_equation(equation, &types).ok()?;
    let first = equation.summed.first().map(|&letter| equation.extents[letter].clone())?;
    TensorType { dtype: anchor.output.dtype, shape: vec![first] }.extents().map(|extents| extents[0])
}

/// Returns the dimensions of the result that form a row; intermediate results are computed once per row.
pub fn rows_of(task: &Task, helpers_at: HelpersAt) -> Vec<usize> {
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
        // All queries of a head share their keys.
        Op::Attention(_) if helpers_at == HelpersAt::Head => vec![2, 3],
        Op::ScatterNd(_) => {
            let looked_up = anchor.inputs.get(1).and_then(|at| task.operand_type(*at).ok());
            let looked_up = looked_up.and_then(|ty| ty.extents()).and_then(|extents| extents.last().copied());
            let inner: Vec<usize> = from(looked_up.unwrap_or(0)).collect();
            if inner.is_empty() { last() } else { inner }
        }
        _ => last(),
    }
}

/// Returns the extents of a parameter; an empty list if they are symbolic.
pub(crate) fn parameter_extents(task: &Task, parameter: usize) -> Vec<i64> {
    task.parameters.get(parameter).and_then(|parameter| parameter.ty.extents()).unwrap_or_default()
}
