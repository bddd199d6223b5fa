//! Indices as one-hot vectors.

use super::lookup::check_indices;
use super::prelude::*;

/// Input: `indices`. Adds a dimension `axis` of extent `depth`, with `on` at the index and `off` elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneHot {
    pub axis: i64,
    pub depth: i64,
    pub on: f64,
    pub off: f64,
    pub to: DType,
}

impl Operator for OneHot {
    fn facts(&self) -> Facts {
        Facts::new("one_hot", Class::Movement, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (at, values) = (inputs[0], [self.on, self.off]);
        check_indices(at)?;
        let Some(axis) = usize::try_from(self.axis).ok().filter(|&axis| axis <= at.rank()) else {
            return Err(format!("axis {} exceeds the rank {}", self.axis, at.rank()));
        };
        if self.depth < 1 {
            return Err(format!("depth {} must be at least 1", self.depth));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(format!("the values {values:?} must be finite"));
        }
        let mut shape = at.shape.clone();
        shape.insert(axis, Dim::Known(self.depth));
        Ok(TensorType { dtype: self.to, shape })
    }

    /// Converts a negative axis by the rank of the output, which has one dimension more than the input.
    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank.saturating_add(1));
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
        append_attribute(line, "depth", self.depth, true);
    }
}
