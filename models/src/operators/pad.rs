//! Padding with a constant number.

use super::prelude::*;

/// Surrounds `x` with a constant number; `pads` contains all leading pads, then all trailing pads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    pub pads: Vec<i64>,
    pub value: f64,
}

impl Operator for Pad {
    fn facts(&self) -> Facts {
        Facts::new("pad", Class::Movement, 1..=1).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let output = padded_type(inputs[0], &self.pads)?;
        if !self.value.is_finite() {
            return Err(format!("the pad value {} must be finite", self.value));
        }
        Ok(output)
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        let rank = inputs[0].rank();
        (0..rank).all(|d| is_number(inputs[0], d) || self.pads[d] + self.pads[rank + d] == 0)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "p", join_items(&self.pads, "x"), true);
        append_attribute(line, "value", self.value, self.value != 0.0);
    }
}

pub(super) fn padded_type(x: &TensorType, pads: &[i64]) -> Rule<TensorType> {
    let rank = x.rank();
    if pads.len() != 2 * rank {
        return Err(format!("{rank} dimensions need {} pads, got {}", 2 * rank, pads.len()));
    }
    let mut output = x.clone();
    for (index, dim) in output.shape.iter_mut().enumerate() {
        let (head, tail) = (pads[index], pads[index + rank]);
        if head < 0 || tail < 0 {
            return Err(format!("pads {head} and {tail} of dimension {index} must not be negative"));
        }
        if head == 0 && tail == 0 {
            continue;
        }
        let extent = known_extent(dim, "a padded extent")?;
        let padded = extent.checked_add(head).and_then(|extent| extent.checked_add(tail));
        *dim = Dim::Known(padded.ok_or("the padded extent exceeds 64 bits")?);
    }
    Ok(output)
}
