//! Import rules of resizing.

use super::pool::{batched_image, rank_of};
use super::{Call, Outputs, numbers_of, push_output};
use crate::onnx::{ResizeAxis, ResizeFilter};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Gather, Op, Resize, ResizeMode};

struct Sides {
    x: ValueId,
    axes: Vec<ResizeAxis>,
    /// Whether each scale equals the output extent divided by the input extent.
    are_quotients: bool,
}

/// Reads output extents and scales. A given scale overrides the ratio of the extents, except with aligned corners.
fn resize_sides(call: &Call<'_, '_>) -> Outcome<Sides> {
    let rank = rank_of(call);
    let (x, before) = batched_image(call, rank)?;
    let before = &before[2..];
    let named: &[&str] = match rank {
        1 => &["scales"],
        2 => &["scales_h", "scales_w"],
        _ => &["scales_d", "scales_h", "scales_w"],
    };
    let scales = match call.arguments.get("scale_factors") {
        Some(super::Argument::Floats(scales)) if scales.len() == rank => scales.iter().copied().map(Some).collect(),
        _ => named.iter().map(|name| call.optional_float(name)).collect::<Outcome<Vec<_>>>()?,
    };
    let mut extents = call.int_list("output_size")?;
    if extents.is_empty() {
        let new = |(&extent, scale): (&i64, &Option<f64>)| Some((extent as f64 * (*scale)?) as i64);
        match before.iter().zip(&scales).map(new).collect() {
            Some(found) => extents = found,
            None => return malformed("both the size and the scales are missing"),
        }
    }
    if extents.len() != rank || extents.iter().any(|&extent| extent < 1) {
        return malformed(format!("the size {extents:?} does not fit {rank} dimensions"));
    }
    let is_aligned = call.flag_argument("align_corners", false)?;
    let mut axes = Vec::new();
    let mut are_quotients = true;
    for ((&old, &new), scale) in before.iter().zip(&extents).zip(scales) {
        let is_quotient = scale.is_none_or(|scale| is_aligned || (new as f64 - old as f64 * scale).abs() < 1e-9);
        are_quotients &= is_quotient;
        let quotient = new as f64 / old as f64;
        let scale = if is_quotient { quotient } else { scale.unwrap_or(quotient) };
        if !(scale.is_finite() && scale > 0.0) {
            return malformed(format!("scale {scale} must be finite and positive"));
        }
        axes.push(ResizeAxis { old, new, scale, region: (0.0, 1.0) });
    }
    Ok(Sides { x, axes, are_quotients })
}

fn emit_resize(call: &mut Call<'_, '_>, mode: ResizeMode) -> Outputs {
    let Sides { x, axes, are_quotients } = resize_sides(call)?;
    if are_quotients {
        let extents = axes.iter().map(|axis| axis.new).collect();
        return push_output(call, Op::Resize(Resize { mode, extents }), &[x]);
    }
    match mode {
        ResizeMode::Nearest => select_elements(call, x, &axes, |new, axis| new * (1.0 / axis.scale) as f32),
        _ => resample_axes(call, "linear", false),
    }
}

/// Emits nearest-neighbour resizing that compares element centres (`nearest-exact`).
pub(super) fn nearest_exact(call: &mut Call<'_, '_>) -> Outputs {
    let Sides { x, axes, .. } = resize_sides(call)?;
    select_elements(call, x, &axes, |new, axis| (new + 0.5) * (1.0 / axis.scale) as f32)
}

/// Selects an input element per output element, at `place` rounded down. `place` computes in 32 bits, as PyTorch does.
fn select_elements(
    call: &mut Call<'_, '_>,
    x: ValueId,
    axes: &[ResizeAxis],
    place: fn(f32, &ResizeAxis) -> f32,
) -> Outputs {
    let mut y = x;
    for (index, axis) in axes.iter().enumerate() {
        numbers_of(&[axis.new])?;
        if axis.old < 1 {
            return unsupported("an empty tensor");
        }
        let at = |new: i64| (place(new as f32, axis).floor() as i64).clamp(0, axis.old - 1);
        let places: Vec<i64> = (0..axis.new).map(at).collect();
        let places = call.emit.add_integers(&places)?;
        y = call.emit.push(Op::Gather(Gather { axis: index as i64 + 2 }), &[y, places])?;
    }
    super::own_output(y)
}

pub(super) fn resample_axes(call: &mut Call<'_, '_>, mode: &str, antialias: bool) -> Outputs {
    let Sides { x, axes, .. } = resize_sides(call)?;
    let rule = if call.flag_argument("align_corners", false)? { "align_corners" } else { "half_pixel" };
    // Antialiased filters use the coefficient of Pillow.
    let cubic = if antialias { -0.5 } else { -0.75 };
    let filter =
        ResizeFilter { mode, rule, nearest: "floor", cubic, excludes_outside: antialias, antialias, outside: 0.0 };
    let mut y = x;
    for (index, axis) in axes.iter().enumerate() {
        if axis.old != axis.new || axis.scale != 1.0 {
            y = filter.resample_axis(call.emit, y, index + 2, axis)?;
        }
    }
    super::own_output(y)
}

pub(super) fn nearest_resize(call: &mut Call<'_, '_>) -> Outputs {
    emit_resize(call, ResizeMode::Nearest)
}

pub(super) fn bilinear_resize(call: &mut Call<'_, '_>) -> Outputs {
    let is_aligned = call.flag_argument("align_corners", false)?;
    emit_resize(call, if is_aligned { ResizeMode::LinearAligned } else { ResizeMode::Linear })
}
