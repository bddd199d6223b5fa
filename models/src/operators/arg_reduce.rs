//! Indices of the largest or smallest elements.

use super::prelude::*;

/// Index of the largest (or smallest) element along `axis`, as `i64`: the first or the last among equal elements.
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

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        check_numeric(inputs[0])?;
        let reduced = remove_axes(inputs[0], &[axis_of(self.axis, inputs[0])?], self.keep)?;
        Ok(TensorType { dtype: DType::I64, shape: reduced.shape })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        Ok(flops_work(elements(inputs[0])?))
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
        append_flag(line, "keep", self.keep);
        append_flag(line, "last", self.last);
    }
}
