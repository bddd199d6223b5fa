//! Blocks of parallel branches whose outputs are joined, in two generations.

use super::net::{ConvLayer, Net, RELU, conv, same};
use models::error::Result;
use models::graph::ValueId;
use models::operators::PoolMode;

const EPSILON: f64 = 1e-3;

/// The first generation. The branch called 5x5 uses 3x3 kernels, as the common implementation does.
pub(super) fn googlenet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = layer(net, "conv1", x, &same(64, 7).stride(&[2, 2]))?;
    let x = net.pool("maxpool1", x, PoolMode::Max, [3, 2, 0], true)?;
    let x = layer(net, "conv2", x, &same(64, 1))?;
    let x = layer(net, "conv3", x, &same(192, 3))?;
    let mut x = net.pool("maxpool2", x, PoolMode::Max, [3, 2, 0], true)?;
    // Channels of: 1x1; reduction and 3x3; reduction and 5x5; after the pool. Names end the stage with a pool.
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
            "3b" => net.pool("maxpool3", x, PoolMode::Max, [3, 2, 0], true)?,
            "4e" => net.pool("maxpool4", x, PoolMode::Max, [2, 2, 0], true)?,
            _ => x,
        };
    }
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

fn googlenet_block(net: &mut Net, scope: &str, x: ValueId, channels: [i64; 6]) -> Result<ValueId> {
    let [single, reduce_3, out_3, reduce_5, out_5, after_pool] = channels;
    let a = layer(net, &format!("{scope}.branch1"), x, &same(single, 1))?;
    let b = chain(net, &format!("{scope}.branch2"), x, &[same(reduce_3, 1), same(out_3, 3)])?;
    let c = chain(net, &format!("{scope}.branch3"), x, &[same(reduce_5, 1), same(out_5, 3)])?;
    let d = net.pool(&format!("{scope}.branch4.0"), x, PoolMode::Max, [3, 1, 1], true)?;
    let d = layer(net, &format!("{scope}.branch4.1"), d, &same(after_pool, 1))?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

/// The third generation, on images of 299x299.
pub(super) fn version_3(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let stem = [conv(32, &[3, 3]).stride(&[2, 2]), conv(32, &[3, 3]), same(64, 3)];
    let x = chain(net, "stem1", x, &stem)?;
    let x = net.max_pool("maxpool1", x, 3, 2, 0)?;
    let x = chain(net, "stem2", x, &[same(80, 1), conv(192, &[3, 3])])?;
    let mut x = net.max_pool("maxpool2", x, 3, 2, 0)?;
    for (name, after_pool) in [("5b", 32), ("5c", 64), ("5d", 64)] {
        x = square_block(net, &format!("mixed_{name}"), x, after_pool)?;
    }
    let half = |out: i64| conv(out, &[3, 3]).stride(&[2, 2]);
    let branches = [vec![half(384)], vec![same(64, 1), same(96, 3), half(96)]];
    x = halving_block(net, "mixed_6a", x, &branches)?;
    for (name, middle) in [("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)] {
        x = long_block(net, &format!("mixed_{name}"), x, middle)?;
    }
    let branches = [vec![same(192, 1), half(320)], vec![same(192, 1), row(192, 7), column(192, 7), half(192)]];
    x = halving_block(net, "mixed_7a", x, &branches)?;
    for name in ["7b", "7c"] {
        x = wide_block(net, &format!("mixed_{name}"), x)?;
    }
    let x = net.channel_means("avgpool", x)?;
    let x = net.dropout(x)?;
    Ok(vec![net.dense("fc", x, 1000)?])
}

fn square_block(net: &mut Net, scope: &str, x: ValueId, after_pool: i64) -> Result<ValueId> {
    let a = layer(net, &format!("{scope}.branch1x1"), x, &same(64, 1))?;
    let b = chain(net, &format!("{scope}.branch5x5"), x, &[same(48, 1), same(64, 5)])?;
    let c = chain(net, &format!("{scope}.branch3x3dbl"), x, &[same(64, 1), same(96, 3), same(96, 3)])?;
    let d = pooled(net, scope, x, after_pool)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

/// Two branches and a pool, all of stride 2.
fn halving_block(net: &mut Net, scope: &str, x: ValueId, branches: &[Vec<ConvLayer>; 2]) -> Result<ValueId> {
    let a = chain(net, &format!("{scope}.branch1"), x, &branches[0])?;
    let b = chain(net, &format!("{scope}.branch2"), x, &branches[1])?;
    let c = net.max_pool(&format!("{scope}.pool"), x, 3, 2, 0)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c])
}

/// 7x7 kernels as rows and columns.
fn long_block(net: &mut Net, scope: &str, x: ValueId, middle: i64) -> Result<ValueId> {
    let a = layer(net, &format!("{scope}.branch1x1"), x, &same(192, 1))?;
    let once = [same(middle, 1), row(middle, 7), column(192, 7)];
    let b = chain(net, &format!("{scope}.branch7x7"), x, &once)?;
    let twice = [same(middle, 1), column(middle, 7), row(middle, 7), column(middle, 7), row(192, 7)];
    let c = chain(net, &format!("{scope}.branch7x7dbl"), x, &twice)?;
    let d = pooled(net, scope, x, 192)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

/// Branches that fork once more into a row and a column.
fn wide_block(net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
    let fork = |net: &mut Net, scope: &str, x: ValueId| -> Result<ValueId> {
        let a = layer(net, &format!("{scope}a"), x, &row(384, 3))?;
        let b = layer(net, &format!("{scope}b"), x, &column(384, 3))?;
        net.concat(&format!("{scope}.concat"), &[a, b])
    };
    let a = layer(net, &format!("{scope}.branch1x1"), x, &same(320, 1))?;
    let b = layer(net, &format!("{scope}.branch3x3_1"), x, &same(384, 1))?;
    let b = fork(net, &format!("{scope}.branch3x3_2"), b)?;
    let c = chain(net, &format!("{scope}.branch3x3dbl"), x, &[same(448, 1), same(384, 3)])?;
    let c = fork(net, &format!("{scope}.branch3x3dbl_3"), c)?;
    let d = pooled(net, scope, x, 192)?;
    net.concat(&format!("{scope}.concat"), &[a, b, c, d])
}

fn pooled(net: &mut Net, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
    let x = net.average_pool(&format!("{scope}.branch_pool.0"), x, [3, 1, 1])?;
    layer(net, &format!("{scope}.branch_pool.1"), x, &same(out, 1))
}

fn row(out: i64, length: i64) -> ConvLayer {
    conv(out, &[1, length]).pad(&[0, length / 2])
}

fn column(out: i64, length: i64) -> ConvLayer {
    conv(out, &[length, 1]).pad(&[length / 2, 0])
}

fn chain(net: &mut Net, scope: &str, x: ValueId, layers: &[ConvLayer]) -> Result<ValueId> {
    (1..).zip(layers).try_fold(x, |x, (index, one)| layer(net, &format!("{scope}_{index}"), x, one))
}

fn layer(net: &mut Net, scope: &str, x: ValueId, convolution: &ConvLayer) -> Result<ValueId> {
    net.conv_norm_act(scope, x, convolution, EPSILON, &RELU)
}
