//! Writes of elements along an axis.

use super::gather_elements::GatherElements;
use super::lookup::{scatter, scatter_terms, scatter_work};
use super::prelude::*;

/// What becomes of an element that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterOp {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl ScatterOp {
    /// The name in texts.
    pub(super) fn name(self) -> &'static str {
        match self {
            ScatterOp::Replace => "replace",
            ScatterOp::Add => "add",
            ScatterOp::Mul => "mul",
            ScatterOp::Max => "max",
            ScatterOp::Min => "min",
        }
    }
}

/// `x, indices, updates`: writes elements where `GatherElements` would read them; of two at one place the later counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScatterElements {
    pub axis: i64,
    pub combine: ScatterOp,
}

impl Operator for ScatterElements {
    fn facts(&self) -> Facts {
        Facts::new("scatter_elements", Class::Movement, 3..=3).with_numbers_from(0)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let written = GatherElements { axis: self.axis }.output(inputs)?;
        scatter(inputs[0], inputs[2], &written.shape, self.combine)
    }

    fn arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        scatter_work(inputs, self.combine)
    }

    fn terms(&self, inputs: &[&TensorType]) -> i64 {
        scatter_terms(inputs)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        front(&mut self.axis, rank);
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "axis", self.axis, true);
        flag(line, self.combine.name(), true);
    }
}
