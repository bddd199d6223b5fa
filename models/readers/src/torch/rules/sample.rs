//! Sampling of images at computed positions: grids, regions and deformable convolutions.

use super::{Call, Outputs, own_output};
use crate::sampling::{self, Blend, GridRule, Outside, RegionRule, SampledAxis, blend_neighbours};
use crate::{Outcome, malformed, unsupported};
use models::operators::{BiasAdd, BinaryOp, Dense, Op};

pub(super) fn affine_grid(call: &mut Call<'_, '_>) -> Outputs {
    let (theta, size) = (call.tensor_argument("theta")?, call.int_list("size")?);
    let is_aligned = call.flag_argument("align_corners", false)?;
    own_output(sampling::affine_grid(call.emit, theta, &size, is_aligned)?)
}

pub(super) fn grid_sample(call: &mut Call<'_, '_>) -> Outputs {
    let (x, grid) = (call.tensor_argument("input")?, call.tensor_argument("grid")?);
    let (mode, padding) = (call.int_argument("interpolation_mode", 0)?, call.int_argument("padding_mode", 0)?);
    let is_aligned = call.flag_argument("align_corners", false)?;
    let outside = match padding {
        0 => Outside::Zeros,
        1 => Outside::Edge,
        2 => Outside::Reflection,
        other => return malformed(format!("`padding_mode` has the unknown value {other}")),
    };
    let blend = match mode {
        0 => Blend::Linear,
        1 => Blend::Nearest,
        2 if call.emit.rank(x)? == 4 => Blend::Cubic,
        other => return unsupported(format!("`interpolation_mode` with the value {other}")),
    };
    own_output(sampling::grid_sample(call.emit, x, grid, GridRule { blend, outside, is_aligned })?)
}

pub(super) fn roi_align(call: &mut Call<'_, '_>) -> Outputs {
    let (x, regions) = (call.tensor_argument("input")?, call.tensor_argument("rois")?);
    let rule = RegionRule {
        pooled: [call.int_argument("pooled_height", 1)?, call.int_argument("pooled_width", 1)?],
        samples: call.int_argument("sampling_ratio", -1)?,
        scale: call.float_argument("spatial_scale", 1.0)?,
        is_half_pixel: call.flag_argument("aligned", false)?,
        is_max: false,
    };
    let emit = &mut *call.emit;
    let [_, 5] = emit.extents(regions)?[..] else { return malformed("regions must have 5 numbers each") };
    // A region is `image, x1, y1, x2, y2`.
    let (images, boxes) = (emit.slice(regions, 1, 0, 1)?, emit.slice(regions, 1, 1, 5)?);
    own_output(sampling::pool_regions(emit, x, [boxes, images], &rule)?)
}

/// Emits a deformable convolution: each kernel position is displaced by an offset and scaled by a mask.
pub(super) fn deformed_conv(call: &mut Call<'_, '_>) -> Outputs {
    let (x, w, offset) =
        (call.tensor_argument("input")?, call.tensor_argument("weight")?, call.tensor_argument("offset")?);
    let pair = |names: [&str; 2], default: i64| -> Outcome<[i64; 2]> {
        Ok([call.int_argument(names[0], default)?, call.int_argument(names[1], default)?])
    };
    let (strides, pads) = (pair(["stride_h", "stride_w"], 1)?, pair(["pad_h", "pad_w"], 0)?);
    let dilations = pair(["dilation_h", "dilation_w"], 1)?;
    let (groups, offset_groups) = (call.int_argument("groups", 1)?, call.int_argument("offset_groups", 1)?);
    let mask = if call.flag_argument("use_mask", false)? { Some(call.tensor_argument("mask")?) } else { None };
    let bias = call.optional_tensor("bias")?;
    let emit = &mut *call.emit;
    let ([n, c, h, width], [out, _, kh, kw], [_, _, oh, ow]) =
        (&emit.extents(x)?[..], &emit.extents(w)?[..], &emit.extents(offset)?[..])
    else {
        return malformed("image, weight and offsets must have 4 dimensions");
    };
    if groups != 1 || offset_groups != 1 {
        return unsupported("channel groups");
    }
    let (n, c, space, out, kernel, to) = (*n, *c, [*h, *width], *out, [*kh, *kw], [*oh, *ow]);
    let taps = kernel[0] * kernel[1];
    let dtype = emit.dtype(x)?;
    let moves = emit.reshape(offset, &[n, taps, 2, to[0], to[1]])?;
    let mut axes = Vec::new();
    for axis in 0..2 {
        let tap =
            emit.add_range(dtype, &if axis == 0 { [1, kernel[0], 1, 1, 1, 1] } else { [1, 1, kernel[1], 1, 1, 1] })?;
        let tap = emit.binary_with(BinaryOp::Mul, tap, dilations[axis] as f64)?;
        let place = emit.add_range(dtype, &if axis == 0 { [1, 1, 1, to[0], 1, 1] } else { [1, 1, 1, 1, to[1], 1] })?;
        let place = emit.binary_with(BinaryOp::Mul, place, strides[axis] as f64)?;
        let place = emit.binary_with(BinaryOp::Sub, place, pads[axis] as f64)?;
        let regular = emit.binary(BinaryOp::Add, tap, place)?;
        let own_moves = emit.slice(moves, 2, axis as i64, axis as i64 + 1)?;
        let own_moves = emit.reshape(own_moves, &[n, kernel[0], kernel[1], to[0], to[1], 1])?;
        let place = emit.binary(BinaryOp::Add, own_moves, regular)?;
        let place = emit.reshape(place, &[n, taps, to[0], to[1], 1])?;
        let axis = SampledAxis { extent: space[axis], outside: Outside::Zeros, is_aligned: false };
        axes.push(axis.find_neighbours(emit, place, Blend::Linear)?);
    }
    let mut seen = blend_neighbours(emit, x, &axes, BinaryOp::Add)?;
    if let Some(mask) = mask {
        let mask = emit.reshape(mask, &[n, taps, to[0], to[1], 1])?;
        seen = emit.binary(BinaryOp::Mul, seen, mask)?;
    }
    // `[n, taps, places, channels]` times `[channels · taps, outputs]`.
    let columns = emit.transpose(seen, &[0, 2, 3, 4, 1])?;
    let columns = emit.reshape(columns, &[n, to[0], to[1], c * taps])?;
    let rows = emit.reshape(w, &[out, c * taps])?;
    let mut y = emit.push(Op::Dense(Dense {}), &[columns, rows])?;
    if let Some(bias) = bias {
        y = emit.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias])?;
    }
    own_output(emit.transpose(y, &[0, 3, 1, 2])?)
}
