//! Operators without effect at inference.

use super::prelude::*;

/// Returns its input; stands for operators without effect at inference, such as dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {}

impl Operator for Identity {
    fn facts(&self) -> Facts {
        Facts::new("identity", Class::View, 1..=1).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        Ok(inputs[0].clone())
    }
}
