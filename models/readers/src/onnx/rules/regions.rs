//! Region pooling: each region of an image is sampled to a fixed size.

use super::grid::clamp_index;
use super::reduce::reduce_over;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, Compare, CompareOp, Gather, Op, ReduceOp, UnaryOp};
use models::types::{DType, TensorType};
use reference::Tensor;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_SAMPLES: i64 = 1 << 16;

/// Samples along one axis: positions of both neighbours of each sample, as floats, with their interpolation weights.
struct SampledAxis {
    places: [ValueId; 2],
    weights: [ValueId; 2],
    count: i64,
}

/// Emits `RoiAlign`; inputs: `x[n, c, h, w], regions[r, 4], images[r]` (batch index of each region).
pub(super) fn roi_align(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, regions, images) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let [n, channels, height, width] = emit.extents(x)?[..] else {
        return malformed("the data must have 4 dimensions");
    };
    let [count, 4] = emit.extents(regions)?[..] else { return malformed("a region must consist of 4 numbers") };
    let ratio = call.int_attribute("sampling_ratio", 0);
    if ratio < 1 {
        return unsupported(
            "the number of samples depends on the regions; export the model with a fixed `sampling_ratio`",
        );
    }
    if n.min(channels).min(height).min(width) < 1 {
        return unsupported("the input has no elements");
    }
    let sizes = [call.int_attribute("output_height", 1), call.int_attribute("output_width", 1)];
    let mut axes = Vec::new();
    for (axis, extent) in [height, width].into_iter().enumerate() {
        let first = 1 - axis as i64;
        let ends = [emit.slice(regions, 1, first, first + 1)?, emit.slice(regions, 1, first + 2, first + 3)?];
        axes.push(sample_axis(emit, call, ends, (extent, sizes[axis], ratio))?);
    }
    let flat = emit.transpose(x, &[0, 2, 3, 1])?;
    let rows = emit.reshape(flat, &[n * height * width, channels])?;
    emit.check_range(images, "batch index", [0, n - 1])?;
    let images = emit.cast(images, DType::I64)?;
    let images = emit.reshape(images, &[count, 1, 1])?;
    let offset = emit.binary_with(BinaryOp::Mul, images, (height * width) as f64)?;
    let is_max = match call.text_attribute("mode").unwrap_or("avg") {
        "avg" => false,
        "max" => true,
        other => return malformed(format!("`mode` has the unknown value `{other}`")),
    };
    let mut blend = None;
    for (down, right) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let term = weighted_corner(emit, rows, offset, [&axes[0], &axes[1]], [down, right], [height, width])?;
        let function = if is_max { BinaryOp::Max } else { BinaryOp::Add };
        blend = Some(match blend {
            Some(blend) => emit.binary(function, blend, term)?,
            None => term,
        });
    }
    let Some(blend) = blend else { return malformed("the number of samples is 0") };
    let cells = emit.reshape(blend, &[count, sizes[0], ratio, sizes[1], ratio, channels])?;
    let function = if is_max { ReduceOp::Max } else { ReduceOp::Mean };
    let pooled = reduce_over(emit, cells, function, vec![2, 4], false)?;
    Ok(vec![emit.transpose(pooled, &[0, 3, 1, 2])?])
}

fn sample_axis(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    ends: [ValueId; 2],
    (extent, size, ratio): (i64, i64, i64),
) -> Outcome<SampledAxis> {
    let half_pixel = match call.text_attribute("coordinate_transformation_mode") {
        Some("half_pixel") => true,
        Some("output_half_pixel") => false,
        None => call.opset >= 16,
        Some(other) => return malformed(format!("`coordinate_transformation_mode` has the unknown value `{other}`")),
    };
    let count = size.checked_mul(ratio).filter(|count| (1..=MAX_SAMPLES).contains(count));
    let Some(count) = count else { return malformed(format!("{size} x {ratio} samples are out of range")) };
    let scale = call.float_attribute("spatial_scale", 1.0);
    let mut scaled = Vec::new();
    for end in ends {
        let end = emit.binary_with(BinaryOp::Mul, end, scale)?;
        scaled.push(if half_pixel { emit.binary_with(BinaryOp::Sub, end, 0.5)? } else { end });
    }
    let mut reach = emit.binary(BinaryOp::Sub, scaled[1], scaled[0])?;
    if !half_pixel {
        reach = emit.binary_with(BinaryOp::Max, reach, 1.0)?;
    }
    let dtype = emit.dtype(reach)?;
    let parts: Vec<f64> = (0..count).map(|index| (index as f64 + 0.5) / count as f64).collect();
    let parts = emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[1, count]), &parts)?)?;
    let steps = emit.binary(BinaryOp::Mul, reach, parts)?;
    let place = emit.binary(BinaryOp::Add, scaled[0], steps)?;
    // Positions up to one element beyond the edge read the edge element.
    let (least, most) = (emit.add_scalar(dtype, -1.0)?, emit.add_scalar(dtype, extent as f64)?);
    let above = emit.push(Op::Compare(Compare { function: CompareOp::GreaterOrEqual }), &[place, least])?;
    let below = emit.push(Op::Compare(Compare { function: CompareOp::LessOrEqual }), &[place, most])?;
    let inside = emit.binary(BinaryOp::And, above, below)?;
    let inside = emit.cast(inside, dtype)?;
    let place = emit.push(Op::Clip(Clip { low: 0.0, high: extent as f64 - 1.0 }), &[place])?;
    let low = emit.unary(UnaryOp::Floor, place)?;
    let high = emit.binary_with(BinaryOp::Add, low, 1.0)?;
    let fraction = emit.binary(BinaryOp::Sub, place, low)?;
    let one = emit.add_scalar(dtype, 1.0)?;
    let rest = emit.binary(BinaryOp::Sub, one, fraction)?;
    let weights = [emit.binary(BinaryOp::Mul, rest, inside)?, emit.binary(BinaryOp::Mul, fraction, inside)?];
    Ok(SampledAxis { places: [low, high], weights, count })
}

/// Returns one of the four neighbours of all samples, times its weight: `[r, samples, samples, c]`.
fn weighted_corner(
    emit: &mut Emit<'_>,
    rows: ValueId,
    offset: ValueId,
    axes: [&SampledAxis; 2],
    sides: [usize; 2],
    [height, width]: [i64; 2],
) -> Outcome<ValueId> {
    let regions = emit.extents(offset)?[0];
    let shapes = [[regions, axes[0].count, 1], [regions, 1, axes[1].count]];
    let y = clamp_index(emit, axes[0].places[sides[0]], height)?;
    let y = emit.reshape(y, &shapes[0])?;
    let x = clamp_index(emit, axes[1].places[sides[1]], width)?;
    let x = emit.reshape(x, &shapes[1])?;
    let y = emit.binary_with(BinaryOp::Mul, y, width as f64)?;
    let at = emit.binary(BinaryOp::Add, y, x)?;
    let at = emit.binary(BinaryOp::Add, at, offset)?;
    let found = emit.push(Op::Gather(Gather { axis: 0 }), &[rows, at])?;
    let down = emit.reshape(axes[0].weights[sides[0]], &[regions, axes[0].count, 1, 1])?;
    let right = emit.reshape(axes[1].weights[sides[1]], &[regions, 1, axes[1].count, 1])?;
    let weight = emit.binary(BinaryOp::Mul, down, right)?;
    emit.binary(BinaryOp::Mul, found, weight)
}
