//! Convolutions and pools over channels-last images.

use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, Conv, ConvTranspose, Op, Pool, PoolMode, QConv};

type Outputs = Outcome<Vec<ValueId>>;

/// Window attributes with height before width; the file has width first.
struct WindowOptions {
    strides: Vec<i64>,
    dilations: Vec<i64>,
    is_same: bool,
}

impl WindowOptions {
    fn parse_window(call: &Call<'_, '_>, dilations_at: Option<usize>) -> Outcome<WindowOptions> {
        let is_same = match call.byte_option(0)? {
            0 => true,
            1 => false,
            other => return unsupported(format!("padding code {other}")),
        };
        let dilations = match dilations_at {
            Some(at) => vec![call.int_option(at + 1, 1)?, call.int_option(at, 1)?],
            None => vec![1, 1],
        };
        let window =
            WindowOptions { strides: vec![call.int_option(2, 0)?, call.int_option(1, 0)?], dilations, is_same };
        if window.strides.iter().chain(&window.dilations).any(|&step| step < 1) {
            return malformed("strides and dilations must be at least 1");
        }
        Ok(window)
    }

    /// Returns the pads per axis; if their sum is odd, the larger pad comes after the data.
    fn same_pads(&self, spatial: &[i64], kernel: &[i64]) -> Outcome<Vec<i64>> {
        let (mut heads, mut tails) = (vec![], vec![]);
        for axis in 0..self.strides.len() {
            let total = if self.is_same { self.total_pad(axis, spatial[axis], kernel[axis])? } else { 0 };
            heads.push(total / 2);
            tails.push(total - total / 2);
        }
        heads.append(&mut tails);
        Ok(heads)
    }

    fn total_pad(&self, axis: usize, extent: i64, kernel: i64) -> Outcome<i64> {
        let (stride, dilation) = (i128::from(self.strides[axis]), i128::from(self.dilations[axis]));
        let (extent, kernel) = (i128::from(extent), i128::from(kernel));
        let places = (extent + stride - 1) / stride;
        let total = ((places - 1) * stride + (kernel - 1) * dilation + 1 - extent).max(0);
        i64::try_from(total).or_else(|_| malformed(format!("the padding {total} is out of range")))
    }
}

fn spatial_extents(call: &Call<'_, '_>, x: ValueId) -> Outcome<[i64; 2]> {
    match call.emit.extents(x)?[..] {
        [_, height, width, _] => Ok([height, width]),
        ref other => malformed(format!("an image or a filter must have 4 dimensions, has {}", other.len())),
    }
}

pub(super) fn conv_2d(call: &mut Call<'_, '_>) -> Outputs {
    let window = WindowOptions::parse_window(call, Some(4))?;
    let activation = call.read_activation(3)?;
    // Filters are stored as output, height, width, input.
    convolve_data(call, &window, activation, [0, 3, 1, 2])
}

pub(super) fn depthwise_conv(call: &mut Call<'_, '_>) -> Outputs {
    let window = WindowOptions::parse_window(call, Some(5))?;
    let activation = call.read_activation(4)?;
    // Filters are stored as 1, height, width, output.
    convolve_data(call, &window, activation, [3, 0, 1, 2])
}

fn convolve_data(
    call: &mut Call<'_, '_>,
    window: &WindowOptions,
    activation: Activation,
    order: [usize; 4],
) -> Outputs {
    // `order[0]` is the dimension of the output channels in the stored filter.
    let factor = call.exact_factor([0, 1], order[0] as i32, activation)?;
    let (x, w) = match factor {
        Some(_) => (call.input(0)?, call.input(1)?),
        None => (call.real(0)?, call.real(1)?),
    };
    let pads = window.same_pads(&spatial_extents(call, x)?, &spatial_extents(call, w)?)?;
    let channels = *call.emit.extents(x)?.last().expect("an image has 4 dimensions");
    let w = call.emit.transpose(w, &order)?;
    let per_group = call.emit.extents(w)?[1];
    if per_group < 1 || channels % per_group != 0 {
        return malformed(format!("{channels} channels are not a multiple of the group size {per_group}"));
    }
    let x = call.channels_first(x)?;
    let (strides, dilations, groups) = (window.strides.clone(), window.dilations.clone(), channels / per_group);
    let Some(factor) = factor else {
        let mut y = call.emit.push(Op::Conv(Conv { strides, pads, dilations, groups }), &[x, w])?;
        if let Some(bias) = call.bias_vector(2, false)? {
            y = call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
        }
        let y = call.apply_activation(y, activation)?;
        return Ok(vec![call.channels_last(y)?]);
    };
    let (x_zero, w_zero) = (factor.x.zeros[0], factor.w.zeros[0]);
    let mut y = call.emit.push(Op::QConv(QConv { strides, pads, dilations, groups, x_zero, w_zero }), &[x, w])?;
    if let Some(bias) = call.bias_vector(2, true)? {
        y = call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    }
    let y = call.requantise_sums(y, factor, 1, activation)?;
    Ok(vec![call.channels_last(y)?])
}

/// Emits a 3-D convolution; the filter's dimensions are depth, height, width, input, output.
pub(super) fn conv_3d(call: &mut Call<'_, '_>) -> Outputs {
    let window = WindowOptions {
        strides: vec![call.int_option(1, 1)?, call.int_option(3, 1)?, call.int_option(2, 1)?],
        dilations: vec![call.int_option(5, 1)?, call.int_option(7, 1)?, call.int_option(6, 1)?],
        is_same: call.byte_option(0)? == 0,
    };
    if window.strides.iter().chain(&window.dilations).any(|&step| step < 1) {
        return malformed("strides and dilations must be at least 1");
    }
    let activation = call.read_activation(4)?;
    let (x, w) = (call.real(0)?, call.real(1)?);
    let (data, filter) = (call.emit.extents(x)?, call.emit.extents(w)?);
    let (&[_, _, _, _, channels], &[_, _, _, per_group, _]) = (&data[..], &filter[..]) else {
        return malformed("the input and the filter must have 5 dimensions");
    };
    if per_group < 1 || channels % per_group != 0 {
        return malformed(format!("{channels} channels are not a multiple of the group size {per_group}"));
    }
    let pads = window.same_pads(&data[1..4], &filter[..3])?;
    let w = call.emit.transpose(w, &[4, 3, 0, 1, 2])?;
    let x = call.channels_first(x)?;
    let WindowOptions { strides, dilations, .. } = window;
    let op = Op::Conv(Conv { strides, pads, dilations, groups: channels / per_group });
    let mut y = call.emit.push(op, &[x, w])?;
    if let Some(bias) = call.bias_vector(2, false)? {
        y = call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    }
    let y = call.apply_activation(y, activation)?;
    Ok(vec![call.channels_last(y)?])
}

/// Emits a transposed convolution; inputs: `output shape, filter, data`.
pub(super) fn transpose_conv(call: &mut Call<'_, '_>) -> Outputs {
    let window = WindowOptions::parse_window(call, None)?;
    let activation = call.read_activation(3)?;
    let wanted = call.emit.require_integers(call.input(0)?, "output_shape")?;
    let (w, x) = (call.real(1)?, call.real(2)?);
    let (kernel, old) = (spatial_extents(call, w)?, spatial_extents(call, x)?);
    let &[_, height, width, _] = wanted.as_slice() else {
        return malformed(format!("`output_shape` must have 4 numbers, has {}", wanted.len()));
    };
    let (mut heads, mut tails, mut more) = (vec![], vec![], vec![]);
    for (axis, new) in [height, width].into_iter().enumerate() {
        let whole = i128::from(old[axis] - 1) * i128::from(window.strides[axis]) + i128::from(kernel[axis]);
        let surplus = whole - i128::from(new);
        let Ok(surplus) = i64::try_from(surplus) else {
            return malformed(format!("the extent of dimension {axis} would be {new}"));
        };
        // A deficit is padded at the end, a surplus is cropped from both sides.
        heads.push(surplus.max(0) / 2);
        tails.push(surplus.max(0) - surplus.max(0) / 2);
        more.push((-surplus).max(0));
    }
    heads.append(&mut tails);
    let w = call.emit.transpose(w, &[3, 0, 1, 2])?;
    let x = call.channels_first(x)?;
    let op = Op::ConvTranspose(ConvTranspose {
        strides: window.strides,
        pads: heads,
        output_pads: more,
        dilations: window.dilations,
        groups: 1,
    });
    let mut y = call.emit.push(op, &[x, w])?;
    if let Some(bias) = call.bias_vector(3, false)? {
        y = call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    }
    let y = call.apply_activation(y, activation)?;
    Ok(vec![call.channels_last(y)?])
}

pub(super) fn max_pool(call: &mut Call<'_, '_>) -> Outputs {
    emit_pool(call, PoolMode::Max)
}

pub(super) fn average_pool(call: &mut Call<'_, '_>) -> Outputs {
    emit_pool(call, PoolMode::Average)
}

fn emit_pool(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let window = WindowOptions::parse_window(call, None)?;
    let activation = call.read_activation(5)?;
    let kernel = vec![call.int_option(4, 0)?, call.int_option(3, 0)?];
    let keeps_integers = mode == PoolMode::Max && activation == Activation::None;
    let x = if keeps_integers { call.movable_inputs(&[0])?[0] } else { call.real(0)? };
    let pads = window.same_pads(&spatial_extents(call, x)?, &kernel)?;
    let x = call.channels_first(x)?;
    let WindowOptions { strides, dilations, .. } = window;
    let op = Op::Pool(Pool { mode, kernel, strides, pads, dilations, ceil: false, count_pad: false });
    let y = call.emit.push(op, &[x])?;
    let y = call.apply_activation(y, activation)?;
    Ok(vec![call.channels_last(y)?])
}
