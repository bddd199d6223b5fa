//! Small YOLO detectors, without non-maximum suppression.

use super::net::{ConvLayer, Net, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::{Op, Pool, PoolMode, Resize, ResizeMode, Unary, UnaryOp};

/// Output channels: three boxes per cell, each with four coordinates, a confidence and 80 classes.
const OUTPUTS: i64 = 3 * (4 + 1 + 80);

pub(super) fn version_3_tiny(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let mut x = x;
    for (index, channels) in [16, 32, 64, 128].into_iter().enumerate() {
        x = leaky_layer(net, &format!("layers.{}", 2 * index), x, channels, 3)?;
        x = net.max_pool(&format!("layers.{}", 2 * index + 1), x, 2, 2, 0)?;
    }
    let fine = leaky_layer(net, "layers.8", x, 256, 3)?;
    let x = net.max_pool("layers.9", fine, 2, 2, 0)?;
    let x = leaky_layer(net, "layers.10", x, 512, 3)?;
    // Stride 1 with padding only at the end keeps the extents.
    let pool = Op::Pool(Pool {
        mode: PoolMode::Max,
        kernel: vec![2; 2],
        strides: vec![1; 2],
        pads: vec![0, 0, 1, 1],
        dilations: vec![1; 2],
        ceil: false,
        count_pad: false,
    });
    let x = net.push_op("layers.11", pool, &[x])?;
    let x = leaky_layer(net, "layers.12", x, 1024, 3)?;
    let coarse = leaky_layer(net, "layers.13", x, 256, 1)?;
    let y = leaky_layer(net, "layers.14", coarse, 512, 3)?;
    let large_boxes = net.conv("layers.15", y, &same_conv(OUTPUTS, 1).with_bias())?;
    let x = leaky_layer(net, "layers.18", coarse, 128, 1)?;
    let extents = net.extents(fine)?[2..].to_vec();
    let x = net.push_op("layers.19", Op::Resize(Resize { mode: ResizeMode::Nearest, extents }), &[x])?;
    let x = net.concat("layers.20", &[x, fine])?;
    let x = leaky_layer(net, "layers.21", x, 256, 3)?;
    let small_boxes = net.conv("layers.22", x, &same_conv(OUTPUTS, 1).with_bias())?;
    Ok(vec![large_boxes, small_boxes])
}

fn leaky_layer(net: &mut Net, scope: &str, x: ValueId, channels: i64, kernel: i64) -> Result<ValueId> {
    let leaky = Op::Unary(Unary { function: UnaryOp::LeakyRelu { alpha: 0.1 } });
    net.conv_norm_act(scope, x, &same_conv(channels, kernel), 1e-5, &leaky)
}

const CLASSES: i64 = 80;
const BINS: i64 = 16;

/// Builds YOLOv8-nano; box sides remain distributions over bins, and non-maximum suppression is not included.
pub(super) fn version_8_nano(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = silu_layer(net, "model.0", x, &same_conv(16, 3).with_stride(&[2, 2]))?;
    let x = silu_layer(net, "model.1", x, &same_conv(32, 3).with_stride(&[2, 2]))?;
    let x = split_block(net, "model.2", x, 32, 1, true)?;
    let x = silu_layer(net, "model.3", x, &same_conv(64, 3).with_stride(&[2, 2]))?;
    let fine = split_block(net, "model.4", x, 64, 2, true)?;
    let x = silu_layer(net, "model.5", fine, &same_conv(128, 3).with_stride(&[2, 2]))?;
    let middle = split_block(net, "model.6", x, 128, 2, true)?;
    let x = silu_layer(net, "model.7", middle, &same_conv(256, 3).with_stride(&[2, 2]))?;
    let x = split_block(net, "model.8", x, 256, 1, true)?;
    let coarse = pooling_pyramid(net, "model.9", x, 256)?;

    let x = upsample_onto(net, "model.10", coarse, middle)?;
    let middle_up = split_block(net, "model.12", x, 128, 1, false)?;
    let x = upsample_onto(net, "model.13", middle_up, fine)?;
    let small = split_block(net, "model.15", x, 64, 1, false)?;
    let x = silu_layer(net, "model.16", small, &same_conv(64, 3).with_stride(&[2, 2]))?;
    let x = net.concat("model.17", &[x, middle_up])?;
    let medium = split_block(net, "model.18", x, 128, 1, false)?;
    let x = silu_layer(net, "model.19", medium, &same_conv(128, 3).with_stride(&[2, 2]))?;
    let x = net.concat("model.20", &[x, coarse])?;
    let large = split_block(net, "model.21", x, 256, 1, false)?;
    let grids = [small, medium, large].into_iter().enumerate();
    grids.map(|(place, grid)| detection_branches(net, &format!("model.22.{place}"), grid)).collect()
}

fn detection_branches(net: &mut Net, scope: &str, grid: ValueId) -> Result<ValueId> {
    let mut branch = |name: &str, width: i64, out: i64| {
        let x = silu_layer(net, &format!("{scope}.{name}.0"), grid, &same_conv(width, 3))?;
        let x = silu_layer(net, &format!("{scope}.{name}.1"), x, &same_conv(width, 3))?;
        net.conv(&format!("{scope}.{name}.2"), x, &same_conv(out, 1).with_bias())
    };
    let boxes = branch("boxes", 4 * BINS, 4 * BINS)?;
    let classes = branch("classes", CLASSES, CLASSES)?;
    net.concat(scope, &[boxes, classes])
}

/// Adds a block: half of the channels bypasses the inner blocks, and all intermediate results are concatenated.
fn split_block(net: &mut Net, scope: &str, x: ValueId, out: i64, blocks: usize, is_residual: bool) -> Result<ValueId> {
    let half = out / 2;
    let x = silu_layer(net, &format!("{scope}.first"), x, &same_conv(out, 1))?;
    let mut parts = vec![
        net.slice(&format!("{scope}.split"), x, 1, 0, half)?,
        net.slice(&format!("{scope}.split"), x, 1, half, out)?,
    ];
    for block in 0..blocks {
        let last = parts[parts.len() - 1];
        let y = silu_layer(net, &format!("{scope}.{block}.first"), last, &same_conv(half, 3))?;
        let y = silu_layer(net, &format!("{scope}.{block}.last"), y, &same_conv(half, 3))?;
        parts.push(if is_residual { net.add(&format!("{scope}.{block}.add"), last, y)? } else { y });
    }
    let x = net.concat(&format!("{scope}.concat"), &parts)?;
    silu_layer(net, &format!("{scope}.last"), x, &same_conv(out, 1))
}

/// Adds spatial pyramid pooling: windows of 5, 9 and 13 by chained pools of 5.
fn pooling_pyramid(net: &mut Net, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
    let mut parts = vec![silu_layer(net, &format!("{scope}.first"), x, &same_conv(out / 2, 1))?];
    for pool in 0..3 {
        parts.push(net.max_pool(&format!("{scope}.pool{pool}"), parts[pool], 5, 1, 2)?);
    }
    let x = net.concat(&format!("{scope}.concat"), &parts)?;
    silu_layer(net, &format!("{scope}.last"), x, &same_conv(out, 1))
}

fn upsample_onto(net: &mut Net, scope: &str, coarse: ValueId, fine: ValueId) -> Result<ValueId> {
    let extents = net.extents(fine)?[2..].to_vec();
    let x = net.push_op(scope, Op::Resize(Resize { mode: ResizeMode::Nearest, extents }), &[coarse])?;
    net.concat(&format!("{scope}.concat"), &[x, fine])
}

fn silu_layer(net: &mut Net, scope: &str, x: ValueId, layer: &ConvLayer) -> Result<ValueId> {
    net.conv_norm_act(scope, x, layer, 1e-3, &Op::Unary(Unary { function: UnaryOp::Silu }))
}
