//! Places of the largest or smallest elements.

use super::prelude::*;

/// Where the largest (or smallest) element along `axis` stands, as `i64`: the first of equals, or the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgReduce {
    pub largest: bool,
    pub axis: i64,
    pub keep: bool,
    pub last: bool,
}

impl Operator for ArgReduce {
    fn facts(&self) -> Facts {
        Facts::new(if self.largest { "arg_max" } else { "arg_min" }, Class::Reduction, 1..=1)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        numeric(inputs[0])?;
        let reduced = without(inputs[0], &[axis_of(self.axis, inputs[0])?], self.keep)?;
        Ok(TensorType { dtype: DType::I64, shape: reduced.shape })
    }

    fn arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        Ok(flops(elements(inputs[0])?))
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        front(&mut self.axis, rank);
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "axis", self.axis, true);
        flag(line, "keep", self.keep);
        flag(line, "last", self.last);
    }
}
