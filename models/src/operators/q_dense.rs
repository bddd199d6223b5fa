//! Product of a quantised tensor with a matrix of quantised weights.

use super::dense::Dense;
use super::prelude::*;
use super::quantised::{as_plain, describe_zeros};

/// `Dense` of `(x - x_zero)` and `(w - w_zero)`, 8-bit operands, summed in `i32`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QDense {
    pub x_zero: i64,
    pub w_zero: i64,
}

impl Operator for QDense {
    fn facts(&self) -> Facts {
        Facts::new("q_dense", Class::Contraction, 2..=2).with_weights(1..2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let [x, w] = as_plain([(inputs[0], self.x_zero), (inputs[1], self.w_zero)])?;
        Dense {}.infer_output(&[&x, &w])
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        Dense {}.count_arithmetic(inputs, output)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        Dense {}.summed_terms(inputs)
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        Dense {}.has_needed_numbers(inputs)
    }

    fn append_attributes(&self, line: &mut String) {
        describe_zeros(line, [self.x_zero, self.w_zero]);
    }
}
