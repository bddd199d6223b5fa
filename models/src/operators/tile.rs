//! Repetition of dimensions.

use super::prelude::*;

/// Repeats each dimension as often as its entry in `repeats` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    pub repeats: Vec<i64>,
}

impl Operator for Tile {
    fn facts(&self) -> Facts {
        Facts::new("tile", Class::Movement, 1..=1).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, repeats) = (inputs[0], &self.repeats);
        if repeats.len() != x.rank() {
            return Err(format!("{} dimensions need as many repeats, got {}", x.rank(), repeats.len()));
        }
        let mut output = x.clone();
        for (dim, &repeat) in output.shape.iter_mut().zip(repeats) {
            if repeat < 1 {
                return Err(format!("the repeat count {repeat} must be at least 1"));
            }
            if repeat > 1 {
                let repeated = known_extent(dim, "a repeated extent")?.checked_mul(repeat);
                *dim = Dim::Known(repeated.ok_or("the repeated extent exceeds 64 bits")?);
            }
        }
        Ok(output)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "times", join_items(&self.repeats, "x"), true);
    }
}
