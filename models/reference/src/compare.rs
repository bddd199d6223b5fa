//! Whether a result is right, given how floating point rounds.
//!
//! A sum of `n` products of numbers in [-1, 1) has partial sums of about `sqrt(n) / 3`; `n` roundings of that size and
//! random sign add up to about `n / 3` units of roundoff. Four units per term leave room for another order of summation and the
//! worst of many elements, and are still far below the error of a wrong index.

use super::tensor::Tensor;
use models::einsum::Equation;
use models::error::{Error, Result};
use models::operator::{Op, PoolMode, UnaryOp};
use models::task::{Step, Task};
use models::types::{DType, Dim, TensorType};
use serde::{Deserialize, Serialize};

/// How far a number may be off: `absolute + relative · |expected|`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// The part that does not depend on the number.
    pub absolute: f64,
    /// The part that grows with it.
    pub relative: f64,
}

/// How two tensors differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Largest difference.
    pub max_abs_error: f64,
    /// Largest difference divided by the expected number, where that is not zero.
    pub max_rel_error: f64,
    /// Element that is off most in terms of the tolerance, counted in storage order.
    pub worst_index: usize,
    /// Whether every element is within the tolerance.
    pub ok: bool,
}

/// What becomes of the operands of a task's first step before they are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// They stay as they are.
    #[default]
    None,
    /// Their fractions keep ten bits.
    Tf32,
}

impl Rounding {
    /// Largest relative error of an operand.
    fn roundoff(self) -> f64 {
        match self {
            Rounding::None => 0.0,
            Rounding::Tf32 => f64::from(-11).exp2(),
        }
    }
}

/// How far a right implementation of a task may be off on inputs from `random_inputs`.
pub fn tolerance(task: &Task) -> Tolerance {
    tolerance_when_rounded(task, Rounding::None)
}

/// The same, of an implementation that rounds operands.
///
/// Rounding two operands of `n` products is off by `2 n` independent errors, which add up to about `sqrt(n) / 4` units: a
/// product is about 1/3, and an error about half of the largest.
pub fn tolerance_when_rounded(task: &Task, rounding: Rounding) -> Tolerance {
    let types = task.parameters.iter().map(|parameter| &parameter.ty).chain(task.steps.iter().map(|step| &step.output));
    let roundoff = types.map(|ty| roundoff(ty.dtype)).fold(0.0, f64::max);
    let terms = task.steps.first().map_or(1, |anchor| {
        let types: Vec<&TensorType> = anchor.inputs.iter().filter_map(|input| task.operand_type(*input).ok()).collect();
        terms(&anchor.op, &types)
    });
    let of_operands = rounding.roundoff() * (4.0 * (terms as f64).sqrt() + 16.0);
    let absolute = roundoff * (4.0 * terms as f64 + 16.0) + of_operands;
    // Generated code approximates transcendental functions to a few units; 1e-5 at 32 bits.
    let mut relative = roundoff * 168.0;
    // An error in the argument of an exponential is a relative error of its result.
    if task.steps.iter().any(|step| matches!(step.op, Op::Unary { function: UnaryOp::Exp })) {
        relative += absolute;
    }
    let is_off_by_one =
        roundoff > 0.0 && task.steps.iter().enumerate().any(|(index, step)| drops_fraction(index, step));
    Tolerance { absolute: if is_off_by_one { absolute.max(1.0) } else { absolute }, relative }
}

/// Whether a sum that is a whole number but for rounding may lose one here. The first step reads numbers as they are,
/// so there only a quotient can be off.
fn drops_fraction(index: usize, step: &Step) -> bool {
    match &step.op {
        Op::Quantize { .. } | Op::Requantize { .. } => true,
        Op::Unary { function: UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc } => index > 0,
        _ => index > 0 && !step.output.dtype.is_float() && step.output.dtype != DType::Bool,
    }
}

/// Compares element by element. Equal infinities agree, and so do two numbers that are none.
pub fn compare(actual: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<Comparison> {
    if actual.ty() != expected.ty() {
        let reason = format!("cannot be compared with {}", expected.ty());
        return Err(Error::Tensor { ty: actual.ty().to_string(), reason });
    }
    let mut comparison = Comparison { max_abs_error: 0.0, max_rel_error: 0.0, worst_index: 0, ok: true };
    let mut worst = 0.0;
    for (index, (actual, expected)) in actual.numbers().into_iter().zip(expected.numbers()).enumerate() {
        if actual == expected || (actual.is_nan() && expected.is_nan()) {
            continue;
        }
        let difference = (actual - expected).abs();
        let error = if difference.is_nan() { f64::INFINITY } else { difference };
        let allowed = tolerance.absolute + tolerance.relative * expected.abs();
        comparison.ok &= error <= allowed && error.is_finite();
        comparison.max_abs_error = comparison.max_abs_error.max(error);
        if expected != 0.0 {
            comparison.max_rel_error = comparison.max_rel_error.max(error / expected.abs());
        }
        // With no tolerance at all every difference is infinitely bad; the largest is then the first of them.
        let badness = error / allowed;
        if badness > worst {
            worst = badness;
            comparison.worst_index = index;
        }
    }
    Ok(comparison)
}

/// Largest relative error of rounding to an element type.
fn roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from(-53).exp2(),
        DType::F32 => f64::from(-24).exp2(),
        DType::F16 => f64::from(-11).exp2(),
        DType::BF16 => f64::from(-8).exp2(),
        _ => 0.0,
    }
}

/// How many terms each element of a result sums.
fn terms(op: &Op, inputs: &[&TensorType]) -> i64 {
    let extent = |input: usize, from: usize, to: usize| -> i64 {
        let dims = inputs.get(input).and_then(|ty| ty.shape.get(from..to)).unwrap_or_default();
        dims.iter().fold(1, |product: i64, dim| match dim {
            Dim::Known(extent) => product.saturating_mul(*extent),
            Dim::Symbol(_) => product,
        })
    };
    let rank = |input: usize| inputs.get(input).map_or(0, |ty| ty.rank());
    let along = |axis: i64| {
        let axis = usize::try_from(axis).unwrap_or(0);
        extent(0, axis, axis + 1)
    };
    let all = |axes: &[i64]| axes.iter().fold(1, |product: i64, axis| product.saturating_mul(along(*axis)));
    match op {
        Op::Conv { .. } | Op::QConv { .. } => extent(1, 1, rank(1)),
        // Each output meets at most one filter of each input channel of its group.
        Op::ConvTranspose { groups, .. } => (extent(1, 0, 1) / (*groups).max(1)).saturating_mul(extent(1, 2, rank(1))),
        Op::Dense | Op::QDense { .. } => extent(1, 1, 2),
        Op::QMatMul { .. } => extent(0, rank(0).saturating_sub(1), rank(0)),
        Op::MatMul { transpose_a: false, .. } => extent(0, rank(0).saturating_sub(1), rank(0)),
        Op::MatMul { transpose_a: true, .. } => extent(0, rank(0).saturating_sub(2), rank(0).saturating_sub(1)),
        Op::LayerNorm { axis, .. } | Op::RmsNorm { axis, .. } => {
            extent(0, usize::try_from(*axis).unwrap_or(0), rank(0))
        }
        Op::Softmax { axis, .. } | Op::CumSum { axis, .. } | Op::LpNorm { axis, .. } => along(*axis),
        Op::Reduce { axes, .. } | Op::MeanVarianceNorm { axes, .. } => all(axes),
        Op::GroupNorm { groups, .. } => extent(0, 1, rank(0)) / (*groups).max(1),
        Op::Lrn { size, .. } => *size,
        Op::Einsum { equation } => Equation::read(equation, inputs).map_or(1, |equation| {
            equation.summed.iter().fold(1, |product: i64, &letter| match equation.extents[letter] {
                Dim::Known(extent) => product.saturating_mul(extent),
                Dim::Symbol(_) => product,
            })
        }),
        Op::Attention { .. } => extent(0, 3, 4).saturating_add(extent(1, 2, 3)),
        // Two products and their sum.
        Op::Rope { .. } => 2,
        // At worst every update goes to one place.
        Op::ScatterElements { .. } | Op::ScatterNd { .. } => extent(2, 0, rank(2)).min(64),
        Op::Pool { mode: PoolMode::Average | PoolMode::Lp { .. }, kernel, .. } => {
            kernel.iter().fold(1, |product, &extent| product.saturating_mul(extent))
        }
        Op::GlobalPool { mode: PoolMode::Average | PoolMode::Lp { .. } } | Op::AdaptivePool { .. } => {
            extent(0, 2, rank(0))
        }
        Op::Pool { mode: PoolMode::Max, .. }
        | Op::GlobalPool { mode: PoolMode::Max }
        | Op::ArgReduce { .. }
        | Op::ArgTop { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu
        | Op::Quantize { .. }
        | Op::Dequantize { .. }
        | Op::Requantize { .. }
        | Op::BorderPad { .. }
        | Op::Expand { .. }
        | Op::Tile { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::OneHot { .. }
        | Op::Trilu { .. }
        | Op::BatchNorm { .. }
        | Op::ScaleShift { .. }
        | Op::BiasAdd { .. }
        | Op::Unary { .. }
        | Op::Clip { .. }
        | Op::Binary { .. }
        | Op::Cast { .. }
        | Op::Reshape { .. }
        | Op::Flatten { .. }
        | Op::Transpose { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Slice { .. }
        | Op::Resize { .. }
        | Op::Identity => 1,
    }
}
