//! ShuffleNet v2: half of the channels bypass each block, then channels are shuffled.

use super::net::{Net, RELU, same};
use models::error::Result;
use models::graph::ValueId;

const EPSILON: f64 = 1e-5;

pub(super) fn version_2(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv_norm_act("conv1", x, &same(24, 3).stride(&[2, 2]), EPSILON, &RELU)?;
    let mut x = net.max_pool("maxpool", x, 3, 2, 1)?;
    for (stage, (count, out)) in (2..).zip([(4, 116), (8, 232), (4, 464)]) {
        for index in 0..count {
            let scope = format!("stage{stage}.{index}");
            x = if index == 0 { halving(net, &scope, x, out / 2)? } else { keeping(net, &scope, x, out / 2)? };
        }
    }
    let x = net.conv_norm_act("conv5", x, &same(1024, 1), EPSILON, &RELU)?;
    let x = net.channel_means("mean", x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

/// Builds a block with stride 2, whose branches both see all channels.
fn halving(net: &mut Net, scope: &str, x: ValueId, branch: i64) -> Result<ValueId> {
    let channels = net.channels(x)?;
    let depthwise = same(channels, 3).stride(&[2, 2]).groups(channels);
    let short = net.conv_norm(&format!("{scope}.branch1.depthwise"), x, &depthwise, EPSILON)?;
    let short = net.conv_norm_act(&format!("{scope}.branch1.pointwise"), short, &same(branch, 1), EPSILON, &RELU)?;
    let long = filter(net, &format!("{scope}.branch2"), x, branch, 2)?;
    shuffle(net, scope, short, long)
}

/// Builds a block that filters half of the channels.
fn keeping(net: &mut Net, scope: &str, x: ValueId, branch: i64) -> Result<ValueId> {
    let passing = net.slice(&format!("{scope}.split"), x, 1, 0, branch)?;
    let filtered = net.slice(&format!("{scope}.split"), x, 1, branch, 2 * branch)?;
    let filtered = filter(net, &format!("{scope}.branch2"), filtered, branch, 1)?;
    shuffle(net, scope, passing, filtered)
}

fn filter(net: &mut Net, scope: &str, x: ValueId, channels: i64, stride: i64) -> Result<ValueId> {
    let x = net.conv_norm_act(&format!("{scope}.first"), x, &same(channels, 1), EPSILON, &RELU)?;
    let depthwise = same(channels, 3).stride(&[stride; 2]).groups(channels);
    let x = net.conv_norm(&format!("{scope}.depthwise"), x, &depthwise, EPSILON)?;
    net.conv_norm_act(&format!("{scope}.last"), x, &same(channels, 1), EPSILON, &RELU)
}

/// Interleaves the channels of two halves.
fn shuffle(net: &mut Net, scope: &str, first: ValueId, second: ValueId) -> Result<ValueId> {
    let x = net.concat(&format!("{scope}.concat"), &[first, second])?;
    let extents = net.extents(x)?;
    let [batch, channels, height, width] = extents[..] else { unreachable!("images have four dimensions") };
    let scope = format!("{scope}.shuffle");
    let x = net.reshape(&scope, x, &[batch, 2, channels / 2, height, width])?;
    let x = net.transpose(&scope, x, &[0, 2, 1, 3, 4])?;
    net.reshape(&scope, x, &extents)
}
