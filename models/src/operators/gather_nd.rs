//! Look-up by tuples of indices.

use super::lookup::{bytes_found, tuple_length};
use super::prelude::*;

/// Inputs: `x, indices[b…, i…, k]`. The first `batch` dimensions of both are matched; each tuple of `k` indices
/// selects a slice by the next `k` dimensions of `x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatherNd {
    pub batch: i64,
}

impl Operator for GatherNd {
    fn facts(&self) -> Facts {
        Facts::new("gather_nd", Class::Movement, 2..=2).with_numbers_from(0)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, at, batch) = (inputs[0], inputs[1], self.batch);
        let batch = usize::try_from(batch)
            .map_err(|_| format!("the number of batch dimensions, {batch}, must not be negative"))?;
        let looked_up = tuple_length(x, at, batch)?;
        if at.shape.get(..batch) != x.shape.get(..batch) || batch >= at.rank() {
            return Err(format!("the first {batch} dimensions of {x} and {at} must be equal"));
        }
        let shape = [&at.shape[..at.rank() - 1], &x.shape[batch + looked_up..]].concat();
        Ok(TensorType { dtype: x.dtype, shape })
    }

    fn bytes_read(&self, input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
        bytes_found(input, ty, output)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "batch", self.batch, self.batch != 0);
    }
}
