//! Batch normalisation.

use super::prelude::*;

/// Inputs: `x, scale, shift, mean, variance`. The channel is dimension 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchNorm {
    pub epsilon: f64,
}

impl Operator for BatchNorm {
    fn facts(&self) -> Facts {
        Facts::new("batch_norm", Class::Normalisation, 5..=5).with_weights(1..5).with_flops(4)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        finite_positive(self.epsilon, "epsilon")?;
        floating(inputs[0])?;
        check_vectors(inputs[0], 1, &inputs[1..])
    }
}
