//! Softmax and its logarithm.

use super::prelude::*;

/// Computes exponentials along `axis` divided by their sum, or the logarithm of the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softmax {
    pub axis: i64,
    pub log: bool,
}

impl Operator for Softmax {
    fn facts(&self) -> Facts {
        Facts::new("softmax", Class::Normalisation, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        axis_of(self.axis, inputs[0])?;
        floating(inputs[0])
    }

    /// Counts five operations per element: maximum, subtraction, exponential, sum, division (or one more subtraction).
    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        Ok(Work { exps: elements(output)?, ..pointwise(output, 5)? })
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        extent_along(inputs, self.axis)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        if self.log { "log_softmax" } else { "softmax" }.to_owned()
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
