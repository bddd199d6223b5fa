//! Sampling of images at computed positions: grids, and regions. The result is the weighted sum over all combinations of
//! the neighbours along each axis.

use super::emit::Emit;
use super::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, GatherNd, MatMul, Op, Reduce, ReduceOp, UnaryOp, Where};
use models::types::{DType, TensorType};
use reference::Tensor;

/// Maximum number of positions of a generated grid.
const MAX_PLACES: i64 = 1 << 22;
/// Maximum number of samples of a region along an axis.
const MAX_SAMPLES: i64 = 1 << 16;

/// An element from which a sample is interpolated, along one axis.
#[derive(Clone, Copy)]
pub(crate) struct Neighbour {
    /// Index of the element, as a whole number in a float; always inside the axis.
    place: ValueId,
    /// Interpolation weight; None for 1.
    weight: Option<ValueId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Zeros,
    Edge,
    Reflection,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blend {
    Nearest,
    /// Nearest, rounded before positions outside are reflected; the other order differs halfway between elements.
    NearestFirst,
    Linear,
    Cubic,
}

/// How an image is sampled at a grid of relative positions.
#[derive(Clone, Copy)]
pub(crate) struct GridRule {
    pub blend: Blend,
    pub outside: Outside,
    pub is_aligned: bool,
}

/// How regions of an image are sampled to a fixed size.
pub(crate) struct RegionRule {
    pub pooled: [i64; 2],
    pub samples: i64,
    pub scale: f64,
    /// Whether positions are those of the elements' centres; otherwise regions are at least one element large.
    pub is_half_pixel: bool,
    pub is_max: bool,
}

/// Emits the sampling grid of an affine map: `theta[n, rank, rank + 1]` to `[n, places…, rank]`.
pub(crate) fn affine_grid(emit: &mut Emit<'_>, theta: ValueId, size: &[i64], is_aligned: bool) -> Outcome<ValueId> {
    let spatial = size.get(2..).unwrap_or_default();
    let rank = spatial.len();
    if !(2..=3).contains(&rank) || spatial.iter().any(|&extent| extent < 1) {
        return malformed(format!("{size:?} is not the size of an image"));
    }
    let count = spatial.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
    let Some(count) = count.filter(|count| *count <= MAX_PLACES) else {
        return malformed(format!("the grid {spatial:?} has more than {MAX_PLACES} positions"));
    };
    let coordinate = |index: i64, extent: i64| match (is_aligned, extent) {
        (true, 1) => 0.0,
        (true, _) => -1.0 + 2.0 * index as f64 / (extent - 1) as f64,
        (false, _) => (2 * index + 1) as f64 / extent as f64 - 1.0,
    };
    let mut numbers = Vec::with_capacity(count as usize * (rank + 1));
    for place in 0..count {
        let mut rest = place;
        // Grid coordinates start with the last axis.
        for &extent in spatial.iter().rev() {
            numbers.push(coordinate(rest % extent, extent));
            rest /= extent;
        }
        numbers.push(1.0);
    }
    let ty = TensorType::new(emit.dtype(theta)?, &[count, rank as i64 + 1]);
    let base = emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    let grid = emit.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[base, theta])?;
    emit.reshape(grid, &[&size[..1], spatial, &[rank as i64]].concat())
}

/// Samples `x[n, c, s…]` at `grid[n, places…, rank]`, whose last dimension starts with the last axis.
pub(crate) fn grid_sample(emit: &mut Emit<'_>, x: ValueId, grid: ValueId, rule: GridRule) -> Outcome<ValueId> {
    let (extents, places) = (emit.extents(x)?, emit.extents(grid)?);
    let rank = extents.len().saturating_sub(2);
    let is_fitting = (1..=3).contains(&rank) && places.len() == rank + 2 && places[rank + 1] == rank as i64;
    if !is_fitting || places[0] != extents[0] {
        return malformed(format!("a grid of shape {places:?} does not fit the input shape {extents:?}"));
    }
    if extents.contains(&0) {
        return unsupported("the input has no elements");
    }
    let mut axes = Vec::new();
    for (axis, &extent) in extents[2..].iter().enumerate() {
        let at = (rank - 1 - axis) as i64;
        let cut = emit.slice(grid, rank + 1, at, at + 1)?;
        let place = denormalise_coords(emit, cut, extent, rule.is_aligned)?;
        let axis = SampledAxis { extent, outside: rule.outside, is_aligned: rule.is_aligned };
        axes.push(axis.find_neighbours(emit, place, rule.blend)?);
    }
    let y = blend_neighbours(emit, x, &axes, BinaryOp::Add)?;
    let mut order = vec![0, rank + 1];
    order.extend(1..=rank);
    emit.transpose(y, &order)
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
pub(crate) struct SampledAxis {
    pub extent: i64,
    pub outside: Outside,
    pub is_aligned: bool,
}

impl SampledAxis {
    pub fn find_neighbours(self, emit: &mut Emit<'_>, place: ValueId, blend: Blend) -> Outcome<Vec<Neighbour>> {
        match blend {
            Blend::Nearest => {
                let place = self.clamp_inside(emit, place)?;
                let whole = emit.unary(UnaryOp::Round, place)?;
                Ok(vec![self.bounded_neighbour(emit, whole, None)?])
            }
            Blend::NearestFirst => {
                let whole = emit.unary(UnaryOp::Round, place)?;
                let whole = self.clamp_inside(emit, whole)?;
                Ok(vec![self.bounded_neighbour(emit, whole, None)?])
            }
            Blend::Linear => self.linear_neighbours(emit, place),
            Blend::Cubic => self.cubic_neighbours(emit, place),
        }
    }

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
        let is_inside = emit.compare(CompareOp::Equal, inside, place)?;
        let weight = match weight {
            Some(weight) => {
                let zero = emit.add_scalar(emit.dtype(place)?, 0.0)?;
                emit.push(Op::Where(Where {}), &[is_inside, weight, zero])?
            }
            None => emit.cast(is_inside, emit.dtype(place)?)?,
        };
        Ok(Neighbour { place: inside, weight: Some(weight) })
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

/// Combines (sum or maximum) the weighted elements over all combinations of neighbours: positions `[n, places…, 1]` to
/// `[n, places…, channels]`.
pub(crate) fn blend_neighbours(
    emit: &mut Emit<'_>,
    x: ValueId,
    axes: &[Vec<Neighbour>],
    function: BinaryOp,
) -> Outcome<ValueId> {
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
            let weight = emit.cast(weight, emit.dtype(part)?)?;
            part = emit.binary(BinaryOp::Mul, part, weight)?;
        }
        total = Some(match total {
            Some(total) => emit.binary(function, total, part)?,
            None => part,
        });
    }
    total.map_or_else(|| malformed("an axis has no neighbours"), Ok)
}

/// Samples regions of `x[n, c, h, w]`: `boxes[r, 4]` (x1, y1, x2, y2) of the images `images[r]` to `[r, c, pooled…]`.
pub(crate) fn pool_regions(
    emit: &mut Emit<'_>,
    x: ValueId,
    [boxes, images]: [ValueId; 2],
    rule: &RegionRule,
) -> Outcome<ValueId> {
    let ([n, c, h, w], [count, 4]) = (&emit.extents(x)?[..], &emit.extents(boxes)?[..]) else {
        return malformed("regions must have 4 numbers each, and images 4 dimensions");
    };
    let (n, c, space, count, samples) = (*n, *c, [*h, *w], *count, rule.samples);
    if samples < 1 {
        return unsupported(
            "the number of samples depends on the regions; export the model with a fixed `sampling_ratio`",
        );
    }
    if n.min(c).min(space[0]).min(space[1]) < 1 {
        return unsupported("the input has no elements");
    }
    emit.check_range(images, "batch index", [0, n - 1])?;
    // The batch becomes one more axis, on which a region's image index is a position without a weight.
    let image = emit.reshape(images, &[1, count, 1, 1, 1])?;
    let mut axes = vec![vec![Neighbour { place: image, weight: None }]];
    for (axis, &extent) in space.iter().enumerate() {
        let places = sample_positions(emit, boxes, rule, axis)?;
        axes.push(region_neighbours(emit, places, extent)?);
    }
    let transposed = emit.transpose(x, &[1, 0, 2, 3])?;
    let all = emit.reshape(transposed, &[1, c, n, space[0], space[1]])?;
    let y = blend_neighbours(emit, all, &axes, if rule.is_max { BinaryOp::Max } else { BinaryOp::Add })?;
    let y = emit.reshape(y, &[count, rule.pooled[0], samples, rule.pooled[1], samples, c])?;
    let function = if rule.is_max { ReduceOp::Max } else { ReduceOp::Mean };
    let y = emit.push(Op::Reduce(Reduce { function, axes: vec![2, 4], keep: false }), &[y])?;
    emit.transpose(y, &[0, 3, 1, 2])
}

/// Emits the positions of all samples along an axis: `[1, r, samples, 1, 1]`, or `[1, r, 1, samples, 1]` for the last.
fn sample_positions(emit: &mut Emit<'_>, boxes: ValueId, rule: &RegionRule, axis: usize) -> Outcome<ValueId> {
    let (pooled, samples) = (rule.pooled[axis], rule.samples);
    let parts = pooled.checked_mul(samples).filter(|parts| (1..=MAX_SAMPLES).contains(parts));
    let Some(parts) = parts else { return malformed(format!("{pooled} x {samples} samples are out of range")) };
    let mut ends = Vec::new();
    for at in [1 - axis as i64, 3 - axis as i64] {
        let cut = emit.slice(boxes, 1, at, at + 1)?;
        let scaled = emit.binary_with(BinaryOp::Mul, cut, rule.scale)?;
        ends.push(if rule.is_half_pixel { emit.binary_with(BinaryOp::Sub, scaled, 0.5)? } else { scaled });
    }
    let mut size = emit.binary(BinaryOp::Sub, ends[1], ends[0])?;
    if !rule.is_half_pixel {
        size = emit.binary_with(BinaryOp::Max, size, 1.0)?;
    }
    let size = emit.binary_with(BinaryOp::Div, size, pooled as f64)?;
    let steps: Vec<f64> = (0..parts).map(|part| (part as f64 + 0.5) / samples as f64).collect();
    let ty = TensorType::new(emit.dtype(boxes)?, &[1, parts]);
    let steps = emit.constant_of(&Tensor::from_numbers(ty, &steps)?)?;
    let along = emit.binary(BinaryOp::Mul, size, steps)?;
    let places = emit.binary(BinaryOp::Add, along, ends[0])?;
    let count = emit.extents(boxes)?[0];
    emit.reshape(places, &if axis == 0 { [1, count, parts, 1, 1] } else { [1, count, 1, parts, 1] })
}

/// Returns both neighbours of each position, clamped to the axis. Their weight is zero for positions more than one
/// element outside.
fn region_neighbours(emit: &mut Emit<'_>, place: ValueId, extent: i64) -> Outcome<Vec<Neighbour>> {
    let dtype = emit.dtype(place)?;
    let (least, most) = (emit.add_scalar(dtype, -1.0)?, emit.add_scalar(dtype, extent as f64)?);
    let is_above = emit.compare(CompareOp::GreaterOrEqual, place, least)?;
    let is_below = emit.compare(CompareOp::LessOrEqual, place, most)?;
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
