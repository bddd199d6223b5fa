//! Choice of one of two elements.

use super::prelude::*;

/// `condition, yes, no`, broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Where {}

impl Operator for Where {
    fn facts(&self) -> Facts {
        Facts::new("where", Class::Pointwise, 3..=3).with_flops(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (condition, yes, no) = (inputs[0], inputs[1], inputs[2]);
        if condition.dtype != DType::Bool {
            return Err(format!("the condition must be bool, not {}", condition.dtype));
        }
        same_dtype(yes, no)?;
        let values = broadcast_shapes(&yes.shape, &no.shape)?;
        Ok(TensorType { dtype: yes.dtype, shape: broadcast_shapes(&condition.shape, &values)? })
    }
}
