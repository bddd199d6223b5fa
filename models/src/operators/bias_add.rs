//! Addition of a bias per channel.

use super::prelude::*;

/// `x + bias[c]` along `axis`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BiasAdd {
    pub axis: i64,
}

impl Operator for BiasAdd {
    fn facts(&self) -> Facts {
        Facts::new("bias_add", Class::Pointwise, 2..=2).with_weights(1..2).with_flops(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        check_vectors(inputs[0], axis_of(self.axis, inputs[0])?, &inputs[1..])
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn epilogue_label(&self) -> &'static str {
        "bias"
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
