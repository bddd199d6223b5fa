//! Sampling of images at computed positions: grids and regions.

use crate::onnx::call::Call;
use crate::sampling::{self, Blend, GridRule, Outside, RegionRule};
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

pub(super) fn grid_sample(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let blend = match call.text_attribute("mode").unwrap_or("linear") {
        "nearest" => Blend::NearestFirst,
        "linear" | "bilinear" => Blend::Linear,
        "cubic" | "bicubic" => Blend::Cubic,
        other => return malformed(format!("`mode` has the unknown value `{other}`")),
    };
    let outside = match call.text_attribute("padding_mode").unwrap_or("zeros") {
        "zeros" => Outside::Zeros,
        "border" => Outside::Edge,
        "reflection" => Outside::Reflection,
        other => return malformed(format!("`padding_mode` has the unknown value `{other}`")),
    };
    let rule = GridRule { blend, outside, is_aligned: call.flag_attribute("align_corners") };
    Ok(vec![sampling::grid_sample(emit, call.input(0)?, call.input(1)?, rule)?])
}

/// Emits `AffineGrid`; inputs: `theta[n, rank, rank + 1]` and the output size.
pub(super) fn affine_grid(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let size = emit.require_integers(call.input(1)?, "size")?;
    Ok(vec![sampling::affine_grid(emit, call.input(0)?, &size, call.flag_attribute("align_corners"))?])
}

/// Emits `RoiAlign`; inputs: `x[n, c, h, w], regions[r, 4], images[r]` (batch index of each region).
pub(super) fn roi_align(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, regions, images) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let is_half_pixel = match call.text_attribute("coordinate_transformation_mode") {
        Some("half_pixel") => true,
        Some("output_half_pixel") => false,
        None => call.opset >= 16,
        Some(other) => return malformed(format!("`coordinate_transformation_mode` has the unknown value `{other}`")),
    };
    let is_max = match call.text_attribute("mode").unwrap_or("avg") {
        "avg" => false,
        "max" => true,
        other => return malformed(format!("`mode` has the unknown value `{other}`")),
    };
    let rule = RegionRule {
        pooled: [call.int_attribute("output_height", 1), call.int_attribute("output_width", 1)],
        samples: call.int_attribute("sampling_ratio", 0),
        scale: call.float_attribute("spatial_scale", 1.0),
        is_half_pixel,
        is_max,
    };
    let images = emit.cast(images, DType::I64)?;
    Ok(vec![sampling::pool_regions(emit, x, [regions, images], &rule)?])
}
