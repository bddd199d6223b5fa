//! Writes of slices by tuples of indices.

use super::lookup::{ScatterOp, scatter_terms, scatter_type, scatter_work, tuple_length};
use super::prelude::*;

/// Inputs: `x, indices[i…, k], updates[i…, s…]`. Writes slices where `GatherNd` would read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScatterNd {
    pub combine: ScatterOp,
}

impl Operator for ScatterNd {
    fn facts(&self) -> Facts {
        Facts::new("scatter_nd", Class::Movement, 3..=3).with_numbers_from(0)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, at) = (inputs[0], inputs[1]);
        let looked_up = tuple_length(x, at, 0)?;
        let written = [&at.shape[..at.rank() - 1], &x.shape[looked_up..]].concat();
        scatter_type(x, inputs[2], &written, self.combine)
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        scatter_work(inputs, self.combine)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        scatter_terms(inputs)
    }

    fn append_attributes(&self, line: &mut String) {
        append_flag(line, self.combine.name(), true);
    }
}
