//! ConvNeXt: a convolutional network with transformer-style blocks (channel norms and wide dense layers).

use super::net::{Net, conv_layer, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::{BinaryOp, GlobalPool, LayerNorm, Op, PoolMode, UnaryOp};

const CHANNELS_LAST: &[i64] = &[0, 2, 3, 1];
const CHANNELS_FIRST: &[i64] = &[0, 3, 1, 2];

pub(super) fn build_tiny(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv("features.0.0", x, &conv_layer(96, &[4, 4]).with_stride(&[4, 4]).with_bias())?;
    let mut x = norm_channels(net, "features.0.1", x)?;
    for (stage, (blocks, channels)) in [(3, 96), (3, 192), (9, 384), (3, 768)].into_iter().enumerate() {
        if stage > 0 {
            let scope = format!("features.{}", 2 * stage);
            x = norm_channels(net, &format!("{scope}.0"), x)?;
            x = net.conv(&format!("{scope}.1"), x, &conv_layer(channels, &[2, 2]).with_stride(&[2, 2]).with_bias())?;
        }
        for index in 0..blocks {
            x = add_block(net, &format!("features.{}.{index}", 2 * stage + 1), x)?;
        }
    }
    let x = net.push_op("avgpool", Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[x])?;
    let x = norm_channels(net, "classifier.0", x)?;
    let x = net.flatten(x)?;
    Ok(vec![net.dense("classifier.2", x, 1000)?])
}

fn add_block(net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
    let channels = net.channel_count(x)?;
    let y = net.conv(&format!("{scope}.depthwise"), x, &same_conv(channels, 7).with_groups(channels).with_bias())?;
    let y = net.transpose(&format!("{scope}.to_last"), y, CHANNELS_LAST)?;
    let y = norm_last(net, &format!("{scope}.norm"), y, channels)?;
    let y = net.dense(&format!("{scope}.widen"), y, 4 * channels)?;
    let y = net.unary(&format!("{scope}.gelu"), y, UnaryOp::Gelu)?;
    let y = net.dense(&format!("{scope}.narrow"), y, channels)?;
    let y = net.transpose(&format!("{scope}.to_first"), y, CHANNELS_FIRST)?;
    let scale = net.add_weight(&format!("{scope}.layer_scale"), &[channels, 1, 1])?;
    let y = net.binary(&format!("{scope}.scale"), BinaryOp::Mul, y, scale)?;
    net.add(&format!("{scope}.add"), y, x)
}

fn norm_channels(net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
    let channels = net.channel_count(x)?;
    let y = net.transpose(scope, x, CHANNELS_LAST)?;
    let y = norm_last(net, scope, y, channels)?;
    net.transpose(scope, y, CHANNELS_FIRST)
}

fn norm_last(net: &mut Net, scope: &str, x: ValueId, channels: i64) -> Result<ValueId> {
    let scale = net.add_weight(&format!("{scope}.weight"), &[channels])?;
    let shift = net.add_weight(&format!("{scope}.bias"), &[channels])?;
    net.push_op(scope, Op::LayerNorm(LayerNorm { axis: -1, epsilon: 1e-6 }), &[x, scale, shift])
}
