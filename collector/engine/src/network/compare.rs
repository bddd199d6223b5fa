//! How far a model's outputs are off what the reference computes.
//!
//! Each operator is right when its own tolerance holds; over a whole model errors add up, and a small output may be the
//! difference of large ones. So what counts is the largest error beside the largest output.

use models::{DType, Graph};
use reference::{Tensor, Tolerance};
use serde::Serialize;

/// The outputs of a run beside those of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The largest difference.
    pub max_abs_error: f64,
    /// The largest magnitude the reference has.
    pub largest_output: f64,
    /// What the first may be of the second.
    pub tolerance: f64,
    /// Whether it is at most that, and no number is missing.
    pub is_right: bool,
}

/// What is smaller has lost digits on its way, and some machines take it for zero.
const LEAST_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// Compares outputs one by one, the worst counts; errors may be this share of the largest output.
pub fn compare(share: f64, found: &[Tensor], wanted: &[Tensor]) -> Comparison {
    let mut worst = Comparison { max_abs_error: 0.0, largest_output: 0.0, tolerance: share, is_right: true };
    for (found, wanted) in found.iter().zip(wanted) {
        let finite = wanted.numbers().into_iter().filter(|number| number.is_finite());
        let largest = finite.fold(0.0, |most: f64, number| most.max(number.abs()));
        let unit = largest.max(f64::MIN_POSITIVE);
        let absolute = (share * unit).max(LEAST_NORMAL);
        let compared = reference::compare(found, wanted, Tolerance { absolute, relative: 0.0 });
        let error = compared.as_ref().map_or(f64::INFINITY, |compared| compared.max_abs_error);
        if error / unit >= worst.max_abs_error / worst.largest_output.max(f64::MIN_POSITIVE) {
            (worst.max_abs_error, worst.largest_output) = (error, largest);
        }
        worst.is_right &= compared.is_ok_and(|compared| compared.ok);
    }
    worst
}

/// Which share of the largest output errors may be. Of half precision fewer digits are right, and a quantised layer may round the other way.
pub fn tolerance(graph: &Graph) -> f64 {
    let has = |wanted: &[DType]| graph.values.iter().any(|value| wanted.contains(&value.ty.dtype));
    match () {
        () if has(&[DType::I8, DType::U8]) => 0.05,
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
        let x = builder.input("x", TensorType::f32(&[4])).expect("an input");
        let y = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[x]).expect("a call");
        builder.finish(&[y]).expect("a graph")
    }

    fn tensor(numbers: [f64; 4]) -> Vec<Tensor> {
        vec![Tensor::from_numbers(TensorType::f32(&[4]), &numbers).expect("numbers")]
    }

    #[test]
    fn errors_count_beside_the_largest_output() {
        let wanted = tensor([100.0, 0.001, -3.0, 0.0]);
        let right = compare(tolerance(&graph()), &tensor([100.05, 0.01, -3.0, 0.0]), &wanted);
        assert!(right.is_right && right.largest_output == 100.0, "{right:?}");
        let wrong = compare(tolerance(&graph()), &tensor([100.0, 0.2, -3.0, 0.0]), &wanted);
        assert!(!wrong.is_right && (wrong.max_abs_error - 0.199).abs() < 1e-6, "{wrong:?}");
    }

    #[test]
    fn numbers_without_all_their_digits_are_as_good_as_zero() {
        let wanted = tensor([1.3e-39, -4e-40, 0.0, 0.0]);
        assert!(compare(tolerance(&graph()), &tensor([1.2e-39, 0.0, 0.0, 0.0]), &wanted).is_right);
        assert!(!compare(tolerance(&graph()), &tensor([1.3e-39, 1e-37, 0.0, 0.0]), &wanted).is_right);
    }

    #[test]
    fn what_is_no_number_is_wrong_where_there_should_be_one() {
        let wanted = tensor([1.0, f64::INFINITY, f64::NAN, 0.0]);
        assert!(compare(tolerance(&graph()), &wanted, &wanted).is_right);
        assert!(!compare(tolerance(&graph()), &tensor([f64::NAN, f64::INFINITY, f64::NAN, 0.0]), &wanted).is_right);
        assert!(!compare(tolerance(&graph()), &tensor([1.0, 5.0, f64::NAN, 0.0]), &wanted).is_right);
        // Nothing but zeros has to come out where nothing else is wanted.
        assert!(!compare(tolerance(&graph()), &tensor([1e-30, 0.0, 0.0, 0.0]), &tensor([0.0; 4])).is_right);
    }
}
