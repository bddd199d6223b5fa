//! Compares results within a tolerance that accounts for floating-point rounding.
//! A sum of `n` products of numbers in [-1, 1) has partial sums of about `sqrt(n) / 3`. `n` roundings of that size and
//! random sign add up to about `n / 3` units of roundoff. The tolerance is four units per term. This allows another
//! order of summation and the worst of many elements, and is still far below the error of a wrong index.

use super::tensor::Tensor;
use models::error::{Error, Result};
use models::operators::{Op, Unary, UnaryOp};
use models::task::{Step, Task};
use models::types::{DType, TensorType};
use serde::{Deserialize, Serialize};

/// Accepted error: `absolute + relative · |expected|`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub max_abs_error: f64,
    /// Largest error relative to the expected number, among elements where that is not zero.
    pub max_rel_error: f64,
    /// Index, in storage order, of the element with the largest error relative to the tolerance.
    pub worst_index: usize,
    pub ok: bool,
}

/// Precision to which an implementation rounds the operands of a task's first step before it multiplies them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    #[default]
    None,
    /// TensorFloat-32: the fraction keeps ten bits.
    Tf32,
}

impl Rounding {
    fn relative_roundoff(self) -> f64 {
        match self {
            Rounding::None => 0.0,
            Rounding::Tf32 => f64::from(-11).exp2(),
        }
    }
}

/// Returns the tolerance for a correct implementation on inputs from `random_inputs`.
pub fn default_tolerance(task: &Task) -> Tolerance {
    tolerance_when_rounded(task, Rounding::None)
}

/// Returns the tolerance if operands are rounded. `n` products have `2 n` independent errors, which add up to about
/// `sqrt(n) / 4` units of roundoff: a product is about 1/3, and an error about half of the largest one.
pub fn tolerance_when_rounded(task: &Task, rounding: Rounding) -> Tolerance {
    let types = task.parameters.iter().map(|parameter| &parameter.ty).chain(task.steps.iter().map(|step| &step.output));
    let roundoff = types.map(|ty| dtype_roundoff(ty.dtype)).fold(0.0, f64::max);
    let terms = task.steps.first().map_or(1, |anchor| {
        let types: Vec<&TensorType> = anchor.inputs.iter().filter_map(|input| task.operand_type(*input).ok()).collect();
        anchor.op.summed_terms(&types)
    });
    let of_operands = rounding.relative_roundoff() * (4.0 * (terms as f64).sqrt() + 16.0);
    let absolute = roundoff * (4.0 * terms as f64 + 16.0) + of_operands;
    // Generated code approximates transcendental functions to a few units; 1e-5 at 32 bits.
    let mut relative = roundoff * 168.0;
    // An error in the argument of an exponential is a relative error of its result.
    if task.steps.iter().any(|step| matches!(step.op, Op::Unary(Unary { function: UnaryOp::Exp }))) {
        relative += absolute;
    }
    let is_off_by_one =
        roundoff > 0.0 && task.steps.iter().enumerate().any(|(index, step)| drops_fraction(index, step));
    Tolerance { absolute: if is_off_by_one { absolute.max(1.0) } else { absolute }, relative }
}

/// Whether a step drops a fraction, so that a rounding error can change its result by one. Inputs of the first step
/// are exact, so there only quantisation and requantisation, which scale before they round, can be off.
fn drops_fraction(index: usize, step: &Step) -> bool {
    match &step.op {
        Op::Quantize(_) | Op::Requantize(_) => true,
        Op::Unary(Unary { function: UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc }) => index > 0,
        _ => index > 0 && !step.output.dtype.is_float() && step.output.dtype != DType::Bool,
    }
}

/// Compares two tensors of the same type. Equal infinities agree, and so do two NaNs.
pub fn compare_tensors(actual: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<Comparison> {
    if actual.tensor_type() != expected.tensor_type() {
        let reason = format!("cannot be compared with {}", expected.tensor_type());
        return Err(Error::Tensor { ty: actual.tensor_type().to_string(), reason });
    }
    let mut comparison = Comparison { max_abs_error: 0.0, max_rel_error: 0.0, worst_index: 0, ok: true };
    let mut worst = 0.0;
    // Numbers that differ can be equal after rounding, so 64-bit integers are subtracted exactly.
    let exact = actual.to_wide().zip(expected.to_wide());
    let difference_at = |index: usize, actual: f64, expected: f64| match &exact {
        Some((actual, expected)) => (actual[index] - expected[index]).abs() as f64,
        None if actual == expected || (actual.is_nan() && expected.is_nan()) => 0.0,
        None => (actual - expected).abs(),
    };
    for (index, (actual, expected)) in actual.to_numbers().into_iter().zip(expected.to_numbers()).enumerate() {
        let difference = difference_at(index, actual, expected);
        if difference == 0.0 {
            continue;
        }
        let error = if difference.is_nan() { f64::INFINITY } else { difference };
        let allowed = tolerance.absolute + tolerance.relative * expected.abs();
        comparison.ok &= error <= allowed && error.is_finite();
        comparison.max_abs_error = comparison.max_abs_error.max(error);
        if expected != 0.0 {
            comparison.max_rel_error = comparison.max_rel_error.max(error / expected.abs());
        }
        // Without tolerance, every difference is infinitely bad; the worst index is then the first difference.
        let badness = error / allowed;
        if badness > worst {
            worst = badness;
            comparison.worst_index = index;
        }
    }
    Ok(comparison)
}

pub(super) fn dtype_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from(-53).exp2(),
        DType::F32 => f64::from(-24).exp2(),
        DType::F16 => f64::from(-11).exp2(),
        DType::BF16 => f64::from(-8).exp2(),
        _ => 0.0,
    }
}
