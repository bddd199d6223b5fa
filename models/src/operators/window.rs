//! Sliding windows of operators over the spatial dimensions of their first input.

use super::line::{append_attribute, format_list};
use crate::shapes::{Rule, known_extent};
use crate::types::TensorType;

/// Maximum of strides, pads, dilations and kernel extents, so that computations with them cannot overflow.
pub(super) const MAX_ATTRIBUTE: i64 = 1 << 31;

/// The attributes of a sliding window. Spatial attributes have one entry per spatial dimension (1 to 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvWindow<'a> {
    /// Window extents; empty if they follow from the shape of the operator's weight.
    pub kernel: &'a [i64],
    /// Elements from one window to the next.
    pub strides: &'a [i64],
    /// All leading pads, then all trailing pads.
    pub pads: &'a [i64],
    /// Elements from one tap of a window to the next.
    pub dilations: &'a [i64],
    /// Number of channel groups of a convolution; 1 for pools.
    pub groups: i64,
    /// Whether the strides apply to the output (transposed convolution).
    pub is_transposed: bool,
}

impl ConvWindow<'_> {
    /// Returns the leading pads if the trailing ones are equal.
    pub fn even_pads(&self) -> Option<&[i64]> {
        let (heads, tails) = self.pads.split_at(self.strides.len());
        (heads == tails).then_some(heads)
    }

    /// Checks the attributes against each other and the rank of `x`, and returns the number of spatial dimensions.
    pub(super) fn spatial_rank(&self, x: &TensorType) -> Rule<usize> {
        let rank = self.strides.len();
        if !(1..=3).contains(&rank) {
            return Err(format!("there are {rank} strides, but there can only be 1 to 3 spatial dimensions"));
        }
        if self.pads.len() != 2 * rank || self.dilations.len() != rank {
            return Err(format!(
                "{rank} strides need {} pads and {rank} dilations, got {} and {}",
                2 * rank,
                self.pads.len(),
                self.dilations.len()
            ));
        }
        if x.rank() != rank + 2 {
            return Err(format!("`x` must have {} dimensions for {rank} strides, has {}", rank + 2, x.rank()));
        }
        let bounds = [("stride", self.strides, 1), ("dilation", self.dilations, 1), ("pad", self.pads, 0)];
        for (name, values, low) in bounds {
            if let Some(value) = values.iter().find(|value| !(low..=MAX_ATTRIBUTE).contains(*value)) {
                return Err(format!("{name} {value} must be at least {low} and at most {MAX_ATTRIBUTE}"));
            }
        }
        Ok(rank)
    }

    pub(super) fn window_count(&self, x: &TensorType, axis: usize, kernel: i64, ceil: bool) -> Rule<i64> {
        if !(1..=MAX_ATTRIBUTE).contains(&kernel) {
            return Err(format!("kernel extent {kernel} must be at least 1 and at most {MAX_ATTRIBUTE}"));
        }
        let extent = known_extent(&x.shape[axis + 2], "a spatial extent of `x`")?;
        let (stride, head) = (self.strides[axis], self.pads[axis]);
        let tail = self.pads[axis + self.strides.len()];
        let reach = self.dilations[axis] * (kernel - 1) + 1;
        let padded = extent.checked_add(head + tail).ok_or("the padded extent exceeds 64 bits")?;
        let room = padded - reach;
        if room < 0 {
            return Err(format!(
                "a window of {reach} does not fit into {extent} + {head} + {tail} elements of spatial dimension {axis}"
            ));
        }
        let places = room / stride + 1;
        // With `ceil` a last, partial window counts if it starts inside the data or its leading pad.
        let has_partial = ceil && room % stride != 0 && places.saturating_mul(stride) < extent + head;
        Ok(places + i64::from(has_partial))
    }

    pub(super) fn describe_window(&self, line: &mut String) {
        append_attribute(line, "s", format_list(self.strides), self.strides.iter().any(|&stride| stride != 1));
        append_attribute(line, "p", format_list(self.pads), self.pads.iter().any(|&pad| pad != 0));
        append_attribute(line, "d", format_list(self.dilations), self.dilations.iter().any(|&dilation| dilation != 1));
    }
}
