//! Padding with elements of the tensor itself.

use super::pad::padded_type;
use super::prelude::*;

/// Source of the elements outside a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Border {
    /// Elements mirrored at the outermost element, which is not repeated.
    Reflect,
    /// The outermost element, repeated.
    Edge,
    /// Periodic repetition of all elements.
    Wrap,
}

impl Border {
    fn name(self) -> &'static str {
        match self {
            Border::Reflect => "reflect",
            Border::Edge => "edge",
            Border::Wrap => "wrap",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BorderPad {
    pub border: Border,
    pub pads: Vec<i64>,
}

impl Operator for BorderPad {
    fn facts(&self) -> Facts {
        Facts::new("border_pad", Class::Movement, 1..=1).with_numbers_from(0).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, pads) = (inputs[0], &self.pads);
        let output = padded_type(x, pads)?;
        for (place, dim) in x.shape.iter().enumerate() {
            let pad = pads[place].max(pads[place + x.rank()]);
            if pad == 0 {
                continue;
            }
            let extent = known_extent(dim, "a padded extent")?;
            let fits = match self.border {
                Border::Reflect => pad < extent,
                Border::Edge => extent > 0,
                Border::Wrap => pad <= extent,
            };
            if !fits {
                return Err(format!("the {extent} elements of dimension {place} are too few for a pad of {pad}"));
            }
        }
        Ok(output)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "p", join_items(&self.pads, "x"), true);
        append_flag(line, self.border.name(), true);
    }
}
