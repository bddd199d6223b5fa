//! A small detector: two grids of boxes, before boxes are chosen among them.

use super::net::{Net, same};
use crate::error::Result;
use crate::graph::ValueId;
use crate::operator::{Op, PoolMode, ResizeMode, UnaryOp};

/// Three boxes per cell, each with four sides, a certainty and 80 classes.
const OUTPUTS: i64 = 3 * (4 + 1 + 80);

pub(super) fn version_3_tiny(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let mut x = x;
    for (index, channels) in [16, 32, 64, 128].into_iter().enumerate() {
        x = layer(net, &format!("layers.{}", 2 * index), x, channels, 3)?;
        x = net.max_pool(&format!("layers.{}", 2 * index + 1), x, 2, 2, 0)?;
    }
    let fine = layer(net, "layers.8", x, 256, 3)?;
    let x = net.max_pool("layers.9", fine, 2, 2, 0)?;
    let x = layer(net, "layers.10", x, 512, 3)?;
    // Stride 1 with a pad at the end only, so that the extents stay.
    let pool = Op::Pool {
        mode: PoolMode::Max,
        kernel: vec![2; 2],
        strides: vec![1; 2],
        pads: vec![0, 0, 1, 1],
        dilations: vec![1; 2],
        ceil: false,
        count_pad: false,
    };
    let x = net.push("layers.11", pool, &[x])?;
    let x = layer(net, "layers.12", x, 1024, 3)?;
    let coarse = layer(net, "layers.13", x, 256, 1)?;
    let y = layer(net, "layers.14", coarse, 512, 3)?;
    let large_boxes = net.conv("layers.15", y, &same(OUTPUTS, 1).bias())?;
    let x = layer(net, "layers.18", coarse, 128, 1)?;
    let extents = net.extents(fine)?[2..].to_vec();
    let x = net.push("layers.19", Op::Resize { mode: ResizeMode::Nearest, extents }, &[x])?;
    let x = net.concat("layers.20", &[x, fine])?;
    let x = layer(net, "layers.21", x, 256, 3)?;
    let small_boxes = net.conv("layers.22", x, &same(OUTPUTS, 1).bias())?;
    Ok(vec![large_boxes, small_boxes])
}

fn layer(net: &mut Net, scope: &str, x: ValueId, channels: i64, kernel: i64) -> Result<ValueId> {
    let leaky = Op::Unary { function: UnaryOp::LeakyRelu { alpha: 0.1 } };
    net.conv_norm_act(scope, x, &same(channels, kernel), 1e-5, &leaky)
}
