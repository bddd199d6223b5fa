//! Pools and changes of resolution.

use super::{Call, Outputs, numbers_of, push};
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

/// `[batch, channels, space…]`; data without a batch is refused, because that is rare.
fn image(call: &Call<'_, '_>, rank: usize) -> Outcome<(ValueId, Vec<i64>)> {
    let x = call.tensor(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let extents = call.emit.extents(x)?;
    if extents.len() != rank + 2 {
        return unsupported(format!("the data has {} dimensions; give it a batch", extents.len()));
    }
    Ok((x, extents))
}

fn pool(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let rank = rank_of(call);
    let (x, extents) = image(call, rank)?;
    let mut kernel = call.spatial("kernel_size", rank, 1)?;
    let strides = if call.ints("stride")?.is_empty() { kernel.clone() } else { call.spatial("stride", rank, 1)? };
    let pads = call.spatial("padding", rank, 0)?;
    if call.has("divisor_override") {
        return unsupported("`divisor_override` is given");
    }
    if call.flag("ceil_mode", false)? {
        // A window that is wider than the data sees all of it.
        let widest = extents[2..].iter().zip(&pads).map(|(&extent, &pad)| extent.saturating_add(pad.saturating_mul(2)));
        kernel.iter_mut().zip(widest).for_each(|(kernel, widest)| *kernel = (*kernel).min(widest));
    }
    let op = Op::Pool(Pool {
        mode,
        kernel,
        strides,
        pads: [pads.as_slice(), &pads].concat(),
        dilations: call.spatial("dilation", rank, 1)?,
        ceil: call.flag("ceil_mode", false)?,
        count_pad: mode == PoolMode::Average && call.flag("count_include_pad", true)?,
    });
    push(call, op, &[x])
}

pub(super) fn max_pool(call: &mut Call<'_, '_>) -> Outputs {
    pool(call, PoolMode::Max)
}

pub(super) fn average_pool(call: &mut Call<'_, '_>) -> Outputs {
    pool(call, PoolMode::Average)
}

fn adaptive(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let rank = rank_of(call);
    let (x, before) = image(call, rank)?;
    let extents = call.spatial("output_size", rank, 1)?;
    if extents.iter().all(|&extent| extent == 1) {
        return push(call, Op::GlobalPool(GlobalPool { mode }), &[x]);
    }
    if extents == before[2..] {
        return push(call, Op::Identity(Identity {}), &[x]);
    }
    push(call, Op::AdaptivePool(AdaptivePool { mode, extents }), &[x])
}

pub(super) fn adaptive_average_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive(call, PoolMode::Average)
}

pub(super) fn adaptive_max_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive(call, PoolMode::Max)
}

/// An image and what becomes of each of its sides.
struct Sides {
    x: ValueId,
    axes: Vec<ResizeAxis>,
    /// Whether each scale is the quotient of its extents.
    are_quotients: bool,
}

/// A given scale counts, not the quotient of the extents, where those differ, unless corners are aligned.
fn sides(call: &Call<'_, '_>) -> Outcome<Sides> {
    let rank = rank_of(call);
    let (x, before) = image(call, rank)?;
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
    let mut extents = call.ints("output_size")?;
    if extents.is_empty() {
        let new = |(&extent, scale): (&i64, &Option<f64>)| Some((extent as f64 * (*scale)?) as i64);
        match before.iter().zip(&scales).map(new).collect() {
            Some(found) => extents = found,
            None => return malformed("it has neither a size nor scales"),
        }
    }
    if extents.len() != rank || extents.iter().any(|&extent| extent < 1) {
        return malformed(format!("a size of {extents:?} does not fit {rank} dimensions"));
    }
    let is_aligned = call.flag("align_corners", false)?;
    let mut axes = Vec::new();
    let mut are_quotients = true;
    for ((&old, &new), scale) in before.iter().zip(&extents).zip(scales) {
        let is_quotient = scale.is_none_or(|scale| is_aligned || (new as f64 - old as f64 * scale).abs() < 1e-9);
        are_quotients &= is_quotient;
        let quotient = new as f64 / old as f64;
        let scale = if is_quotient { quotient } else { scale.unwrap_or(quotient) };
        if !(scale.is_finite() && scale > 0.0) {
            return malformed(format!("{scale} is no scale"));
        }
        axes.push(ResizeAxis { old, new, scale, region: (0.0, 1.0) });
    }
    Ok(Sides { x, axes, are_quotients })
}

fn resize(call: &mut Call<'_, '_>, mode: ResizeMode) -> Outputs {
    let Sides { x, axes, are_quotients } = sides(call)?;
    if are_quotients {
        let extents = axes.iter().map(|axis| axis.new).collect();
        return push(call, Op::Resize(Resize { mode, extents }), &[x]);
    }
    match mode {
        ResizeMode::Nearest => chosen(call, x, &axes, |new, axis| new * (1.0 / axis.scale) as f32),
        _ => resample(call, "linear", false),
    }
}

/// Elements whose centre is the nearest.
pub(super) fn nearest_exact(call: &mut Call<'_, '_>) -> Outputs {
    let Sides { x, axes, .. } = sides(call)?;
    chosen(call, x, &axes, |new, axis| (new + 0.5) * (1.0 / axis.scale) as f32)
}

/// One old element for each new one, at places rounded down. Places are 32-bit floats in PyTorch, too.
fn chosen(call: &mut Call<'_, '_>, x: ValueId, axes: &[ResizeAxis], place: fn(f32, &ResizeAxis) -> f32) -> Outputs {
    let mut y = x;
    for (index, axis) in axes.iter().enumerate() {
        numbers_of(&[axis.new])?;
        if axis.old < 1 {
            return unsupported("it has no elements");
        }
        let at = |new: i64| (place(new as f32, axis).floor() as i64).clamp(0, axis.old - 1);
        let places: Vec<i64> = (0..axis.new).map(at).collect();
        let places = call.emit.integers(&places)?;
        y = call.emit.push(Op::Gather(Gather { axis: index as i64 + 2 }), &[y, places])?;
    }
    super::own(y)
}

/// Blends of old elements with weights that are known before the model runs.
pub(super) fn resample(call: &mut Call<'_, '_>, mode: &str, antialias: bool) -> Outputs {
    let Sides { x, axes, .. } = sides(call)?;
    let rule = if call.flag("align_corners", false)? { "align_corners" } else { "half_pixel" };
    // The filter for images that shrink is the one of Pillow.
    let cubic = if antialias { -0.5 } else { -0.75 };
    let filter =
        ResizeFilter { mode, rule, nearest: "floor", cubic, excludes_outside: antialias, antialias, outside: 0.0 };
    let mut y = x;
    for (index, axis) in axes.iter().enumerate() {
        if axis.old != axis.new || axis.scale != 1.0 {
            y = filter.along(call.emit, y, index + 2, axis)?;
        }
    }
    super::own(y)
}

pub(super) fn nearest(call: &mut Call<'_, '_>) -> Outputs {
    resize(call, ResizeMode::Nearest)
}

pub(super) fn bilinear(call: &mut Call<'_, '_>) -> Outputs {
    let is_aligned = call.flag("align_corners", false)?;
    resize(call, if is_aligned { ResizeMode::LinearAligned } else { ResizeMode::Linear })
}
