//! Pools and changes of resolution.

use super::{Call, Outputs, push};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{AdaptivePool, GlobalPool, Identity, Op, Pool, PoolMode, Resize, ResizeMode};

fn rank_of(call: &Call<'_, '_>) -> usize {
    match call.operator.trim_end_matches("_with_indices").chars().rev().nth(1) {
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
    let (x, _) = image(call, rank)?;
    let kernel = call.spatial("kernel_size", rank, 1)?;
    let strides = if call.ints("stride")?.is_empty() { kernel.clone() } else { call.spatial("stride", rank, 1)? };
    let pads = call.spatial("padding", rank, 0)?;
    if call.has("divisor_override") {
        return unsupported("`divisor_override` is given");
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

fn resize(call: &mut Call<'_, '_>, mode: ResizeMode) -> Outputs {
    let rank = rank_of(call);
    let (x, before) = image(call, rank)?;
    let mut extents = call.ints("output_size")?;
    let mut has_own_scales = false;
    if extents.is_empty() {
        let scales = match call.arguments.get("scale_factors") {
            Some(super::Argument::Floats(scales)) if scales.len() == rank => scales.clone(),
            _ => return malformed("it has neither a size nor scales"),
        };
        extents = before[2..].iter().zip(&scales).map(|(&extent, scale)| (extent as f64 * scale) as i64).collect();
        // The given scale counts, not the quotient of the extents, where those differ.
        let agrees = |((old, new), scale): ((&i64, &i64), &f64)| (*new as f64 - *old as f64 * scale).abs() < 1e-9;
        has_own_scales = !before[2..].iter().zip(&extents).zip(&scales).all(agrees);
    }
    if has_own_scales {
        return unsupported("its scales are not the quotients of its sizes");
    }
    if extents.len() != rank || extents.iter().any(|&extent| extent < 1) {
        return malformed(format!("a size of {extents:?} does not fit {rank} dimensions"));
    }
    push(call, Op::Resize(Resize { mode, extents }), &[x])
}

pub(super) fn nearest(call: &mut Call<'_, '_>) -> Outputs {
    resize(call, ResizeMode::Nearest)
}

pub(super) fn bilinear(call: &mut Call<'_, '_>) -> Outputs {
    let is_aligned = call.flag("align_corners", false)?;
    resize(call, if is_aligned { ResizeMode::LinearAligned } else { ResizeMode::Linear })
}
