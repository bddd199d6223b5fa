//! Indices of the largest or smallest few elements.

use super::prelude::*;

/// Indices of the `count` largest (or smallest) elements along `axis`, as `i64`, best first; ties by ascending index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgTop {
    pub count: i64,
    pub axis: i64,
    pub largest: bool,
}

impl Operator for ArgTop {
    fn facts(&self) -> Facts {
        Facts::new("arg_top", Class::Reduction, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, count) = (inputs[0], self.count);
        check_numeric(x)?;
        let axis = axis_of(self.axis, x)?;
        let extent = known_extent(&x.shape[axis], "the extent to search")?;
        if !(1..=extent).contains(&count) {
            return Err(format!("cannot select {count} of {extent} elements"));
        }
        let mut shape = x.shape.clone();
        shape[axis] = Dim::Known(count);
        Ok(TensorType { dtype: DType::I64, shape })
    }

    /// Counts one comparison per element and level of a heap of `count` elements.
    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        let levels = u64::from(u64::BITS - self.count.unsigned_abs().leading_zeros());
        Ok(flops_work(elements(inputs[0])?.saturating_mul(levels)))
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "count", self.count, true);
        append_attribute(line, "axis", self.axis, true);
        append_flag(line, "smallest", !self.largest);
    }
}
