//! Writes of slices by tuples of indices.

use super::lookup::{scatter, scatter_terms, scatter_work, tuple};
use super::prelude::*;
use super::scatter_elements::ScatterOp;

/// `x, indices[i…, k], updates[i…, s…]`: writes slices where `GatherNd` would read them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScatterNd {
    pub combine: ScatterOp,
}

impl Operator for ScatterNd {
    fn facts(&self) -> Facts {
        Facts::new("scatter_nd", Class::Movement, 3..=3).with_numbers_from(0)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, at) = (inputs[0], inputs[1]);
        let looked_up = tuple(x, at, 0)?;
        let written = [&at.shape[..at.rank() - 1], &x.shape[looked_up..]].concat();
        scatter(x, inputs[2], &written, self.combine)
    }

    fn arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        scatter_work(inputs, self.combine)
    }

    fn terms(&self, inputs: &[&TensorType]) -> i64 {
        scatter_terms(inputs)
    }

    fn describe(&self, line: &mut String) {
        flag(line, self.combine.name(), true);
    }
}
