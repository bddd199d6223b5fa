//! Import rules of pooling and resizing.

use super::{Call, Outputs, numbers_of, push_output};
use crate::onnx::{ResizeAxis, ResizeFilter};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{AdaptivePool, Gather, GlobalPool, Identity, Op, Pool, PoolMode, Resize, ResizeMode};

fn rank_of(call: &Call<'_, '_>) -> usize {
    match call.operator.trim_end_matches("_with_indices").trim_end_matches("_aa").chars().rev().nth(1) {
        Some('1') => 1,
        Some('3') => 3,
        _ => 2,
    }
}

/// Returns the input and its extents `[batch, channels, space…]`; refuses data without a batch dimension.
fn batched_image(call: &Call<'_, '_>, rank: usize) -> Outcome<(ValueId, Vec<i64>)> {
    let x = call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let extents = call.emit.extents(x)?;
    if extents.len() != rank + 2 {
        return unsupported(format!("an input of {} dimensions, without a batch dimension", extents.len()));
    }
    Ok((x, extents))
}

fn emit_pool(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let rank = rank_of(call);
    let (x, extents) = batched_image(call, rank)?;
    let mut kernel = call.spatial_list("kernel_size", rank, 1)?;
    let strides =
        if call.int_list("stride")?.is_empty() { kernel.clone() } else { call.spatial_list("stride", rank, 1)? };
    let pads = call.spatial_list("padding", rank, 0)?;
    if call.has_argument("divisor_override") {
        return unsupported("the argument `divisor_override`");
    }
    if call.flag_argument("ceil_mode", false)? {
        // Clamps a window that is wider than the padded data.
        let widest = extents[2..].iter().zip(&pads).map(|(&extent, &pad)| extent.saturating_add(pad.saturating_mul(2)));
        kernel.iter_mut().zip(widest).for_each(|(kernel, widest)| *kernel = (*kernel).min(widest));
    }
    let op = Op::Pool(Pool {
        mode,
        kernel,
        strides,
        pads: [pads.as_slice(), &pads].concat(),
        dilations: call.spatial_list("dilation", rank, 1)?,
        ceil: call.flag_argument("ceil_mode", false)?,
        count_pad: mode == PoolMode::Average && call.flag_argument("count_include_pad", true)?,
    });
    push_output(call, op, &[x])
}

pub(super) fn max_pool(call: &mut Call<'_, '_>) -> Outputs {
    emit_pool(call, PoolMode::Max)
}

pub(super) fn average_pool(call: &mut Call<'_, '_>) -> Outputs {
    emit_pool(call, PoolMode::Average)
}

fn adaptive_pool(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let rank = rank_of(call);
    let (x, before) = batched_image(call, rank)?;
    let extents = call.spatial_list("output_size", rank, 1)?;
    if extents.iter().all(|&extent| extent == 1) {
        return push_output(call, Op::GlobalPool(GlobalPool { mode }), &[x]);
    }
    if extents == before[2..] {
        return push_output(call, Op::Identity(Identity {}), &[x]);
    }
    push_output(call, Op::AdaptivePool(AdaptivePool { mode, extents }), &[x])
}

pub(super) fn adaptive_average_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive_pool(call, PoolMode::Average)
}

pub(super) fn adaptive_max_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive_pool(call, PoolMode::Max)
}

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
