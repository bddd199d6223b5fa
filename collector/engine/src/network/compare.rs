//! Compares a model's outputs with the reference. The tolerances of single operators do not apply to a whole model,
//! because errors accumulate and a small output may be the difference of large numbers. So the largest error is
//! compared with the largest output.

use models::{DType, Graph};
use reference::{Tensor, Tolerance};
use serde::Serialize;

/// Comparison of a run's outputs with the reference outputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Largest absolute difference.
    pub max_abs_error: f64,
    /// Largest magnitude in the reference output.
    pub largest_output: f64,
    /// Tolerated error as a share of the largest output.
    pub tolerance: f64,
    /// Whether every output's error is within the tolerance. A NaN is an error unless the reference has one too.
    pub is_right: bool,
}

/// Smallest tolerance, the smallest normal number: some machines flush smaller ones to zero.
const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// Compares outputs pairwise; returns the worst comparison. `share`: tolerated error relative to the largest output.
pub fn compare_outputs(share: f64, found: &[Tensor], wanted: &[Tensor]) -> Comparison {
    compare_above(share, &vec![0.0; wanted.len()], found, wanted)
}

/// Compares outputs like `compare_outputs`, but tolerates at least the error `floors` of each output.
pub fn compare_above(share: f64, floors: &[f64], found: &[Tensor], wanted: &[Tensor]) -> Comparison {
    let mut worst = Comparison { max_abs_error: 0.0, largest_output: 0.0, tolerance: share, is_right: true };
    for ((found, wanted), floor) in found.iter().zip(wanted).zip(floors) {
        let finite = wanted.to_numbers().into_iter().filter(|number| number.is_finite());
        let largest = finite.fold(0.0, |most: f64, number| most.max(number.abs()));
        let unit = largest.max(f64::MIN_POSITIVE);
        let least = match wanted.tensor_type().dtype {
            _ if share == 0.0 => 0.0,
            // Quantised outputs may differ by one step, whatever their size.
            DType::I8 | DType::U8 => 1.0,
            _ => MIN_NORMAL,
        };
        let absolute = (share * unit).max(least).max(*floor);
        let compared = reference::compare_tensors(found, wanted, Tolerance { absolute, relative: 0.0 });
        let error = compared.as_ref().map_or(f64::INFINITY, |compared| compared.max_abs_error);
        if error / unit >= worst.max_abs_error / worst.largest_output.max(f64::MIN_POSITIVE) {
            (worst.max_abs_error, worst.largest_output) = (error, largest);
        }
        worst.is_right &= compared.is_ok_and(|compared| compared.ok);
    }
    worst
}

/// Returns the tolerated error as a share of the largest output: more for half precision and for quantised layers, none
/// for a graph of other integers.
pub fn error_tolerance(graph: &Graph) -> f64 {
    let has = |wanted: &[DType]| graph.values.iter().any(|value| wanted.contains(&value.ty.dtype));
    match () {
        () if has(&[DType::I8, DType::U8]) => 0.05,
        () if !graph.values.iter().any(|value| value.ty.dtype.is_float()) => 0.0,
        () if has(&[DType::BF16]) => 0.05,
        () if has(&[DType::F16]) => 0.01,
        () => 1e-3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::operators::Unary;
    use models::{GraphBuilder, Op, TensorType, UnaryOp};

    fn graph() -> Graph {
        let mut builder = GraphBuilder::new("one");
        let x = builder.add_input("x", TensorType::f32(&[4])).expect("an input");
        let y = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[x]).expect("a call");
        builder.finish(&[y]).expect("a graph")
    }

    fn tensor(numbers: [f64; 4]) -> Vec<Tensor> {
        vec![Tensor::from_numbers(TensorType::f32(&[4]), &numbers).expect("numbers")]
    }

    #[test]
    fn errors_are_relative_to_the_largest_output() {
        let wanted = tensor([100.0, 0.001, -3.0, 0.0]);
        let right = compare_outputs(error_tolerance(&graph()), &tensor([100.05, 0.01, -3.0, 0.0]), &wanted);
        assert!(right.is_right && right.largest_output == 100.0, "{right:?}");
        let wrong = compare_outputs(error_tolerance(&graph()), &tensor([100.0, 0.2, -3.0, 0.0]), &wanted);
        assert!(!wrong.is_right && (wrong.max_abs_error - 0.199).abs() < 1e-6, "{wrong:?}");
    }

    #[test]
    fn quantised_outputs_may_differ_by_one_step() {
        let tensor = |numbers: [f64; 2]| {
            vec![Tensor::from_numbers(TensorType::new(DType::I8, &[2]), &numbers).expect("numbers")]
        };
        assert!(compare_outputs(0.05, &tensor([5.0, -1.0]), &tensor([4.0, 0.0])).is_right);
        assert!(!compare_outputs(0.05, &tensor([5.0, -1.0]), &tensor([3.0, 0.0])).is_right);
    }

    #[test]
    fn differences_of_equal_numbers_may_have_their_rounding_error() {
        let found = tensor([1e-7, 0.0, 0.0, 0.0]);
        assert!(!compare_outputs(1e-3, &found, &tensor([0.0; 4])).is_right);
        assert!(compare_above(1e-3, &[2e-7], &found, &tensor([0.0; 4])).is_right);
        assert!(!compare_above(1e-3, &[5e-8], &found, &tensor([0.0; 4])).is_right);
    }

    #[test]
    fn integers_computed_from_integers_are_exact() {
        let ty = TensorType::new(DType::I64, &[1]);
        let mut builder = GraphBuilder::new("one");
        let x = builder.add_input("x", ty.clone()).expect("an input");
        let y = builder.push(Op::Unary(Unary { function: UnaryOp::Square }), &[x]).expect("a call");
        let share = error_tolerance(&builder.finish(&[y]).expect("a graph"));
        let tensor =
            |number: i64| vec![Tensor::from_bytes(ty.clone(), number.to_le_bytes().to_vec()).expect("a number")];
        assert!(compare_outputs(share, &tensor(i64::MAX), &tensor(i64::MAX)).is_right);
        assert!(!compare_outputs(share, &tensor(i64::MAX - 1), &tensor(i64::MAX)).is_right);
        let mut builder = GraphBuilder::new("quantised");
        let x = builder.add_input("x", TensorType::new(DType::I8, &[1])).expect("an input");
        assert!(error_tolerance(&builder.finish(&[x]).expect("a graph")) > 0.0);
    }

    #[test]
    fn subnormal_numbers_count_as_zero() {
        let wanted = tensor([1.3e-39, -4e-40, 0.0, 0.0]);
        assert!(compare_outputs(error_tolerance(&graph()), &tensor([1.2e-39, 0.0, 0.0, 0.0]), &wanted).is_right);
        assert!(!compare_outputs(error_tolerance(&graph()), &tensor([1.3e-39, 1e-37, 0.0, 0.0]), &wanted).is_right);
    }

    #[test]
    fn unexpected_nan_is_wrong() {
        let wanted = tensor([1.0, f64::INFINITY, f64::NAN, 0.0]);
        assert!(compare_outputs(error_tolerance(&graph()), &wanted, &wanted).is_right);
        assert!(
            !compare_outputs(error_tolerance(&graph()), &tensor([f64::NAN, f64::INFINITY, f64::NAN, 0.0]), &wanted)
                .is_right
        );
        assert!(!compare_outputs(error_tolerance(&graph()), &tensor([1.0, 5.0, f64::NAN, 0.0]), &wanted).is_right);
        // If the reference is zero everywhere, only zeros are correct.
        assert!(
            !compare_outputs(error_tolerance(&graph()), &tensor([1e-30, 0.0, 0.0, 0.0]), &tensor([0.0; 4])).is_right
        );
    }
}
