//! Transposed convolution.

use super::prelude::*;
use super::window::ConvWindow;
use crate::pairs::transposed_pairs;

/// Gradient of a convolution with respect to its input, for `x[n, ci, s…]`, `w[ci, co / groups, k…]`.
/// `output_pads` extends the trailing ends of the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTranspose {
    pub strides: Vec<i64>,
    pub pads: Vec<i64>,
    pub output_pads: Vec<i64>,
    pub dilations: Vec<i64>,
    pub groups: i64,
}

impl Operator for ConvTranspose {
    fn facts(&self) -> Facts {
        Facts::new("conv_transpose", Class::Contraction, 2..=2).with_weights(1..2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, w) = (inputs[0], inputs[1]);
        same_dtype(x, w)?;
        check_numeric(x)?;
        let rank = self.own_window().spatial_rank(x)?;
        if w.rank() != rank + 2 || self.output_pads.len() != rank {
            return Err(format!(
                "`w` must have {} dimensions and there must be {rank} output pads, got {} and {}",
                rank + 2,
                w.rank(),
                self.output_pads.len()
            ));
        }
        let channels_in = known_extent(&x.shape[1], "the channel count of `x`")?;
        let taken = known_extent(&w.shape[0], "the input channel count of `w`")?;
        let per_group = known_extent(&w.shape[1], "the output channel count of `w`")?;
        if channels_in != taken {
            return Err(format!("`x` has {channels_in} channels, `w` expects {taken}"));
        }
        if self.groups < 1 || channels_in % self.groups != 0 {
            return Err(format!("{} groups do not divide {channels_in} input channels", self.groups));
        }
        let channels_out = per_group.checked_mul(self.groups);
        let channels_out = channels_out.ok_or("the output channels exceed 64 bits")?;
        let mut shape = vec![x.shape[0].clone(), Dim::Known(channels_out)];
        for axis in 0..rank {
            let extent = known_extent(&x.shape[axis + 2], "a spatial extent of `x`")?;
            let kernel = known_extent(&w.shape[axis + 2], "a kernel extent")?;
            shape.push(Dim::Known(self.output_extent(extent, kernel, axis)?));
        }
        Ok(TensorType { dtype: accumulator_type(x.dtype), shape })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let mut macs =
            saturating_product(&[axis_extent(inputs[0], 0)?, axis_extent(inputs[0], 1)?, axis_extent(inputs[1], 1)?]);
        for (axis, stride) in self.strides.iter().enumerate() {
            let (outputs, kernel) = (axis_extent(output, axis + 2)?, axis_extent(inputs[1], axis + 2)?);
            let [stride, head, dilation] = [*stride, self.pads[axis], self.dilations[axis]].map(i64::unsigned_abs);
            macs = macs.saturating_mul(transposed_pairs(outputs, kernel, stride, head, dilation));
        }
        Ok(contraction_work(macs))
    }

    /// Returns an upper bound: one whole filter for each input channel of the group.
    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        (known_product(inputs, 1, 0..1) / self.groups.max(1)).saturating_mul(known_product(inputs, 1, 2..usize::MAX))
    }

    fn window(&self) -> Option<ConvWindow<'_>> {
        Some(self.own_window())
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], 1) && numbers_from(inputs[1], 0)
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        format!("conv_transpose{}d", self.strides.len())
    }

    fn append_attributes(&self, line: &mut String) {
        self.own_window().describe_window(line);
        append_attribute(line, "op", format_list(&self.output_pads), self.output_pads.iter().any(|&pad| pad != 0));
        append_attribute(line, "g", self.groups, self.groups != 1);
    }
}

impl ConvTranspose {
    fn own_window(&self) -> ConvWindow<'_> {
        let ConvTranspose { strides, pads, dilations, groups, .. } = self;
        ConvWindow { kernel: &[], strides, pads, dilations, groups: *groups, is_transposed: true }
    }

    fn output_extent(&self, extent: i64, kernel: i64, axis: usize) -> Rule<i64> {
        let (stride, dilation, output_pad) = (self.strides[axis], self.dilations[axis], self.output_pads[axis]);
        if output_pad < 0 || output_pad >= stride.max(dilation) {
            return Err(format!(
                "output pad {output_pad} must not be negative and below stride {stride} or dilation {dilation}"
            ));
        }
        if extent < 1 || kernel < 1 {
            return Err(format!("extent {extent} and kernel extent {kernel} must be at least 1"));
        }
        let wide = |number: i64| i128::from(number);
        let pads = wide(self.pads[axis]) + wide(self.pads[axis + self.strides.len()]);
        let reach = wide(dilation) * (wide(kernel) - 1) + 1;
        let places = (wide(extent) - 1) * wide(stride) + reach + wide(output_pad) - pads;
        let is_possible = |places: &i64| *places > 0;
        i64::try_from(places)
            .ok()
            .filter(is_possible)
            .ok_or_else(|| format!("spatial dimension {axis} of the output would be {places}"))
    }
}
