//! Broadcasting to a given shape.

use super::prelude::*;

/// Broadcasts the shape of `x` and the attribute `shape` against each other, and expands `x` to the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expand {
    pub shape: Vec<i64>,
}

impl Operator for Expand {
    fn facts(&self) -> Facts {
        Facts::new("expand", Class::Movement, 1..=1).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let shape: Vec<Dim> = self.shape.iter().map(|&extent| Dim::Known(extent)).collect();
        Ok(TensorType { dtype: inputs[0].dtype, shape: broadcast_shapes(&inputs[0].shape, &shape)? })
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "to", join_items(&self.shape, "x"), true);
    }
}
