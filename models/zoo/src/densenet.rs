//! DenseNet: each layer receives the outputs of all previous layers.

use super::net::{Net, same_conv};
use models::error::Result;
use models::graph::ValueId;

const EPSILON: f64 = 1e-5;
const GROWTH: i64 = 32;

pub(super) fn build_densenet(net: &mut Net, x: ValueId, layers: [usize; 4]) -> Result<Vec<ValueId>> {
    let x = net.conv("features.conv0", x, &same_conv(64, 7).with_stride(&[2, 2]))?;
    let x = norm_relu(net, "features.norm0", x)?;
    let mut x = net.max_pool("features.pool0", x, 3, 2, 1)?;
    for (block, count) in (1..).zip(layers) {
        for layer in 1..=count {
            let scope = format!("features.denseblock{block}.denselayer{layer}");
            let y = norm_relu(net, &format!("{scope}.norm1"), x)?;
            let y = net.conv(&format!("{scope}.conv1"), y, &same_conv(4 * GROWTH, 1))?;
            let y = norm_relu(net, &format!("{scope}.norm2"), y)?;
            let y = net.conv(&format!("{scope}.conv2"), y, &same_conv(GROWTH, 3))?;
            x = net.concat(&format!("{scope}.concat"), &[x, y])?;
        }
        if block < layers.len() {
            let scope = format!("features.transition{block}");
            x = norm_relu(net, &format!("{scope}.norm"), x)?;
            let half = net.channel_count(x)? / 2;
            x = net.conv(&format!("{scope}.conv"), x, &same_conv(half, 1))?;
            x = net.average_pool(&format!("{scope}.pool"), x, [2, 2, 0])?;
        }
    }
    let x = norm_relu(net, "features.norm5", x)?;
    let x = net.channel_means("avgpool", x)?;
    Ok(vec![net.dense("classifier", x, 1000)?])
}

fn norm_relu(net: &mut Net, scope: &str, x: ValueId) -> Result<ValueId> {
    let x = net.batch_norm(scope, x, EPSILON)?;
    net.relu(scope, x)
}
