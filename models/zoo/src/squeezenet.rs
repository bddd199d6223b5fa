//! SqueezeNet: fire modules of 1x1 convolutions that squeeze and expand channels.

use super::net::{Net, conv_layer, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::PoolMode;

pub(super) fn version_1_0(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv("features.0", x, &conv_layer(96, &[7, 7]).with_stride(&[2, 2]).with_bias())?;
    add_remaining(net, x, &[3, 4, 5, 7, 8, 9, 10, 12], &[2, 6, 11])
}

pub(super) fn version_1_1(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv("features.0", x, &conv_layer(64, &[3, 3]).with_stride(&[2, 2]).with_bias())?;
    add_remaining(net, x, &[3, 4, 6, 7, 9, 10, 11, 12], &[2, 5, 8])
}

fn add_remaining(net: &mut Net, x: ValueId, fires: &[usize], pools: &[usize]) -> Result<Vec<ValueId>> {
    let mut x = net.relu("features.1", x)?;
    let sizes = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)];
    let mut sizes = sizes.into_iter();
    for position in 2..=12 {
        let scope = format!("features.{position}");
        if pools.contains(&position) {
            x = net.add_pool(&scope, x, PoolMode::Max, [3, 2, 0], true)?;
        } else if fires.contains(&position) {
            let (squeezed, expanded) = sizes.next().expect("eight fire modules");
            x = fire_block(net, &scope, x, squeezed, expanded)?;
        }
    }
    let x = net.dropout(x)?;
    let x = net.conv("classifier.1", x, &same_conv(1000, 1).with_bias())?;
    let x = net.relu("classifier.2", x)?;
    Ok(vec![net.channel_means("classifier.3", x)?])
}

fn fire_block(net: &mut Net, scope: &str, x: ValueId, squeezed: i64, expanded: i64) -> Result<ValueId> {
    let x = net.conv(&format!("{scope}.squeeze"), x, &same_conv(squeezed, 1).with_bias())?;
    let x = net.relu(&format!("{scope}.squeeze_activation"), x)?;
    let mut parts = Vec::new();
    for kernel in [1, 3] {
        let y = net.conv(&format!("{scope}.expand{kernel}x{kernel}"), x, &same_conv(expanded, kernel).with_bias())?;
        parts.push(net.relu(&format!("{scope}.expand{kernel}x{kernel}_activation"), y)?);
    }
    net.concat(&format!("{scope}.concat"), &parts)
}
