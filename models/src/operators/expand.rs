//! Repetition to a shape.

use super::prelude::*;

/// Repeated to what `x` and this shape broadcast to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expand {
    pub shape: Vec<i64>,
}

impl Operator for Expand {
    fn facts(&self) -> Facts {
        Facts::new("expand", Class::Movement, 1..=1).with_identity()
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let shape: Vec<Dim> = self.shape.iter().map(|&extent| Dim::Known(extent)).collect();
        Ok(TensorType { dtype: inputs[0].dtype, shape: broadcast(&inputs[0].shape, &shape)? })
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "to", join(&self.shape, "x"), true);
    }
}
