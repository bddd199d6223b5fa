//! Convolution.

use super::prelude::*;
use super::window::ConvWindow;

/// Inputs: `x[n, ci, s…]`, `w[co, ci / groups, k…]`. `pads` contains all leading pads, then all trailing pads.
/// Integers below 32 bits are summed in `i32`, as in every contraction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    pub strides: Vec<i64>,
    pub pads: Vec<i64>,
    pub dilations: Vec<i64>,
    pub groups: i64,
}

impl Operator for Conv {
    fn facts(&self) -> Facts {
        Facts::new("conv", Class::Contraction, 2..=2).with_weights(1..2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        infer_conv(inputs[0], inputs[1], &self.own_window())
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        conv_work(inputs, output)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 1, 1..usize::MAX)
    }

    fn window(&self) -> Option<ConvWindow<'_>> {
        Some(self.own_window())
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], 1) && numbers_from(inputs[1], 0)
    }

    fn concrete_kind(&self, inputs: &[&TensorType]) -> String {
        conv_kind(self.strides.len(), self.groups, inputs)
    }

    fn append_attributes(&self, line: &mut String) {
        self.own_window().describe_window(line);
        append_attribute(line, "g", self.groups, self.groups != 1);
    }
}

impl Conv {
    fn own_window(&self) -> ConvWindow<'_> {
        let Conv { strides, pads, dilations, groups } = self;
        ConvWindow { kernel: &[], strides, pads, dilations, groups: *groups, is_transposed: false }
    }
}

pub(super) fn infer_conv(x: &TensorType, w: &TensorType, window: &ConvWindow<'_>) -> Rule<TensorType> {
    same_dtype(x, w)?;
    check_numeric(x)?;
    let rank = window.spatial_rank(x)?;
    if w.rank() != rank + 2 {
        return Err(format!("`w` must have {} dimensions, has {}", rank + 2, w.rank()));
    }
    let channels_in = known_extent(&x.shape[1], "the channel count of `x`")?;
    let channels_out = known_extent(&w.shape[0], "the output channel count of `w`")?;
    let per_group = known_extent(&w.shape[1], "the input channel count of `w`")?;
    let groups = window.groups;
    if groups < 1 || channels_in % groups != 0 || channels_out % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels_in} input and {channels_out} output channels"));
    }
    if channels_in / groups != per_group {
        return Err(format!(
            "`x` has {channels_in} channels in {groups} groups, so `w` must have {} input channels, has {per_group}",
            channels_in / groups
        ));
    }
    let mut shape = Vec::with_capacity(rank + 2);
    shape.extend([x.shape[0].clone(), Dim::Known(channels_out)]);
    for axis in 0..rank {
        let kernel = known_extent(&w.shape[axis + 2], "a kernel extent")?;
        shape.push(Dim::Known(window.window_count(x, axis, kernel, false)?));
    }
    Ok(TensorType { dtype: accumulator_type(x.dtype), shape })
}

pub(super) fn conv_work(inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
    let filter = elements(inputs[1])?.checked_div(axis_extent(inputs[1], 0)?).unwrap_or(0);
    Ok(contraction_work(elements(output)?.saturating_mul(filter)))
}

pub(super) fn conv_kind(rank: usize, groups: i64, inputs: &[&TensorType]) -> String {
    let is_depthwise = groups > 1
        && inputs
            .get(1)
            .is_some_and(|w| w.shape.get(1) == Some(&Dim::Known(1)) && w.shape.first() == Some(&Dim::Known(groups)));
    format!("{}conv{rank}d", if is_depthwise { "depthwise_" } else { "" })
}
