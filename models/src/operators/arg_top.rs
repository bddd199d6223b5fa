//! Places of the best few elements.

use super::prelude::*;

/// Where the `count` largest (or smallest) elements along `axis` stand, as `i64`, the best first and of equals the one that comes
/// first. `GatherElements` then gives the elements themselves.
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

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, count) = (inputs[0], self.count);
        numeric(x)?;
        let axis = axis_of(self.axis, x)?;
        let extent = known(&x.shape[axis], "the extent to search")?;
        if !(1..=extent).contains(&count) {
            return Err(format!("the {count} best of {extent} elements cannot be found"));
        }
        let mut shape = x.shape.clone();
        shape[axis] = Dim::Known(count);
        Ok(TensorType { dtype: DType::I64, shape })
    }

    /// A comparison with each level of a heap that holds the best so far.
    fn arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        let levels = u64::from(u64::BITS - self.count.unsigned_abs().leading_zeros());
        Ok(flops(elements(inputs[0])?.saturating_mul(levels)))
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        front(&mut self.axis, rank);
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "count", self.count, true);
        attribute(line, "axis", self.axis, true);
        flag(line, "smallest", !self.largest);
    }
}
