//! Layer normalisation.

use super::prelude::*;

/// Inputs: `x, scale, shift`. Normalises over the dimensions from `axis` on, whose shape `scale` and `shift` have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    pub axis: i64,
    pub epsilon: f64,
}

impl Operator for LayerNorm {
    /// Operations per element: 1 for the mean, 3 for the variance, 4 for the result (subtract, divide, scale, shift).
    fn facts(&self) -> Facts {
        Facts::new("layer_norm", Class::Normalisation, 3..=3).with_weights(1..3).with_flops(8)
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
