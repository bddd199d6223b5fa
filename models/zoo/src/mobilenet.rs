//! MobileNet v1 to v3, MnasNet and EfficientNet: depthwise convolutions between 1x1 convolutions.

use super::net::{Net, RELU, RELU6, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::{Op, Unary, UnaryOp};

pub(super) fn version_1(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let epsilon = 1e-5;
    let mut x = net.conv_norm_act("stem", x, &same_conv(32, 3).with_stride(&[2, 2]), epsilon, &RELU)?;
    let stages = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)];
    let stages = stages.into_iter().chain([(512, 1); 5]).chain([(1024, 2), (1024, 1)]);
    for (index, (out, stride)) in stages.enumerate() {
        let channels = net.channel_count(x)?;
        let depthwise = same_conv(channels, 3).with_stride(&[stride; 2]).with_groups(channels);
        x = net.conv_norm_act(&format!("blocks.{index}.depthwise"), x, &depthwise, epsilon, &RELU)?;
        x = net.conv_norm_act(&format!("blocks.{index}.pointwise"), x, &same_conv(out, 1), epsilon, &RELU)?;
    }
    let x = net.channel_means("avgpool", x)?;
    Ok(vec![net.dense("classifier", x, 1000)?])
}

/// An inverted residual block: expansion, depthwise convolution, projection; the input is added if shapes are equal.
pub(super) struct Inverted {
    pub expanded: i64,
    pub out: i64,
    pub kernel: i64,
    pub stride: i64,
    pub activation: Op,
    /// Squeeze-and-excite stage, if any: its number of channels, its activation and its gate.
    pub squeeze: Option<(i64, UnaryOp, UnaryOp)>,
    pub epsilon: f64,
}

pub(super) fn add_inverted(net: &mut Net, scope: &str, x: ValueId, block: &Inverted) -> Result<ValueId> {
    let channels = net.channel_count(x)?;
    let mut y = x;
    if block.expanded != channels {
        let expand = same_conv(block.expanded, 1);
        y = net.conv_norm_act(&format!("{scope}.expand"), y, &expand, block.epsilon, &block.activation)?;
    }
    let depthwise = same_conv(block.expanded, block.kernel).with_stride(&[block.stride; 2]).with_groups(block.expanded);
    y = net.conv_norm_act(&format!("{scope}.depthwise"), y, &depthwise, block.epsilon, &block.activation)?;
    if let Some((squeezed, activation, gate)) = block.squeeze {
        y = net.squeeze_excite(&format!("{scope}.squeeze"), y, squeezed, activation, gate)?;
    }
    y = net.conv_norm(&format!("{scope}.project"), y, &same_conv(block.out, 1), block.epsilon)?;
    if block.stride == 1 && channels == block.out { net.add(&format!("{scope}.add"), y, x) } else { Ok(y) }
}

pub(super) fn version_2(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let epsilon = 1e-5;
    let x = net.conv_norm_act("features.0", x, &same_conv(32, 3).with_stride(&[2, 2]), epsilon, &RELU6)?;
    // Expansion, output channels, blocks, stride of the first block.
    let stages =
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
    let mut x = x;
    let mut index = 1;
    for (expansion, out, count, first_stride) in stages {
        for block in 0..count {
            let expanded = net.channel_count(x)? * expansion;
            let stride = if block == 0 { first_stride } else { 1 };
            let block = Inverted { expanded, out, kernel: 3, stride, activation: RELU6, squeeze: None, epsilon };
            x = add_inverted(net, &format!("features.{index}"), x, &block)?;
            index += 1;
        }
    }
    let x = net.conv_norm_act("features.18", x, &same_conv(1280, 1), epsilon, &RELU6)?;
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("classifier.1", x, 1000)?])
}

/// Kernel, expanded channels, output channels, whether squeeze-and-excite, whether hard swish, stride.
type BlockRow = (i64, i64, i64, bool, bool, i64);

const LARGE: &[BlockRow] = &[
    (3, 16, 16, false, false, 1),
    (3, 64, 24, false, false, 2),
    (3, 72, 24, false, false, 1),
    (5, 72, 40, true, false, 2),
    (5, 120, 40, true, false, 1),
    (5, 120, 40, true, false, 1),
    (3, 240, 80, false, true, 2),
    (3, 200, 80, false, true, 1),
    (3, 184, 80, false, true, 1),
    (3, 184, 80, false, true, 1),
    (3, 480, 112, true, true, 1),
    (3, 672, 112, true, true, 1),
    (5, 672, 160, true, true, 2),
    (5, 960, 160, true, true, 1),
    (5, 960, 160, true, true, 1),
];

const SMALL: &[BlockRow] = &[
    (3, 16, 16, true, false, 2),
    (3, 72, 24, false, false, 2),
    (3, 88, 24, false, false, 1),
    (5, 96, 40, true, true, 2),
    (5, 240, 40, true, true, 1),
    (5, 240, 40, true, true, 1),
    (5, 120, 48, true, true, 1),
    (5, 144, 48, true, true, 1),
    (5, 288, 96, true, true, 2),
    (5, 576, 96, true, true, 1),
    (5, 576, 96, true, true, 1),
];

pub(super) fn version_3_large(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    version_3(net, x, LARGE, 1280)
}

pub(super) fn version_3_small(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    version_3(net, x, SMALL, 1024)
}

fn version_3(net: &mut Net, x: ValueId, rows: &[BlockRow], hidden: i64) -> Result<Vec<ValueId>> {
    let epsilon = 1e-3;
    let swish = Op::Unary(Unary { function: UnaryOp::HardSwish });
    let mut x = net.conv_norm_act("features.0", x, &same_conv(16, 3).with_stride(&[2, 2]), epsilon, &swish)?;
    for (index, &(kernel, expanded, out, has_squeeze, has_swish, stride)) in (1..).zip(rows) {
        let squeezed = divisible_by_8(expanded / 4);
        let block = Inverted {
            expanded,
            out,
            kernel,
            stride,
            activation: if has_swish { swish.clone() } else { RELU },
            squeeze: has_squeeze.then_some((squeezed, UnaryOp::Relu, UnaryOp::HardSigmoid)),
            epsilon,
        };
        x = add_inverted(net, &format!("features.{index}"), x, &block)?;
    }
    let last = same_conv(6 * net.channel_count(x)?, 1);
    let x = net.conv_norm_act(&format!("features.{}", rows.len() + 1), x, &last, epsilon, &swish)?;
    let x = net.channel_means("avgpool", x)?;
    let x = net.dense("classifier.0", x, hidden)?;
    let x = net.push_op("classifier.1", swish, &[x])?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("classifier.3", x, 1000)?])
}

/// Rounds to the nearest multiple of 8, or to the next larger one if rounding removes more than a tenth.
fn divisible_by_8(channels: i64) -> i64 {
    let near = ((channels + 4) / 8 * 8).max(8);
    if near * 10 < channels * 9 { near + 8 } else { near }
}

pub(super) fn build_mnasnet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let epsilon = 1e-5;
    let x = net.conv_norm_act("layers.0", x, &same_conv(32, 3).with_stride(&[2, 2]), epsilon, &RELU)?;
    let x = net.conv_norm_act("layers.3", x, &same_conv(32, 3).with_groups(32), epsilon, &RELU)?;
    let mut x = net.conv_norm("layers.6", x, &same_conv(16, 1), epsilon)?;
    // Output channels, kernel, stride of the first block, expansion, blocks.
    let stacks =
        [(24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3), (96, 3, 1, 6, 2), (192, 5, 2, 6, 4), (320, 3, 1, 6, 1)];
    for (stack, (out, kernel, first_stride, expansion, count)) in (8..).zip(stacks) {
        for index in 0..count {
            let expanded = net.channel_count(x)? * expansion;
            let stride = if index == 0 { first_stride } else { 1 };
            let block = Inverted { expanded, out, kernel, stride, activation: RELU, squeeze: None, epsilon };
            x = add_inverted(net, &format!("layers.{stack}.{index}"), x, &block)?;
        }
    }
    let x = net.conv_norm_act("layers.14", x, &same_conv(1280, 1), epsilon, &RELU)?;
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("classifier.1", x, 1000)?])
}

pub(super) fn efficientnet_b0(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let epsilon = 1e-5;
    let silu = Op::Unary(Unary { function: UnaryOp::Silu });
    let mut x = net.conv_norm_act("features.0", x, &same_conv(32, 3).with_stride(&[2, 2]), epsilon, &silu)?;
    // Expansion, kernel, stride of the first block, output channels, blocks.
    let stages = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ];
    for (stage, (expansion, kernel, first_stride, out, count)) in (1..).zip(stages) {
        for index in 0..count {
            let channels = net.channel_count(x)?;
            let block = Inverted {
                expanded: channels * expansion,
                out,
                kernel,
                stride: if index == 0 { first_stride } else { 1 },
                activation: silu.clone(),
                squeeze: Some((channels / 4, UnaryOp::Silu, UnaryOp::Sigmoid)),
                epsilon,
            };
            x = add_inverted(net, &format!("features.{stage}.{index}"), x, &block)?;
        }
    }
    let x = net.conv_norm_act("features.8", x, &same_conv(1280, 1), epsilon, &silu)?;
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("classifier.1", x, 1000)?])
}
