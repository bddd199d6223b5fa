//! Quantisation to narrow integers.

use super::prelude::*;
use super::quantised::{check_zero, per_channel, quantised_range};

/// Inputs: `x, scale` and optionally the zero point, of type `to`. Output: `round(x / scale) + zero`, clamped to the
/// range of `to`. The quotient is computed in 32-bit floats unless the scale is wider; ties round to even. Scale and
/// zero point are scalars (`axis` is then 0) or vectors along `axis`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantize {
    pub to: DType,
    pub axis: i64,
}

impl Operator for Quantize {
    /// Counts five operations per element: scale, rounding, zero point, both bounds.
    fn facts(&self) -> Facts {
        Facts::new("quantize", Class::Pointwise, 2..=3).with_weights(1..3).with_flops(5)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, scales) = (inputs[0], &inputs[1..]);
        floating(x)?;
        same_dtype(x, scales[0])?;
        per_channel(x, scales[0], self.axis)?;
        quantised_range(self.to)?;
        check_zero(scales, self.to)?;
        Ok(TensorType { dtype: self.to, shape: x.shape.clone() })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn label_suffix(&self) -> String {
        format!("({})", self.to)
    }
}
