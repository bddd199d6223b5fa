//! ShuffleNet v2: half of the channels bypass each block, then channels are shuffled.

use super::net::{Net, RELU, same_conv};
use models::error::Result;
use models::graph::ValueId;

const EPSILON: f64 = 1e-5;

pub(super) fn version_2(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv_norm_act("conv1", x, &same_conv(24, 3).with_stride(&[2, 2]), EPSILON, &RELU)?;
    let mut x = net.max_pool("maxpool", x, 3, 2, 1)?;
    for (stage, (count, out)) in (2..).zip([(4, 116), (8, 232), (4, 464)]) {
        for index in 0..count {
            let scope = format!("stage{stage}.{index}");
            x = if index == 0 {
                halving_block(net, &scope, x, out / 2)?
            } else {
                keeping_block(net, &scope, x, out / 2)?
            };
        }
    }
    let x = net.conv_norm_act("conv5", x, &same_conv(1024, 1), EPSILON, &RELU)?;
    let x = net.channel_means("mean", x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

/// Adds a block of stride 2, in which both branches process all channels.
fn halving_block(net: &mut Net, scope: &str, x: ValueId, branch: i64) -> Result<ValueId> {
    let channels = net.channel_count(x)?;
    let depthwise = same_conv(channels, 3).with_stride(&[2, 2]).with_groups(channels);
    let short = net.conv_norm(&format!("{scope}.branch1.depthwise"), x, &depthwise, EPSILON)?;
    let short =
        net.conv_norm_act(&format!("{scope}.branch1.pointwise"), short, &same_conv(branch, 1), EPSILON, &RELU)?;
    let long = filter_branch(net, &format!("{scope}.branch2"), x, branch, 2)?;
    shuffle_channels(net, scope, short, long)
}

/// Adds a block of stride 1, in which one half of the channels is filtered and the other half passes unchanged.
fn keeping_block(net: &mut Net, scope: &str, x: ValueId, branch: i64) -> Result<ValueId> {
    let passing = net.slice(&format!("{scope}.split"), x, 1, 0, branch)?;
    let filtered = net.slice(&format!("{scope}.split"), x, 1, branch, 2 * branch)?;
    let filtered = filter_branch(net, &format!("{scope}.branch2"), filtered, branch, 1)?;
    shuffle_channels(net, scope, passing, filtered)
}

fn filter_branch(net: &mut Net, scope: &str, x: ValueId, channels: i64, stride: i64) -> Result<ValueId> {
    let x = net.conv_norm_act(&format!("{scope}.first"), x, &same_conv(channels, 1), EPSILON, &RELU)?;
    let depthwise = same_conv(channels, 3).with_stride(&[stride; 2]).with_groups(channels);
    let x = net.conv_norm(&format!("{scope}.depthwise"), x, &depthwise, EPSILON)?;
    net.conv_norm_act(&format!("{scope}.last"), x, &same_conv(channels, 1), EPSILON, &RELU)
}

fn shuffle_channels(net: &mut Net, scope: &str, first: ValueId, second: ValueId) -> Result<ValueId> {
    let x = net.concat(&format!("{scope}.concat"), &[first, second])?;
    let extents = net.extents(x)?;
    let [batch, channels, height, width] = extents[..] else { unreachable!("images have four dimensions") };
    let scope = format!("{scope}.shuffle");
    let x = net.reshape(&scope, x, &[batch, 2, channels / 2, height, width])?;
    let x = net.transpose(&scope, x, &[0, 2, 1, 3, 4])?;
    net.reshape(&scope, x, &extents)
}
