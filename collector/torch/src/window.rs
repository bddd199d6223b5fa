//! Computes pooling and resampling.

use crate::call::Call;
use crate::contraction::all_pads;
use crate::movement::from_last;
use crate::refusal::{Refusal, Result};
use models::operators::{AdaptivePool, ConvWindow, GlobalPool, Pool, Resize};
use models::{Op, PoolMode, ResizeMode};
use tch::Tensor;

pub fn compute_window(call: &Call<'_>) -> Result<Option<Tensor>> {
    let x = call.first_input();
    match call.op {
        Op::Pool(Pool { mode, ceil, count_pad, .. }) => {
            let window = call.op.window().expect("a pool has a window");
            apply_pooling(x, *mode, &window, *ceil, *count_pad)
        }
        Op::GlobalPool(GlobalPool { mode }) => global_pool(x, *mode),
        Op::AdaptivePool(AdaptivePool { mode, extents }) => adaptive_pool(x, *mode, extents),
        Op::Resize(Resize { mode, extents }) => apply_resize(x, *mode, extents),
        _ => return Ok(None),
    }
    .map(Some)
}

fn apply_pooling(x: &Tensor, mode: PoolMode, window: &ConvWindow<'_>, ceil: bool, count_pad: bool) -> Result<Tensor> {
    let kernel = window.kernel;
    let is_dilated = window.dilations.iter().any(|&dilation| dilation != 1);
    // PyTorch's pools support pads of up to half a window.
    let small = |pads: &&[i64]| pads.iter().zip(kernel).all(|(pad, kernel)| 2 * pad <= *kernel);
    let none = vec![0; kernel.len()];
    let (pads, is_padded_before) = match window.even_pads().filter(small) {
        Some(pads) => (pads, false),
        None => (none.as_slice(), true),
    };
    let padded = |value: f64| -> Result<Tensor> {
        let all = from_last(&all_pads(window));
        Ok(if is_padded_before { x.f_pad(all, "constant", value)? } else { x.shallow_clone() })
    };
    match mode {
        PoolMode::Max => {
            let x = padded(f64::NEG_INFINITY)?;
            let (strides, dilations) = (window.strides, window.dilations);
            Ok(match kernel.len() {
                1 => x.f_max_pool1d(kernel, strides, pads, dilations, ceil)?,
                2 => x.f_max_pool2d(kernel, strides, pads, dilations, ceil)?,
                _ => x.f_max_pool3d(kernel, strides, pads, dilations, ceil)?,
            })
        }
        PoolMode::Average | PoolMode::Lp { .. } if is_dilated => {
            Err(Refusal::unsupported_operator("PyTorch's average pooling does not support dilation"))
        }
        PoolMode::Average if is_padded_before && !count_pad => Err(Refusal::unsupported_operator(
            "PyTorch's average pooling that excludes padding supports only symmetric padding",
        )),
        PoolMode::Average => {
            let x = padded(0.0)?;
            Ok(match kernel.len() {
                1 => x.f_avg_pool1d(kernel, window.strides, pads, ceil, count_pad)?,
                2 => x.f_avg_pool2d(kernel, window.strides, pads, ceil, count_pad, None)?,
                _ => x.f_avg_pool3d(kernel, window.strides, pads, ceil, count_pad, None)?,
            })
        }
        PoolMode::Lp { order } => {
            let powers = padded(0.0)?.f_abs()?.f_pow_tensor_scalar(order)?;
            // Sums are averages with the divisor one. PyTorch has no such option for one dimension,
            // so a second one is added.
            let sums = match kernel.len() {
                1 => powers
                    .f_unsqueeze(2)?
                    .f_avg_pool2d([1, kernel[0]], [1, window.strides[0]], [0, pads[0]], ceil, true, 1)?
                    .f_squeeze_dim(2)?,
                2 => powers.f_avg_pool2d(kernel, window.strides, pads, ceil, true, 1)?,
                _ => powers.f_avg_pool3d(kernel, window.strides, pads, ceil, true, 1)?,
            };
            Ok(sums.f_pow_tensor_scalar(1.0 / order as f64)?)
        }
    }
}

fn global_pool(x: &Tensor, mode: PoolMode) -> Result<Tensor> {
    let axes: Vec<i64> = (2..).take(x.dim().saturating_sub(2)).collect();
    Ok(match mode {
        PoolMode::Average => x.f_mean_dim(axes.as_slice(), true, None)?,
        PoolMode::Max => x.f_amax(&axes, true)?,
        PoolMode::Lp { order } => x.f_norm_scalaropt_dim(order, &axes, true)?,
    })
}

fn adaptive_pool(x: &Tensor, mode: PoolMode, extents: &[i64]) -> Result<Tensor> {
    Ok(match (mode, extents.len()) {
        (PoolMode::Average, 1) => x.f_adaptive_avg_pool1d(extents)?,
        (PoolMode::Average, 2) => x.f_adaptive_avg_pool2d(extents)?,
        (PoolMode::Average, _) => x.f_adaptive_avg_pool3d(extents)?,
        (PoolMode::Max, 1) => x.f_adaptive_max_pool1d(extents)?.0,
        (PoolMode::Max, 2) => x.f_adaptive_max_pool2d(extents)?.0,
        (PoolMode::Max, _) => x.f_adaptive_max_pool3d(extents)?.0,
        (PoolMode::Lp { .. }, _) => return Err(Refusal::unsupported_operator("PyTorch has no adaptive Lp pooling")),
    })
}

fn apply_resize(x: &Tensor, mode: ResizeMode, extents: &[i64]) -> Result<Tensor> {
    let is_aligned = mode == ResizeMode::LinearAligned;
    Ok(match (mode, extents.len()) {
        (ResizeMode::Nearest, 1) => x.f_upsample_nearest1d(extents, None)?,
        (ResizeMode::Nearest, 2) => x.f_upsample_nearest2d(extents, None, None)?,
        (ResizeMode::Nearest, _) => x.f_upsample_nearest3d(extents, None, None, None)?,
        (ResizeMode::Linear | ResizeMode::LinearAligned, 1) => x.f_upsample_linear1d(extents, is_aligned, None)?,
        (ResizeMode::Linear | ResizeMode::LinearAligned, 2) => {
            x.f_upsample_bilinear2d(extents, is_aligned, None, None)?
        }
        (ResizeMode::Linear | ResizeMode::LinearAligned, _) => {
            x.f_upsample_trilinear3d(extents, is_aligned, None, None, None)?
        }
    })
}
