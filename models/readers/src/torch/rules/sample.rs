//! Sampling of images at computed positions: grids, regions and deformable convolutions. The result is the weighted sum
//! over all combinations of the neighbours along each axis.

use super::bags::emit_compare;
use super::{Call, Outputs, numbers_of, own_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, BinaryOp, Clip, CompareOp, Dense, GatherNd, Op, Reduce, ReduceOp, UnaryOp, Where};
use models::types::{DType, TensorType};
use reference::Tensor;

#[derive(Clone, Copy)]
struct Neighbour {
    /// Index of the element, as a whole number in a float; always inside the axis.
    place: ValueId,
    /// Interpolation weight; None for 1.
    weight: Option<ValueId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Edge,
    Reflection,
}

/// Emits the grid of an affine map: `[n, h, w, 2]`, or with a depth axis `[n, d, h, w, 3]`.
pub(super) fn affine_grid(call: &mut Call<'_, '_>) -> Outputs {
    let (theta, size) = (call.tensor_argument("theta")?, call.int_list("size")?);
    let is_aligned = call.flag_argument("align_corners", false)?;
    let emit = &mut *call.emit;
    let Some(rank) = size.len().checked_sub(2).filter(|rank| (2..=3).contains(rank)) else {
        return malformed(format!("{size:?} is not the size of an image"));
    };
    let space = &size[2..];
    if space.iter().any(|&extent| extent < 1) {
        return malformed(format!("{size:?} is not the size of an image"));
    }
    let count = numbers_of(&[space, &[rank as i64 + 1]].concat())? / (rank as i64 + 1);
    let along = |extent: i64, at: i64| -> f64 {
        let extent = extent as f64;
        match (is_aligned, extent > 1.0) {
            (true, true) => 2.0 * at as f64 / (extent - 1.0) - 1.0,
            (true, false) => 0.0,
            (false, _) => (2.0 * at as f64 + 1.0) / extent - 1.0,
        }
    };
    let mut numbers = Vec::new();
    for place in 0..count {
        // Grid coordinates start with the last axis.
        let mut rest = place;
        for &extent in space.iter().rev() {
            numbers.push(along(extent, rest % extent));
            rest /= extent;
        }
        numbers.push(1.0);
    }
    let dtype = emit.dtype(theta)?;
    let ty = TensorType::new(dtype, &[1, count, rank as i64 + 1]);
    let base = emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    let transposed = emit.transpose(theta, &[0, 2, 1])?;
    let grid = emit.mat_mul(base, transposed)?;
    let shape = [&size[..1], space, &[rank as i64]].concat();
    own_output(emit.reshape(grid, &shape)?)
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
    let emit = &mut *call.emit;
    let (extents, places) = (emit.extents(x)?, emit.extents(grid)?);
    let Some(rank) = extents.len().checked_sub(2).filter(|rank| (2..=3).contains(rank)) else {
        return malformed(format!("an image cannot have {} dimensions", extents.len()));
    };
    if places.len() != rank + 2 || places[rank + 1] != rank as i64 || places[0] != extents[0] {
        return malformed(format!("a grid of shape {places:?} does not fit the input shape {extents:?}"));
    }
    let mut axes = Vec::new();
    for (axis, &extent) in extents[2..].iter().enumerate() {
        // Grid coordinates start with the last axis.
        let at = (rank - 1 - axis) as i64;
        let cut = emit.slice(grid, rank + 1, at, at + 1)?;
        let place = denormalise_coords(emit, cut, extent, is_aligned)?;
        let axis = SampledAxis { extent, outside, is_aligned };
        axes.push(match mode {
            0 => axis.linear_neighbours(emit, place)?,
            1 => axis.nearest_neighbour(emit, place)?,
            2 if rank == 2 => axis.cubic_neighbours(emit, place)?,
            other => return unsupported(format!("`interpolation_mode` with the value {other}")),
        });
    }
    let y = blend_neighbours(emit, x, &axes)?;
    let mut order = vec![0, rank + 1];
    order.extend(1..=rank);
    own_output(emit.transpose(y, &order)?)
}

fn denormalise_coords(emit: &mut Emit<'_>, x: ValueId, extent: i64, is_aligned: bool) -> Outcome<ValueId> {
    let extent = extent as f64;
    let x = emit.binary_with(BinaryOp::Add, x, 1.0)?;
    if is_aligned {
        return emit.binary_with(BinaryOp::Mul, x, (extent - 1.0) / 2.0);
    }
    let x = emit.binary_with(BinaryOp::Mul, x, extent)?;
    let x = emit.binary_with(BinaryOp::Sub, x, 1.0)?;
    emit.binary_with(BinaryOp::Div, x, 2.0)
}

#[derive(Clone, Copy)]
struct SampledAxis {
    extent: i64,
    outside: Outside,
    is_aligned: bool,
}

impl SampledAxis {
    /// Moves a position inside the axis, unless elements outside count as zeros.
    fn clamp_inside(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<ValueId> {
        match self.outside {
            Outside::Zeros => Ok(place),
            Outside::Edge => self.clip_position(emit, place),
            Outside::Reflection => {
                let reflected = self.reflect_position(emit, place)?;
                self.clip_position(emit, reflected)
            }
        }
    }

    fn clip_position(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<ValueId> {
        emit.push(Op::Clip(Clip { low: 0.0, high: (self.extent - 1) as f64 }), &[place])
    }

    /// Reflects a position at the centres of the outermost elements if corners are aligned, else at their outer edges.
    fn reflect_position(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<ValueId> {
        let (low, span) = match self.is_aligned {
            true => (0.0, (self.extent - 1) as f64),
            false => (-0.5, self.extent as f64),
        };
        if span == 0.0 {
            return emit.binary_with(BinaryOp::Mul, place, 0.0);
        }
        let from_low = emit.binary_with(BinaryOp::Sub, place, low)?;
        let apart = emit.unary(UnaryOp::Abs, from_low)?;
        // A triangle wave of period `2 · span`.
        let part = emit.binary_with(BinaryOp::Fmod, apart, 2.0 * span)?;
        let down = emit.add_scalar(emit.dtype(place)?, 2.0 * span)?;
        let down = emit.binary(BinaryOp::Sub, down, part)?;
        let wave = emit.binary(BinaryOp::Min, part, down)?;
        emit.binary_with(BinaryOp::Add, wave, low)
    }

    /// Returns the neighbour at an integer position, clamped to the image. Outside, `Zeros` makes its weight zero.
    fn bounded_neighbour(self, emit: &mut Emit<'_>, place: ValueId, weight: Option<ValueId>) -> Outcome<Neighbour> {
        let inside = self.clip_position(emit, place)?;
        if self.outside != Outside::Zeros {
            return Ok(Neighbour { place: inside, weight });
        }
        let is_inside = emit_compare(emit, CompareOp::Equal, inside, place)?;
        let weight = match weight {
            Some(weight) => {
                let zero = emit.add_scalar(emit.dtype(place)?, 0.0)?;
                emit.push(Op::Where(Where {}), &[is_inside, weight, zero])?
            }
            None => emit.cast(is_inside, emit.dtype(place)?)?,
        };
        Ok(Neighbour { place: inside, weight: Some(weight) })
    }

    fn nearest_neighbour(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<Vec<Neighbour>> {
        let place = self.clamp_inside(emit, place)?;
        let whole = emit.unary(UnaryOp::Round, place)?;
        Ok(vec![self.bounded_neighbour(emit, whole, None)?])
    }

    fn linear_neighbours(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<Vec<Neighbour>> {
        let place = self.clamp_inside(emit, place)?;
        let first = emit.unary(UnaryOp::Floor, place)?;
        let second = emit.binary_with(BinaryOp::Add, first, 1.0)?;
        let (to_first, to_second) =
            (emit.binary(BinaryOp::Sub, second, place)?, emit.binary(BinaryOp::Sub, place, first)?);
        Ok(vec![
            self.bounded_neighbour(emit, first, Some(to_first))?,
            self.bounded_neighbour(emit, second, Some(to_second))?,
        ])
    }

    /// Returns the four neighbours of Keys' cubic kernel (coefficient -3/4), each of them bounded separately.
    fn cubic_neighbours(self, emit: &mut Emit<'_>, place: ValueId) -> Outcome<Vec<Neighbour>> {
        const SLOPE: f64 = -0.75;
        let first = emit.unary(UnaryOp::Floor, place)?;
        let part = emit.binary(BinaryOp::Sub, place, first)?;
        let one = emit.add_scalar(emit.dtype(place)?, 1.0)?;
        let rest = emit.binary(BinaryOp::Sub, one, part)?;
        let mut neighbours = Vec::new();
        for (step, distance, is_near) in [(-1.0, part, false), (0.0, part, true), (1.0, rest, true), (2.0, rest, false)]
        {
            let weight = if is_near {
                evaluate_polynomial(emit, distance, &[SLOPE + 2.0, -(SLOPE + 3.0), 0.0, 1.0])?
            } else {
                let distance = emit.binary_with(BinaryOp::Add, distance, 1.0)?;
                evaluate_polynomial(emit, distance, &[SLOPE, -5.0 * SLOPE, 8.0 * SLOPE, -4.0 * SLOPE])?
            };
            let at = emit.binary_with(BinaryOp::Add, first, step)?;
            let at = self.clamp_inside(emit, at)?;
            // Reflection at the edge of an element maps integer positions to integer positions.
            neighbours.push(self.bounded_neighbour(emit, at, Some(weight))?);
        }
        Ok(neighbours)
    }
}

/// Evaluates a polynomial by Horner's scheme; coefficients start with the highest power.
fn evaluate_polynomial(emit: &mut Emit<'_>, x: ValueId, coefficients: &[f64]) -> Outcome<ValueId> {
    let mut y = emit.binary_with(BinaryOp::Mul, x, coefficients[0])?;
    for (index, &coefficient) in coefficients.iter().enumerate().skip(1) {
        if coefficient != 0.0 {
            y = emit.binary_with(BinaryOp::Add, y, coefficient)?;
        }
        if index + 1 < coefficients.len() {
            y = emit.binary(BinaryOp::Mul, y, x)?;
        }
    }
    Ok(y)
}

/// Sums the weighted elements over all combinations of neighbours: `[n, places…, 1]` to `[n, places…, channels]`.
fn blend_neighbours(emit: &mut Emit<'_>, x: ValueId, axes: &[Vec<Neighbour>]) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let count: i64 = extents[2..].iter().product();
    let flat = emit.reshape(x, &[extents[0], extents[1], count])?;
    let rows = emit.transpose(flat, &[0, 2, 1])?;
    // Positions up to 2^24 are exact in 32-bit floats.
    let is_exact = matches!(emit.dtype(axes[0][0].place)?, DType::F32 | DType::F64) && count < 1 << 24;
    let mut combined = vec![Neighbour { place: axes[0][0].place, weight: None }];
    for (index, neighbours) in axes.iter().enumerate() {
        let mut next = Vec::new();
        for before in &combined {
            for neighbour in neighbours {
                let own_place = if is_exact { neighbour.place } else { emit.cast(neighbour.place, DType::I64)? };
                let place = if index == 0 {
                    own_place
                } else {
                    let row = emit.binary_with(BinaryOp::Mul, before.place, extents[index + 2] as f64)?;
                    emit.binary(BinaryOp::Add, row, own_place)?
                };
                let weight = match (before.weight, neighbour.weight) {
                    (Some(a), Some(b)) => Some(emit.binary(BinaryOp::Mul, a, b)?),
                    (a, b) => a.or(b),
                };
                next.push(Neighbour { place, weight });
            }
        }
        combined = next;
    }
    let mut total = None;
    for Neighbour { place, weight } in combined {
        let place = emit.cast(place, DType::I64)?;
        let mut part = emit.push(Op::GatherNd(GatherNd { batch: 1 }), &[rows, place])?;
        if let Some(weight) = weight {
            part = emit.binary(BinaryOp::Mul, part, weight)?;
        }
        total = Some(match total {
            Some(total) => emit.binary(BinaryOp::Add, total, part)?,
            None => part,
        });
    }
    total.map_or_else(|| malformed("an axis has no neighbours"), Ok)
}

pub(super) fn roi_align(call: &mut Call<'_, '_>) -> Outputs {
    let (x, regions) = (call.tensor_argument("input")?, call.tensor_argument("rois")?);
    let pooled = [call.int_argument("pooled_height", 1)?, call.int_argument("pooled_width", 1)?];
    let (scale, samples) = (call.float_argument("spatial_scale", 1.0)?, call.int_argument("sampling_ratio", -1)?);
    let is_aligned = call.flag_argument("aligned", false)?;
    let emit = &mut *call.emit;
    let ([n, c, h, w], [count, 5]) = (&emit.extents(x)?[..], &emit.extents(regions)?[..]) else {
        return malformed("regions must have 5 numbers each, and images 4 dimensions");
    };
    let (n, c, space, count) = (*n, *c, [*h, *w], *count);
    if samples < 1 {
        return unsupported("the number of samples per region depends on data; set `sampling_ratio`");
    }
    if pooled.iter().any(|&parts| !(1..=1 << 10).contains(&parts)) || samples > 64 {
        return unsupported(format!("an output of {pooled:?} with {samples} samples per bin is too large"));
    }
    let mut axes = Vec::new();
    for axis in 0..2 {
        // A region is `image, x1, y1, x2, y2`.
        let mut ends = Vec::new();
        for at in [2 - axis as i64, 4 - axis as i64] {
            let cut = emit.slice(regions, 1, at, at + 1)?;
            let scaled = emit.binary_with(BinaryOp::Mul, cut, scale)?;
            ends.push(if is_aligned { emit.binary_with(BinaryOp::Sub, scaled, 0.5)? } else { scaled });
        }
        let mut size = emit.binary(BinaryOp::Sub, ends[1], ends[0])?;
        if !is_aligned {
            size = emit.binary_with(BinaryOp::Max, size, 1.0)?;
        }
        let size = emit.binary_with(BinaryOp::Div, size, pooled[axis] as f64)?;
        let parts = pooled[axis] * samples;
        let steps: Vec<f64> = (0..parts).map(|part| (part as f64 + 0.5) / samples as f64).collect();
        let steps =
            emit.constant_of(&Tensor::from_numbers(TensorType::new(emit.dtype(regions)?, &[1, parts]), &steps)?)?;
        let along = emit.binary(BinaryOp::Mul, size, steps)?;
        let places = emit.binary(BinaryOp::Add, along, ends[0])?;
        let shape = if axis == 0 { [count, parts, 1, 1] } else { [count, 1, parts, 1] };
        let places = emit.reshape(places, &shape)?;
        axes.push(region_neighbours(emit, places, space[axis])?);
    }
    // The batch becomes one more axis, on which a region's image index is a position without a weight.
    let image = emit.slice(regions, 1, 0, 1)?;
    let image = emit.reshape(image, &[count, 1, 1, 1])?;
    let axes = [vec![vec![Neighbour { place: image, weight: None }]], axes].concat();
    let transposed = emit.transpose(x, &[1, 0, 2, 3])?;
    let all = emit.reshape(transposed, &[1, c, n, space[0], space[1]])?;
    let axes = axes.into_iter().map(|neighbours| add_batch_axis(emit, neighbours)).collect::<Outcome<Vec<_>>>()?;
    let y = blend_neighbours(emit, all, &axes)?;
    let y = emit.reshape(y, &[count, pooled[0], samples, pooled[1], samples, c])?;
    let y = emit.push(Op::Reduce(Reduce { function: ReduceOp::Mean, axes: vec![2, 4], keep: false }), &[y])?;
    own_output(emit.transpose(y, &[0, 3, 1, 2])?)
}

fn add_batch_axis(emit: &mut Emit<'_>, neighbours: Vec<Neighbour>) -> Outcome<Vec<Neighbour>> {
    let mut wider = |id: ValueId| -> Outcome<ValueId> {
        let shape = [vec![1], emit.extents(id)?].concat();
        emit.reshape(id, &shape)
    };
    neighbours
        .into_iter()
        .map(|Neighbour { place, weight }| {
            Ok(Neighbour { place: wider(place)?, weight: weight.map(&mut wider).transpose()? })
        })
        .collect()
}

/// Returns both neighbours of each position, clamped to the axis. Their weight is zero for positions more than one
/// element outside.
fn region_neighbours(emit: &mut Emit<'_>, place: ValueId, extent: i64) -> Outcome<Vec<Neighbour>> {
    let dtype = emit.dtype(place)?;
    let (least, most) = (emit.add_scalar(dtype, -1.0)?, emit.add_scalar(dtype, extent as f64)?);
    let is_above = emit_compare(emit, CompareOp::GreaterOrEqual, place, least)?;
    let is_below = emit_compare(emit, CompareOp::LessOrEqual, place, most)?;
    let is_inside = emit.binary(BinaryOp::And, is_above, is_below)?;
    let is_inside = emit.cast(is_inside, dtype)?;
    let place = emit.push(Op::Clip(Clip { low: 0.0, high: (extent - 1) as f64 }), &[place])?;
    let first = emit.unary(UnaryOp::Floor, place)?;
    let to_second = emit.binary(BinaryOp::Sub, place, first)?;
    let one = emit.add_scalar(dtype, 1.0)?;
    let to_first = emit.binary(BinaryOp::Sub, one, to_second)?;
    let second = emit.binary_with(BinaryOp::Add, first, 1.0)?;
    let second = emit.binary_with(BinaryOp::Min, second, (extent - 1) as f64)?;
    let mut neighbours = Vec::new();
    for (place, weight) in [(first, to_first), (second, to_second)] {
        let weight = emit.binary(BinaryOp::Mul, weight, is_inside)?;
        neighbours.push(Neighbour { place, weight: Some(weight) });
    }
    Ok(neighbours)
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
        axes.push(axis.linear_neighbours(emit, place)?);
    }
    let mut seen = blend_neighbours(emit, x, &axes)?;
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
