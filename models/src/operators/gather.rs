//! Look-up of slices by index.

use super::lookup::{bytes_found, looked_up_axis};
use super::prelude::*;

/// Inputs: `x, indices`. Dimension `axis` of `x` is replaced by the dimensions of the indices. In all look-ups,
/// negative indices count from the end, and the result of an index outside of its dimension is undefined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather {
    pub axis: i64,
}

impl Operator for Gather {
    fn facts(&self) -> Facts {
        Facts::new("gather", Class::Movement, 2..=2).with_weights(0..1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, at) = (inputs[0], inputs[1]);
        let axis = looked_up_axis(x, at, self.axis)?;
        let shape = [&x.shape[..axis], &at.shape, &x.shape[axis + 1..]].concat();
        Ok(TensorType { dtype: x.dtype, shape })
    }

    fn bytes_read(&self, input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
        bytes_found(input, ty, output)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
