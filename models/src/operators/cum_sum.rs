//! Running sums.

use super::prelude::*;

/// Sums of all elements up to each (with `reverse`: from each on), without itself when `exclusive`.
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

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        axis_of(self.axis, inputs[0])?;
        numeric(inputs[0])
    }

    fn terms(&self, inputs: &[&TensorType]) -> i64 {
        along(inputs, self.axis)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        front(&mut self.axis, rank);
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "axis", self.axis, true);
        flag(line, "exclusive", self.exclusive);
        flag(line, "reverse", self.reverse);
    }
}
