//! Division by a norm.

use super::prelude::*;

/// Computes `x / (sum |x|^order)^(1/order)` along `axis`; zeros where the norm is zero. The order is 1 or 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LpNorm {
    pub axis: i64,
    pub order: i64,
}

impl Operator for LpNorm {
    fn facts(&self) -> Facts {
        Facts::new("lp_norm", Class::Normalisation, 1..=1).with_flops(3)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        axis_of(self.axis, inputs[0])?;
        if !(1..=2).contains(&self.order) {
            return Err(format!("the order {} is neither 1 nor 2", self.order));
        }
        floating(inputs[0])
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        extent_along(inputs, self.axis)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
        append_attribute(line, "order", self.order, true);
    }
}
