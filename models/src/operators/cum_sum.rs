//! Running sums.

use super::prelude::*;

/// Sums the elements up to each position (with `reverse`: from it on); `exclusive` leaves out the element at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CumSum {
    pub axis: i64,
    pub exclusive: bool,
    pub reverse: bool,
}

impl Operator for CumSum {
    fn facts(&self) -> Facts {
        Facts::new("cum_sum", Class::Reduction, 1..=1).with_flops(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        axis_of(self.axis, inputs[0])?;
        numeric(inputs[0])
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        extent_along(inputs, self.axis)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
        append_flag(line, "exclusive", self.exclusive);
        append_flag(line, "reverse", self.reverse);
    }
}
