//! VGG: plain stacks of 3x3 convolutions, with and without batch normalisation.

use super::net::{Net, same_conv};
use models::error::Result;
use models::graph::ValueId;

/// Builds a VGG network from the number of convolutions in each of the five stages; each stage ends in a pool.
pub(super) fn build_vgg(net: &mut Net, x: ValueId, convolutions: [usize; 5], has_norm: bool) -> Result<Vec<ValueId>> {
    let mut x = x;
    let mut layer = 0;
    for (count, channels) in convolutions.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            x = net.conv(&format!("features.{layer}"), x, &same_conv(channels, 3).with_bias())?;
            if has_norm {
                layer += 1;
                x = net.batch_norm(&format!("features.{layer}"), x, 1e-5)?;
            }
            x = net.relu(&format!("features.{}", layer + 1), x)?;
            layer += 2;
        }
        x = net.max_pool(&format!("features.{layer}"), x, 2, 2, 0)?;
        layer += 1;
    }
    let mut x = net.flatten(x)?;
    for index in [0, 3] {
        x = net.dense(&format!("classifier.{index}"), x, 4096)?;
        x = net.relu(&format!("classifier.{}", index + 1), x)?;
        x = net.dropout(x)?;
    }
    Ok(vec![net.dense("classifier.6", x, 1000)?])
}
