//! Sampling of tensors at computed positions (`GridSample`), and generation of the sampling grids (`AffineGrid`).

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, Compare, CompareOp, GatherNd, MatMul, Op, UnaryOp};
use models::types::{DType, TensorType};
use reference::Tensor;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_PLACES: i64 = 1 << 22;

#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy, PartialEq)]
enum Blend {
    Nearest,
    Linear,
    Cubic,
}

/// A neighbour of a sampled position along one axis: its index and its weight (1 if None).
struct Tap {
    place: ValueId,
    weight: Option<ValueId>,
}

/// Samples `x[n, c, s…]` at `grid[n, places…, rank]`, whose last dimension starts with the innermost axis.
pub(super) fn grid_sample(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, grid) = (call.input(0)?, call.input(1)?);
    let (extents, places) = (emit.extents(x)?, emit.extents(grid)?);
    let rank = extents.len().saturating_sub(2);
    if !(1..=3).contains(&rank) || places.len() != rank + 2 || places[rank + 1] != rank as i64 {
        return malformed(format!("the shapes of data {} and grid {} do not fit", emit.ty(x)?, emit.ty(grid)?));
    }
    if extents.contains(&0) {
        return unsupported("the input has no elements");
    }
    let blend = match call.text_attribute("mode").unwrap_or("linear") {
        "nearest" => Blend::Nearest,
        "linear" | "bilinear" => Blend::Linear,
        "cubic" | "bicubic" => Blend::Cubic,
        other => return malformed(format!("`mode` has the unknown value `{other}`")),
    };
    let beyond = match call.text_attribute("padding_mode").unwrap_or("zeros") {
        "zeros" => Beyond::Zeros,
        "border" => Beyond::Border,
        "reflection" => Beyond::Reflection,
        other => return malformed(format!("`padding_mode` has the unknown value `{other}`")),
    };
    let is_aligned = call.flag_attribute("align_corners");
    let count: i64 = places[1..=rank].iter().product();
    let mut axes = Vec::new();
    for axis in 0..rank {
        let last = (rank - 1 - axis) as i64;
        let own = emit.slice(grid, rank + 1, last, last + 1)?;
        let own = emit.reshape(own, &[places[0], count])?;
        let own = denormalise_coords(emit, own, extents[axis + 2], is_aligned)?;
        axes.push(axis_taps(emit, own, extents[axis + 2], blend, (beyond, is_aligned))?);
    }
    let y = blend_taps(emit, x, &axes)?;
    let order: Vec<usize> = [0, 2, 1].to_vec();
    let y = emit.transpose(y, &order)?;
    let shape: Vec<i64> = [places[0], extents[1]].into_iter().chain(places[1..=rank].iter().copied()).collect();
    Ok(vec![emit.reshape(y, &shape)?])
}

fn denormalise_coords(emit: &mut Emit<'_>, x: ValueId, extent: i64, is_aligned: bool) -> Outcome<ValueId> {
    let extent = extent as f64;
    let x = emit.binary_with(BinaryOp::Add, x, 1.0)?;
    if is_aligned {
        return emit.binary_with(BinaryOp::Mul, x, (extent - 1.0) / 2.0);
    }
    let x = emit.binary_with(BinaryOp::Mul, x, extent / 2.0)?;
    emit.binary_with(BinaryOp::Sub, x, 0.5)
}

fn axis_taps(
    emit: &mut Emit<'_>,
    x: ValueId,
    extent: i64,
    blend: Blend,
    (beyond, is_aligned): (Beyond, bool),
) -> Outcome<Vec<Tap>> {
    let base = emit.unary(if blend == Blend::Nearest { UnaryOp::Round } else { UnaryOp::Floor }, x)?;
    let fraction = emit.binary(BinaryOp::Sub, x, base)?;
    let neighbours: Vec<(f64, Option<ValueId>)> = match blend {
        Blend::Nearest => vec![(0.0, None)],
        Blend::Linear => {
            let one = emit.add_scalar(emit.dtype(x)?, 1.0)?;
            vec![(0.0, Some(emit.binary(BinaryOp::Sub, one, fraction)?)), (1.0, Some(fraction))]
        }
        Blend::Cubic => [-1.0, 0.0, 1.0, 2.0]
            .into_iter()
            .map(|shift| Ok((shift, Some(cubic_weight(emit, fraction, shift)?))))
            .collect::<Outcome<_>>()?,
    };
    let mut taps = Vec::new();
    for (shift, mut weight) in neighbours {
        let mut place = if shift == 0.0 { base } else { emit.binary_with(BinaryOp::Add, base, shift)? };
        match beyond {
            Beyond::Zeros => {
                let inside = inside_mask(emit, place, extent)?;
                weight = Some(match weight {
                    Some(weight) => emit.binary(BinaryOp::Mul, weight, inside)?,
                    None => inside,
                });
            }
            Beyond::Border => {}
            Beyond::Reflection => place = reflect_position(emit, place, extent, is_aligned)?,
        }
        taps.push(Tap { place: clamp_index(emit, place, extent)?, weight });
    }
    Ok(taps)
}

/// Emits the weight of Keys' cubic kernel (coefficient -0.75) for the neighbour at `shift` from the base element.
fn cubic_weight(emit: &mut Emit<'_>, fraction: ValueId, shift: f64) -> Outcome<ValueId> {
    const A: f64 = -0.75;
    let negative = emit.unary(UnaryOp::Neg, fraction)?;
    let distance = emit.binary_with(BinaryOp::Add, negative, shift)?;
    let distance = emit.unary(UnaryOp::Abs, distance)?;
    // Near: (a + 2) d³ - (a + 3) d² + 1. Far: a d³ - 5 a d² + 8 a d - 4 a.
    let coefficients =
        if (0.0..=1.0).contains(&shift) { [A + 2.0, -(A + 3.0), 0.0, 1.0] } else { [A, -5.0 * A, 8.0 * A, -4.0 * A] };
    let mut sum = emit.binary_with(BinaryOp::Mul, distance, coefficients[0])?;
    for (index, coefficient) in coefficients[1..].iter().enumerate() {
        if *coefficient != 0.0 {
            sum = emit.binary_with(BinaryOp::Add, sum, *coefficient)?;
        }
        if index < 2 {
            sum = emit.binary(BinaryOp::Mul, sum, distance)?;
        }
    }
    Ok(sum)
}

fn inside_mask(emit: &mut Emit<'_>, place: ValueId, extent: i64) -> Outcome<ValueId> {
    let dtype = emit.dtype(place)?;
    let (first, last) = (emit.add_scalar(dtype, 0.0)?, emit.add_scalar(dtype, extent as f64 - 1.0)?);
    let above = emit.push(Op::Compare(Compare { function: CompareOp::GreaterOrEqual }), &[place, first])?;
    let below = emit.push(Op::Compare(Compare { function: CompareOp::LessOrEqual }), &[place, last])?;
    let both = emit.binary(BinaryOp::And, above, below)?;
    emit.cast(both, dtype)
}

fn reflect_position(emit: &mut Emit<'_>, place: ValueId, extent: i64, is_aligned: bool) -> Outcome<ValueId> {
    let (low, range) = if is_aligned { (0.0, extent as f64 - 1.0) } else { (-0.5, extent as f64) };
    if range == 0.0 {
        return emit.binary_with(BinaryOp::Mul, place, 0.0);
    }
    let from_low = emit.binary_with(BinaryOp::Sub, place, low)?;
    let distance = emit.unary(UnaryOp::Abs, from_low)?;
    // A triangle wave of period `2 · range`.
    let round = emit.binary_with(BinaryOp::Fmod, distance, 2.0 * range)?;
    let back = emit.binary_with(BinaryOp::Sub, round, range)?;
    let back = emit.unary(UnaryOp::Abs, back)?;
    let back = emit.unary(UnaryOp::Neg, back)?;
    emit.binary_with(BinaryOp::Add, back, range + low)
}

pub(super) fn clamp_index(emit: &mut Emit<'_>, place: ValueId, extent: i64) -> Outcome<ValueId> {
    let bounded = emit.push(Op::Clip(Clip { low: 0.0, high: extent as f64 - 1.0 }), &[place])?;
    emit.cast(bounded, DType::I64)
}

/// Samples `x[n, c, s…]`; the result is `[n, places, c]`. Sums all combinations of taps along the axes, weighted.
fn blend_taps(emit: &mut Emit<'_>, x: ValueId, axes: &[Vec<Tap>]) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let (spatial, area) = (&extents[2..], extents[2..].iter().product());
    let flat = emit.reshape(x, &[extents[0], extents[1], area])?;
    let rows = emit.transpose(flat, &[0, 2, 1])?;
    let mut sum = None;
    for combination in 0..axes.iter().map(Vec::len).product::<usize>() {
        let (mut rest, mut at, mut weight) = (combination, None, None);
        for (taps, &extent) in axes.iter().zip(spatial) {
            let tap = &taps[rest % taps.len()];
            rest /= taps.len();
            at = Some(match at {
                None => tap.place,
                Some(at) => {
                    let scaled = emit.binary_with(BinaryOp::Mul, at, extent as f64)?;
                    emit.binary(BinaryOp::Add, scaled, tap.place)?
                }
            });
            weight = match (weight, tap.weight) {
                (Some(a), Some(b)) => Some(emit.binary(BinaryOp::Mul, a, b)?),
                (a, b) => a.or(b),
            };
        }
        let Some(at) = at else { return malformed("the input has no spatial axes") };
        let [n, count] = emit.extents(at)?[..] else { return malformed("positions must have 2 dimensions") };
        let at = emit.reshape(at, &[n, count, 1])?;
        let mut term = emit.push(Op::GatherNd(GatherNd { batch: 1 }), &[rows, at])?;
        if let Some(weight) = weight {
            let weight = emit.reshape(weight, &[n, count, 1])?;
            let weight = emit.cast(weight, emit.dtype(term)?)?;
            term = emit.binary(BinaryOp::Mul, term, weight)?;
        }
        sum = Some(match sum {
            Some(sum) => emit.binary(BinaryOp::Add, sum, term)?,
            None => term,
        });
    }
    sum.map_or_else(|| malformed("the grid has no points"), Ok)
}

/// Emits the sampling grid of an affine map. Inputs: `theta[n, rank, rank + 1]` and the output size.
pub(super) fn affine_grid(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let theta = call.input(0)?;
    let size = emit.require_integers(call.input(1)?, "size")?;
    let spatial = size.get(2..).unwrap_or_default();
    let rank = spatial.len();
    let count = spatial.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent));
    let Some(count) = count.filter(|count| (1..=MAX_PLACES).contains(count)) else {
        return malformed(format!("the grid {spatial:?} has no points or more than {MAX_PLACES}"));
    };
    if !(2..=3).contains(&rank) || spatial.iter().any(|&extent| extent < 1) {
        return malformed(format!("`size` has the invalid value {size:?}"));
    }
    let is_aligned = call.flag_attribute("align_corners");
    let coordinate = |index: i64, extent: i64| match (is_aligned, extent) {
        (true, 1) => 0.0,
        (true, _) => -1.0 + 2.0 * index as f64 / (extent - 1) as f64,
        (false, _) => (2 * index + 1) as f64 / extent as f64 - 1.0,
    };
    let mut numbers = Vec::with_capacity(count as usize * (rank + 1));
    for place in 0..count {
        let mut rest = place;
        // Coordinates start with the innermost axis.
        for &extent in spatial.iter().rev() {
            numbers.push(coordinate(rest % extent, extent));
            rest /= extent;
        }
        numbers.push(1.0);
    }
    let ty = TensorType::new(emit.dtype(theta)?, &[count, rank as i64 + 1]);
    let base = emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    let grid = emit.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[base, theta])?;
    let shape: Vec<i64> = [size[0]].into_iter().chain(spatial.iter().copied()).chain([rank as i64]).collect();
    Ok(vec![emit.reshape(grid, &shape)?])
}
