//! Writes of elements along an axis.

use super::gather_elements::GatherElements;
use super::lookup::{ScatterOp, scatter_terms, scatter_type, scatter_work};
use super::prelude::*;

/// Inputs: `x, indices, updates`. Writes updates where `GatherElements` would read. Of several updates of one element,
/// `Replace` keeps the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScatterElements {
    pub axis: i64,
    pub combine: ScatterOp,
}

impl Operator for ScatterElements {
    fn facts(&self) -> Facts {
        Facts::new("scatter_elements", Class::Movement, 3..=3).with_numbers_from(0)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let written = GatherElements { axis: self.axis }.infer_output(inputs)?;
        scatter_type(inputs[0], inputs[2], &written.shape, self.combine)
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        scatter_work(inputs, self.combine)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        scatter_terms(inputs)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
        append_flag(line, self.combine.name(), true);
    }
}
