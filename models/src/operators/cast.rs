//! Conversion to another element type.

use super::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cast {
    pub to: DType,
}

impl Operator for Cast {
    fn facts(&self) -> Facts {
        Facts::new("cast", Class::Pointwise, 1..=1).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        Ok(TensorType { dtype: self.to, shape: inputs[0].shape.clone() })
    }

    fn label_suffix(&self) -> String {
        format!("({})", self.to)
    }
}
