//! Normalisation by the root of the mean square.

use super::prelude::*;

/// Computes `x / sqrt(mean(x²) + epsilon) · scale` over the dimensions from `axis` on, whose shape `scale` has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RmsNorm {
    pub axis: i64,
    pub epsilon: f64,
}

impl Operator for RmsNorm {
    /// Counts operations per element: square, sum, division, scale.
    fn facts(&self) -> Facts {
        Facts::new("rms_norm", Class::Normalisation, 2..=2).with_weights(1..2).with_flops(4)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        check_normalised(inputs[0], self.axis, self.epsilon, &inputs[1..])
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 0, axis_index(self.axis)..usize::MAX)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], axis_index(self.axis))
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
