//! ResNet for images, including the wide and grouped variants.

use super::net::{ConvLayer, Net, conv_layer, same_conv};
use models::error::Result;
use models::graph::ValueId;

const EPSILON: f64 = 1e-5;

pub(super) struct Bottleneck {
    pub blocks: [usize; 4],
    pub groups: i64,
    /// Channels per group in the first stage.
    pub width: i64,
}

impl Bottleneck {
    pub(super) fn plain_variant(blocks: [usize; 4]) -> Bottleneck {
        Bottleneck { blocks, groups: 1, width: 64 }
    }
}

/// Builds the shallow variants, with two 3x3 convolutions per block.
pub(super) fn build_basic(net: &mut Net, x: ValueId, blocks: [usize; 4]) -> Result<Vec<ValueId>> {
    build_network(net, x, blocks, |net, scope, x, stage, stride| {
        let channels = 64 << stage;
        let first = same_conv(channels, 3).with_stride(&[stride; 2]);
        let y = conv_norm(net, &format!("{scope}.conv1"), &format!("{scope}.bn1"), x, &first)?;
        let y = net.relu(&format!("{scope}.relu"), y)?;
        let y = conv_norm(net, &format!("{scope}.conv2"), &format!("{scope}.bn2"), y, &same_conv(channels, 3))?;
        add_shortcut(net, scope, x, y, stride)
    })
}

/// Builds the deep variants, with 1x1, 3x3 and 1x1 convolutions per block.
pub(super) fn build_bottleneck(net: &mut Net, x: ValueId, variant: &Bottleneck) -> Result<Vec<ValueId>> {
    build_network(net, x, variant.blocks, |net, scope, x, stage, stride| {
        let middle = (variant.width * variant.groups) << stage;
        let y = conv_norm(net, &format!("{scope}.conv1"), &format!("{scope}.bn1"), x, &same_conv(middle, 1))?;
        let y = net.relu(&format!("{scope}.relu1"), y)?;
        let spatial = same_conv(middle, 3).with_stride(&[stride; 2]).with_groups(variant.groups);
        let y = conv_norm(net, &format!("{scope}.conv2"), &format!("{scope}.bn2"), y, &spatial)?;
        let y = net.relu(&format!("{scope}.relu2"), y)?;
        let y = conv_norm(net, &format!("{scope}.conv3"), &format!("{scope}.bn3"), y, &same_conv(256 << stage, 1))?;
        add_shortcut(net, scope, x, y, stride)
    })
}

/// Builds stem, four stages and classifier. `block` receives scope, input, stage and stride.
fn build_network(
    net: &mut Net,
    x: ValueId,
    blocks: [usize; 4],
    block: impl Fn(&mut Net, &str, ValueId, i64, i64) -> Result<ValueId>,
) -> Result<Vec<ValueId>> {
    let x = conv_norm(net, "conv1", "bn1", x, &same_conv(64, 7).with_stride(&[2, 2]))?;
    let x = net.relu("relu", x)?;
    let mut x = net.max_pool("maxpool", x, 3, 2, 1)?;
    for (stage, count) in (0..).zip(blocks) {
        for index in 0..count {
            let stride = if index == 0 && stage > 0 { 2 } else { 1 };
            x = block(net, &format!("layer{}.{index}", stage + 1), x, stage, stride)?;
        }
    }
    let x = net.channel_means("avgpool", x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

fn add_shortcut(net: &mut Net, scope: &str, x: ValueId, y: ValueId, stride: i64) -> Result<ValueId> {
    let channels = net.channel_count(y)?;
    let shortcut = if stride == 1 && net.channel_count(x)? == channels {
        x
    } else {
        let projection = conv_layer(channels, &[1, 1]).with_stride(&[stride; 2]);
        conv_norm(net, &format!("{scope}.downsample.0"), &format!("{scope}.downsample.1"), x, &projection)?
    };
    let y = net.add(&format!("{scope}.add"), y, shortcut)?;
    net.relu(&format!("{scope}.relu"), y)
}

fn conv_norm(net: &mut Net, conv: &str, norm: &str, x: ValueId, layer: &ConvLayer) -> Result<ValueId> {
    let x = net.conv(conv, x, layer)?;
    net.batch_norm(norm, x, EPSILON)
}
