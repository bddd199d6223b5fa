//! Resampling of images.

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// Takes input element `floor(i · old / new)` for output element `i`, with old and new extent.
    Nearest,
    /// Interpolates the neighbours of `(i + 1/2) · old / new - 1/2` for output element `i`, clamped to the input.
    Linear,
    /// Interpolates the neighbours of `i · (old - 1) / (new - 1)` for output element `i`, so that corners coincide.
    LinearAligned,
}

impl ResizeMode {
    fn name(self) -> &'static str {
        match self {
            ResizeMode::Nearest => "nearest",
            ResizeMode::Linear => "linear",
            ResizeMode::LinearAligned => "linear_aligned",
        }
    }
}

/// Resizes the spatial dimensions to the given extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    pub mode: ResizeMode,
    pub extents: Vec<i64>,
}

impl Operator for Resize {
    /// Declares an identity at equal extents: every mode then returns the input elements unchanged.
    fn facts(&self) -> Facts {
        Facts::new("resize", Class::Movement, 1..=1).with_numbers_from(2).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, extents) = (inputs[0], &self.extents);
        match self.mode {
            ResizeMode::Nearest => {}
            ResizeMode::Linear | ResizeMode::LinearAligned => drop(floating(x)?),
        }
        if !(1..=3).contains(&extents.len()) || x.rank() != extents.len() + 2 {
            return Err(format!("{} new extents do not fit {x}, whose first two dimensions are kept", extents.len()));
        }
        let mut output = x.clone();
        for (dim, &extent) in output.shape[2..].iter_mut().zip(extents) {
            if extent < 1 || known_extent(dim, "a spatial extent of `x`")? < 1 {
                return Err(format!(
                    "cannot resize a dimension from {dim} to {extent} elements; both must be at least 1"
                ));
            }
            *dim = Dim::Known(extent);
        }
        Ok(output)
    }

    /// Counts three operations per interpolation of two elements: difference, product and sum.
    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        match self.mode {
            ResizeMode::Nearest => Ok(Work::default()),
            ResizeMode::Linear | ResizeMode::LinearAligned => {
                pointwise(output, 3 * ((1u64 << self.extents.len().min(3)) - 1))
            }
        }
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "to", join_items(&self.extents, "x"), true);
        append_flag(line, self.mode.name(), true);
    }
}
