//! Conversion of quantised numbers to floats.

use super::prelude::*;
use super::quantised::{check_zero, per_channel, quantised_range};

/// Inputs: `x, scale` and optionally the zero point, typed as `x`. Output: `(x - zero) · scale` in the type of `scale`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dequantize {
    pub axis: i64,
}

impl Operator for Dequantize {
    fn facts(&self) -> Facts {
        Facts::new("dequantize", Class::Pointwise, 2..=3).with_weights(1..3).with_flops(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, scales) = (inputs[0], &inputs[1..]);
        if x.dtype != DType::I32 {
            quantised_range(x.dtype)?;
        }
        floating(scales[0])?;
        per_channel(x, scales[0], self.axis)?;
        check_zero(scales, x.dtype)?;
        Ok(TensorType { dtype: scales[0].dtype, shape: x.shape.clone() })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
