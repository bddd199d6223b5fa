//! Shape rules of operators that slide a window: convolution and pooling.

use super::{Rule, accumulator, known, numeric, same_dtype};
use crate::operator::PoolMode;
use crate::types::{DType, Dim, TensorType};

/// Strides, pads, dilations and kernels beyond this are mistakes; below it their sums and products need no checks.
const MAX_ATTRIBUTE: i64 = 1 << 31;

/// The attributes all of them share.
pub(super) struct Window<'a> {
    pub strides: &'a [i64],
    pub pads: &'a [i64],
    pub dilations: &'a [i64],
    pub groups: i64,
}

pub(super) fn conv(x: &TensorType, w: &TensorType, window: &Window<'_>) -> Rule<TensorType> {
    same_dtype(x, w)?;
    numeric(x)?;
    let rank = spatial_rank(x, window)?;
    if w.rank() != rank + 2 {
        return Err(format!("`w` must have {} dimensions, has {}", rank + 2, w.rank()));
    }
    let channels_in = known(&x.shape[1], "the channel count of `x`")?;
    let channels_out = known(&w.shape[0], "the output channel count of `w`")?;
    let per_group = known(&w.shape[1], "the input channel count of `w`")?;
    let groups = window.groups;
    if groups < 1 || channels_in % groups != 0 || channels_out % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels_in} input and {channels_out} output channels"));
    }
    if channels_in / groups != per_group {
        return Err(format!(
            "`x` has {channels_in} channels in {groups} groups, so `w` must take {}, takes {per_group}",
            channels_in / groups
        ));
    }
    let mut shape = vec![x.shape[0].clone(), Dim::Known(channels_out)];
    for axis in 0..rank {
        let kernel = known(&w.shape[axis + 2], "a kernel extent")?;
        shape.push(Dim::Known(slide(x, axis, kernel, window, false)?));
    }
    Ok(TensorType { dtype: accumulator(x.dtype), shape })
}

pub(super) fn conv_transpose(
    x: &TensorType,
    w: &TensorType,
    output_pads: &[i64],
    window: &Window<'_>,
) -> Rule<TensorType> {
    same_dtype(x, w)?;
    numeric(x)?;
    let rank = spatial_rank(x, window)?;
    if w.rank() != rank + 2 || output_pads.len() != rank {
        return Err(format!(
            "`w` must have {} dimensions and there must be {rank} output pads, got {} and {}",
            rank + 2,
            w.rank(),
            output_pads.len()
        ));
    }
    let channels_in = known(&x.shape[1], "the channel count of `x`")?;
    let taken = known(&w.shape[0], "the input channel count of `w`")?;
    let per_group = known(&w.shape[1], "the output channel count of `w`")?;
    if channels_in != taken {
        return Err(format!("`x` has {channels_in} channels, `w` takes {taken}"));
    }
    if window.groups < 1 || channels_in % window.groups != 0 {
        return Err(format!("{} groups do not divide {channels_in} input channels", window.groups));
    }
    let channels_out = per_group.checked_mul(window.groups);
    let channels_out = channels_out.ok_or("the output channels are more than 64 bits can count")?;
    let mut shape = vec![x.shape[0].clone(), Dim::Known(channels_out)];
    for (axis, &output_pad) in output_pads.iter().enumerate() {
        let extent = known(&x.shape[axis + 2], "a spatial extent of `x`")?;
        let kernel = known(&w.shape[axis + 2], "a kernel extent")?;
        shape.push(Dim::Known(spread(extent, kernel, axis, output_pad, window)?));
    }
    Ok(TensorType { dtype: accumulator(x.dtype), shape })
}

/// The extent of one spatial axis after a transposed convolution.
fn spread(extent: i64, kernel: i64, axis: usize, output_pad: i64, window: &Window<'_>) -> Rule<i64> {
    let (stride, dilation) = (window.strides[axis], window.dilations[axis]);
    if output_pad < 0 || output_pad >= stride.max(dilation) {
        return Err(format!(
            "output pad {output_pad} must not be negative and below stride {stride} or dilation {dilation}"
        ));
    }
    if extent < 1 || kernel < 1 {
        return Err(format!("extent {extent} and kernel extent {kernel} must be at least 1"));
    }
    let wide = |number: i64| i128::from(number);
    let pads = wide(window.pads[axis]) + wide(window.pads[axis + window.strides.len()]);
    let reach = wide(dilation) * (wide(kernel) - 1) + 1;
    let places = (wide(extent) - 1) * wide(stride) + reach + wide(output_pad) - pads;
    let is_possible = |places: &i64| *places > 0;
    i64::try_from(places)
        .ok()
        .filter(is_possible)
        .ok_or_else(|| format!("spatial dimension {axis} would become {places}"))
}

pub(super) fn pool(
    x: &TensorType,
    mode: PoolMode,
    kernel: &[i64],
    window: &Window<'_>,
    ceil: bool,
) -> Rule<TensorType> {
    average_is_floating(x, mode)?;
    let rank = spatial_rank(x, window)?;
    if kernel.len() != rank {
        return Err(format!("the kernel has {} extents, the strides {rank}", kernel.len()));
    }
    let mut shape = x.shape[..2].to_vec();
    for (axis, &extent) in kernel.iter().enumerate() {
        for side in [axis, axis + rank] {
            let pad = window.pads[side];
            // A window of nothing but padding has no maximum.
            if pad >= extent {
                return Err(format!("pad {pad} must be smaller than the kernel extent {extent}"));
            }
        }
        shape.push(Dim::Known(slide(x, axis, extent, window, ceil)?));
    }
    Ok(TensorType { dtype: x.dtype, shape })
}

pub(super) fn global_pool(x: &TensorType, mode: PoolMode) -> Rule<TensorType> {
    numeric(x)?;
    average_is_floating(x, mode)?;
    if x.rank() < 3 {
        return Err(format!("`x` has {} dimensions; batch, channel and at least one more are needed", x.rank()));
    }
    let mut shape = x.shape[..2].to_vec();
    shape.resize(x.rank(), Dim::Known(1));
    Ok(TensorType { dtype: x.dtype, shape })
}

pub(super) fn adaptive_pool(x: &TensorType, mode: PoolMode, extents: &[i64]) -> Rule<TensorType> {
    numeric(x)?;
    average_is_floating(x, mode)?;
    if !(1..=3).contains(&extents.len()) || x.rank() != extents.len() + 2 {
        return Err(format!("{} new extents do not fit {x}, whose first two dimensions stay", extents.len()));
    }
    let mut output = x.clone();
    for (dim, &extent) in output.shape[2..].iter_mut().zip(extents) {
        let old = known(dim, "a spatial extent of `x`")?;
        if !(1..=MAX_ATTRIBUTE).contains(&extent) || !(1..=MAX_ATTRIBUTE).contains(&old) {
            return Err(format!("a dimension of {old} cannot become {extent}; both must be 1 to {MAX_ATTRIBUTE}"));
        }
        *dim = Dim::Known(extent);
    }
    Ok(output)
}

fn average_is_floating(x: &TensorType, mode: PoolMode) -> Rule<()> {
    const MAX_ORDER: i64 = 16;
    match mode {
        PoolMode::Average if !x.dtype.is_float() => Err(format!("an average needs a floating type, not {}", x.dtype)),
        PoolMode::Lp { .. } if !x.dtype.is_float() => Err(format!("a norm needs a floating type, not {}", x.dtype)),
        PoolMode::Lp { order } if !(1..=MAX_ORDER).contains(&order) => {
            Err(format!("the order {order} must be 1 to {MAX_ORDER}"))
        }
        PoolMode::Average | PoolMode::Max | PoolMode::Lp { .. } if x.dtype == DType::Bool => {
            Err("needs numbers, not bool".to_owned())
        }
        PoolMode::Average | PoolMode::Max | PoolMode::Lp { .. } => Ok(()),
    }
}

/// The number of spatial dimensions, once the attributes and `x` agree on it.
fn spatial_rank(x: &TensorType, window: &Window<'_>) -> Rule<usize> {
    let rank = window.strides.len();
    if !(1..=3).contains(&rank) {
        return Err(format!("there are {rank} strides; 1 to 3 spatial dimensions are possible"));
    }
    if window.pads.len() != 2 * rank || window.dilations.len() != rank {
        return Err(format!(
            "{rank} strides need {} pads and {rank} dilations, got {} and {}",
            2 * rank,
            window.pads.len(),
            window.dilations.len()
        ));
    }
    if x.rank() != rank + 2 {
        return Err(format!("`x` must have {} dimensions for {rank} strides, has {}", rank + 2, x.rank()));
    }
    let bounds = [("stride", window.strides, 1), ("dilation", window.dilations, 1), ("pad", window.pads, 0)];
    for (name, values, low) in bounds {
        if let Some(value) = values.iter().find(|value| !(low..=MAX_ATTRIBUTE).contains(*value)) {
            return Err(format!("{name} {value} must be at least {low} and at most {MAX_ATTRIBUTE}"));
        }
    }
    Ok(rank)
}

/// How many places a window has along one spatial axis.
fn slide(x: &TensorType, axis: usize, kernel: i64, window: &Window<'_>, ceil: bool) -> Rule<i64> {
    if !(1..=MAX_ATTRIBUTE).contains(&kernel) {
        return Err(format!("kernel extent {kernel} must be at least 1 and at most {MAX_ATTRIBUTE}"));
    }
    let extent = i128::from(known(&x.shape[axis + 2], "a spatial extent of `x`")?);
    let stride = i128::from(window.strides[axis]);
    let head = i128::from(window.pads[axis]);
    let tail = i128::from(window.pads[axis + window.strides.len()]);
    let reach = i128::from(window.dilations[axis]) * (i128::from(kernel) - 1) + 1;
    let room = extent + head + tail - reach;
    if room < 0 {
        return Err(format!(
            "a window of {reach} does not fit into {extent} + {head} + {tail} elements of spatial dimension {axis}"
        ));
    }
    let mut places = room / stride + 1;
    // With `ceil` a last, partial window counts if it starts inside the data or its leading pad.
    if ceil && room % stride != 0 && places * stride < extent + head {
        places += 1;
    }
    i64::try_from(places).map_err(|_| format!("{places} window places are more than 64 bits can count"))
}
