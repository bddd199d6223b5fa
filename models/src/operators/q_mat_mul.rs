//! Product of quantised matrices.

use super::mat_mul::MatMul;
use super::prelude::*;
use super::quantised::{as_plain, describe_zeros};

/// `MatMul` of `(a - a_zero)` and `(b - b_zero)`, 8-bit operands, neither transposed, summed in `i32`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QMatMul {
    pub a_zero: i64,
    pub b_zero: i64,
}

const PLAIN: MatMul = MatMul { transpose_a: false, transpose_b: false };

impl Operator for QMatMul {
    fn facts(&self) -> Facts {
        Facts::new("q_mat_mul", Class::Contraction, 2..=2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let [a, b] = as_plain([(inputs[0], self.a_zero), (inputs[1], self.b_zero)])?;
        PLAIN.infer_output(&[&a, &b])
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        PLAIN.count_arithmetic(inputs, output)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        PLAIN.summed_terms(inputs)
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        "q_matmul".to_owned()
    }

    fn append_attributes(&self, line: &mut String) {
        describe_zeros(line, [self.a_zero, self.b_zero]);
    }
}
