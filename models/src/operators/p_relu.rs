//! PReLU: a rectifier with learned slopes.

use super::prelude::*;

/// Inputs: `x, slope`. The slope broadcasts to `x` and scales negative elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PRelu {}

impl Operator for PRelu {
    fn facts(&self) -> Facts {
        Facts::new("p_relu", Class::Pointwise, 2..=2).with_weights(1..2).with_flops(3).with_repeats(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, slope) = (inputs[0], inputs[1]);
        same_dtype(x, slope)?;
        if broadcast_shapes(&x.shape, &slope.shape)? != x.shape {
            return Err(format!("the slope {slope} does not broadcast to {x}"));
        }
        floating(x)
    }
}
