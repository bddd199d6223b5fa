//! Upper and lower triangles of matrices.

use super::prelude::*;

const MAX_DIAGONAL: i64 = 1 << 31;

/// Keeps the upper (or lower) triangle of the last two dimensions; the rest becomes zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trilu {
    pub upper: bool,
    pub diagonal: i64,
}

impl Operator for Trilu {
    fn facts(&self) -> Facts {
        Facts::new("trilu", Class::Movement, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, diagonal) = (inputs[0], self.diagonal);
        if x.rank() < 2 {
            return Err(format!("`x` has {} dimensions; a triangle needs 2", x.rank()));
        }
        if !(-MAX_DIAGONAL..=MAX_DIAGONAL).contains(&diagonal) {
            return Err(format!("diagonal {diagonal} must be within {MAX_DIAGONAL} of the main one"));
        }
        Ok(x.clone())
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], inputs[0].rank().saturating_sub(2))
    }

    fn append_attributes(&self, line: &mut String) {
        append_flag(line, if self.upper { "upper" } else { "lower" }, true);
        append_attribute(line, "diagonal", self.diagonal, self.diagonal != 0);
    }
}
