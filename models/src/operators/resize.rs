//! Resampling of images.

use super::prelude::*;

/// Interpolation of resized elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// Element `floor(place · old extent / new extent)`.
    Nearest,
    /// Interpolates the neighbours of `(place + 1/2) · old / new - 1/2`, clamped to the input.
    Linear,
    /// Interpolates the neighbours of `place · (old - 1) / (new - 1)`: the corners coincide.
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

/// Resizes the spatial dimensions to these extents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    pub mode: ResizeMode,
    pub extents: Vec<i64>,
}

impl Operator for Resize {
    /// At the same extents every mode reads each element where it is.
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
            return Err(format!("{} new extents do not fit {x}, whose first two dimensions stay", extents.len()));
        }
        let mut output = x.clone();
        for (dim, &extent) in output.shape[2..].iter_mut().zip(extents) {
            if extent < 1 || known_extent(dim, "a spatial extent of `x`")? < 1 {
                return Err(format!("a dimension of {dim} cannot become {extent}; both must be at least 1"));
            }
            *dim = Dim::Known(extent);
        }
        Ok(output)
    }

    /// A blend of two is a difference, a product and a sum; the corners of a cell are blended pairwise.
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
