//! Elementwise selection between two tensors.

use super::prelude::*;

/// Inputs: `condition, yes, no`, broadcast. Takes elements of `yes` where the condition holds, else of `no`.
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
