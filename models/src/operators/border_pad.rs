//! Padding with elements of the tensor.

use super::pad::padded;
use super::prelude::*;

/// Which element stands outside of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Border {
    /// Mirrored at the outermost element, which is not repeated.
    Reflect,
    /// The outermost element.
    Edge,
    /// As if the tensor stood there again.
    Wrap,
}

impl Border {
    /// The border's name in texts.
    fn name(self) -> &'static str {
        match self {
            Border::Reflect => "reflect",
            Border::Edge => "edge",
            Border::Wrap => "wrap",
        }
    }
}

/// Surrounds with elements of `x` itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BorderPad {
    pub border: Border,
    pub pads: Vec<i64>,
}

impl Operator for BorderPad {
    fn facts(&self) -> Facts {
        Facts::new("border_pad", Class::Movement, 1..=1).with_numbers_from(0).with_identity()
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, pads) = (inputs[0], &self.pads);
        let output = padded(x, pads)?;
        for (place, dim) in x.shape.iter().enumerate() {
            let pad = pads[place].max(pads[place + x.rank()]);
            if pad == 0 {
                continue;
            }
            let extent = known(dim, "a padded extent")?;
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

    fn describe(&self, line: &mut String) {
        attribute(line, "p", join(&self.pads, "x"), true);
        flag(line, self.border.name(), true);
    }
}
