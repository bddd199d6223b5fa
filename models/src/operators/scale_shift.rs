//! A scale and a shift per channel.

use super::prelude::*;

/// Computes `x · scale[c] + shift[c]` along `axis`: batch normalisation after its statistics are folded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaleShift {
    pub axis: i64,
}

impl Operator for ScaleShift {
    fn facts(&self) -> Facts {
        Facts::new("scale_shift", Class::Pointwise, 3..=3).with_weights(1..3).with_flops(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        check_vectors(inputs[0], axis_of(self.axis, inputs[0])?, &inputs[1..])
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
