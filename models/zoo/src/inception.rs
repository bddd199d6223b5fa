//! GoogLeNet and Inception v3: blocks of parallel branches with concatenated outputs.

use super::net::{ConvLayer, Net, RELU, conv_layer, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::PoolMode;

const EPSILON: f64 = 1e-3;

/// Builds GoogLeNet. The branch named 5x5 uses 3x3 kernels, as common implementations do.
pub(super) fn build_googlenet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = add_layer(net, "conv1", x, &same_conv(64, 7).with_stride(&[2, 2]))?;
    let x = net.add_pool("maxpool1", x, PoolMode::Max, [3, 2, 0], true)?;
    let x = add_layer(net, "conv2", x, &same_conv(64, 1))?;
    let x = add_layer(net, "conv3", x, &same_conv(192, 3))?;
    let mut x = net.add_pool("maxpool2", x, PoolMode::Max, [3, 2, 0], true)?;
    // Channels of: 1x1; reduction and 3x3; reduction and 5x5; after the pool. Some names end their stage with a pool.
    let blocks: [(&str, [i64; 6]); 9] = [
        ("3a", [64, 96, 128, 16, 32, 32]),
        ("3b", [128, 128, 192, 32, 96, 64]),
        ("4a", [192, 96, 208, 16, 48, 64]),
        ("4b", [160, 112, 224, 24, 64, 64]),
        ("4c", [128, 128, 256, 24, 64, 64]),
        ("4d", [112, 144, 288, 32, 64, 64]),
        ("4e", [256, 160, 320, 32, 128, 128]),
        ("5a", [256, 160, 320, 32, 128, 128]),
        ("5b", [384, 192, 384, 48, 128, 128]),
    ];
    for (name, channels) in blocks {
        x = googlenet_block(net, &format!("inception{name}"), x, channels)?;
        x = match name {
            "3b" => net.add_pool("maxpool3", x, PoolMode::Max, [3, 2, 0], true)?,
            "4e" => net.add_pool("maxpool4", x, PoolMode::Max, [2, 2, 0], true)?,
            _ => x,
        };
    }
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

fn googlenet_block(net: &mut Net, scope: &str, x: ValueId, channels: [i64; 6]) -> Result<ValueId> {
    let [single, reduce_3, out_3, reduce_5, out_5, after_pool] = channels;
    let a = add_layer(net, &format!("{scope}.branch1"), x, &same_conv(single, 1))?;
    let b = add_chain(net, &format!("{scope}.branch2"), x, &[same_conv(reduce_3, 1), same_conv(out_3, 3)])?;
    let c = add_chain(net, &format!("{scope}.branch3"), x, &[same_conv(reduce_5, 1), same_conv(out_5, 3)])?;
    let d = net.add_pool(&format!("{scope}.branch4.0"), x, PoolMode::Max, [3, 1, 1], true)?;
    let d = add_layer(net, &format!("{scope}.branch4.1"), d, &same_conv(after_pool, 1))?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

/// Builds Inception v3, for images of 299x299.
pub(super) fn version_3(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let stem = [conv_layer(32, &[3, 3]).with_stride(&[2, 2]), conv_layer(32, &[3, 3]), same_conv(64, 3)];
    let x = add_chain(net, "stem1", x, &stem)?;
    let x = net.max_pool("maxpool1", x, 3, 2, 0)?;
    let x = add_chain(net, "stem2", x, &[same_conv(80, 1), conv_layer(192, &[3, 3])])?;
    let mut x = net.max_pool("maxpool2", x, 3, 2, 0)?;
    for (name, after_pool) in [("5b", 32), ("5c", 64), ("5d", 64)] {
        x = square_block(net, &format!("mixed_{name}"), x, after_pool)?;
    }
    let half = |out: i64| conv_layer(out, &[3, 3]).with_stride(&[2, 2]);
    let branches = [vec![half(384)], vec![same_conv(64, 1), same_conv(96, 3), half(96)]];
    x = halving_block(net, "mixed_6a", x, &branches)?;
    for (name, middle) in [("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)] {
        x = long_block(net, &format!("mixed_{name}"), x, middle)?;
    }
    let branches =
        [vec![same_conv(192, 1), half(320)], vec![same_conv(192, 1), row_conv(192, 7), column_conv(192, 7), half(192)]];
    x = halving_block(net, "mixed_7a", x, &branches)?;
    for name in ["7b", "7c"] {
        x = wide_block(net, &format!("mixed_{name}"), x)?;
    }
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

fn square_block(net: &mut Net, scope: &str, x: ValueId, after_pool: i64) -> Result<ValueId> {
    let a = add_layer(net, &format!("{scope}.branch1x1"), x, &same_conv(64, 1))?;
    let b = add_chain(net, &format!("{scope}.branch5x5"), x, &[same_conv(48, 1), same_conv(64, 5)])?;
    let c =
        add_chain(net, &format!("{scope}.branch3x3dbl"), x, &[same_conv(64, 1), same_conv(96, 3), same_conv(96, 3)])?;
    let d = pool_branch(net, scope, x, after_pool)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

fn halving_block(net: &mut Net, scope: &str, x: ValueId, branches: &[Vec<ConvLayer>; 2]) -> Result<ValueId> {
    let a = add_chain(net, &format!("{scope}.branch1"), x, &branches[0])?;
    let b = add_chain(net, &format!("{scope}.branch2"), x, &branches[1])?;
    let c = net.max_pool(&format!("{scope}.pool"), x, 3, 2, 0)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c])
}

/// Adds a block with branches whose 7x7 kernels are factored into 1x7 and 7x1.
fn long_block(net: &mut Net, scope: &str, x: ValueId, middle: i64) -> Result<ValueId> {
    let a = add_layer(net, &format!("{scope}.branch1x1"), x, &same_conv(192, 1))?;
    let once = [same_conv(middle, 1), row_conv(middle, 7), column_conv(192, 7)];
    let b = add_chain(net, &format!("{scope}.branch7x7"), x, &once)?;
    let twice =
        [same_conv(middle, 1), column_conv(middle, 7), row_conv(middle, 7), column_conv(middle, 7), row_conv(192, 7)];
    let c = add_chain(net, &format!("{scope}.branch7x7dbl"), x, &twice)?;
    let d = pool_branch(net, scope, x, 192)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

/// Adds a block with branches that fork into 1x3 and 3x1 kernels.
fn wide_block(net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
    let fork = |net: &mut Net, scope: &str, x: ValueId| -> Result<ValueId> {
        let a = add_layer(net, &format!("{scope}a"), x, &row_conv(384, 3))?;
        let b = add_layer(net, &format!("{scope}b"), x, &column_conv(384, 3))?;
        net.concat(&format!("{scope}.concat"), &[a, b])
    };
    let a = add_layer(net, &format!("{scope}.branch1x1"), x, &same_conv(320, 1))?;
    let b = add_layer(net, &format!("{scope}.branch3x3_1"), x, &same_conv(384, 1))?;
    let b = fork(net, &format!("{scope}.branch3x3_2"), b)?;
    let c = add_chain(net, &format!("{scope}.branch3x3dbl"), x, &[same_conv(448, 1), same_conv(384, 3)])?;
    let c = fork(net, &format!("{scope}.branch3x3dbl_3"), c)?;
    let d = pool_branch(net, scope, x, 192)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

fn pool_branch(net: &mut Net, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
    let x = net.average_pool(&format!("{scope}.branch_pool.0"), x, [3, 1, 1])?;
    add_layer(net, &format!("{scope}.branch_pool.1"), x, &same_conv(out, 1))
}

fn row_conv(out: i64, length: i64) -> ConvLayer {
    conv_layer(out, &[1, length]).with_pads(&[0, length / 2])
}

fn column_conv(out: i64, length: i64) -> ConvLayer {
    conv_layer(out, &[length, 1]).with_pads(&[length / 2, 0])
}

fn add_chain(net: &mut Net, scope: &str, x: ValueId, layers: &[ConvLayer]) -> Result<ValueId> {
    (1..).zip(layers).try_fold(x, |x, (index, one)| add_layer(net, &format!("{scope}_{index}"), x, one))
}

fn add_layer(net: &mut Net, scope: &str, x: ValueId, convolution: &ConvLayer) -> Result<ValueId> {
    net.conv_norm_act(scope, x, convolution, EPSILON, &RELU)
}
