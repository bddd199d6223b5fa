//! Rounding of `i32` sums to narrow integers.

use super::prelude::*;
use super::quantised::per_channel;

/// Inputs: `x: i32, multiplier`. Output: `clamp(round(x · multiplier) + zero, low, high)`. The product is computed in
/// 32-bit floats unless the multiplier is wider; ties round to even. The multiplier is a scalar (`axis` is then 0) or
/// a vector along `axis`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requantize {
    pub to: DType,
    pub axis: i64,
    pub zero: i64,
    pub low: i64,
    pub high: i64,
}

impl Operator for Requantize {
    /// Counts five operations per element: scale, rounding, zero point, both bounds.
    fn facts(&self) -> Facts {
        Facts::new("requantize", Class::Pointwise, 2..=2).with_weights(1..2).with_flops(5)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, multiplier) = (inputs[0], inputs[1]);
        let Requantize { to, zero, low, high, .. } = self;
        if x.dtype != DType::I32 {
            return Err(format!("`x` must be i32, not {}", x.dtype));
        }
        floating(multiplier)?;
        per_channel(x, multiplier, self.axis)?;
        let (lowest, highest) =
            to.integer_range().ok_or_else(|| format!("needs an integer of up to 32 bits, not {to}"))?;
        let is_inside = |number: &i64| (lowest..=highest).contains(number);
        if !(is_inside(zero) && is_inside(low) && is_inside(high) && low <= high) {
            return Err(format!(
                "zero point {zero}, lower bound {low} and upper bound {high} must fit {to} and be in order"
            ));
        }
        Ok(TensorType { dtype: *to, shape: x.shape.clone() })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn label_suffix(&self) -> String {
        format!("({})", self.to)
    }
}
