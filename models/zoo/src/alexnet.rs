//! AlexNet: large kernels and large fully connected layers, without normalisation.

use super::net::{Net, conv_layer};
use models::error::Result;
use models::graph::ValueId;

pub(super) fn build_alexnet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x =
        net.conv("features.0", x, &conv_layer(64, &[11, 11]).with_stride(&[4, 4]).with_pads(&[2, 2]).with_bias())?;
    let x = net.relu("features.1", x)?;
    let x = net.max_pool("features.2", x, 3, 2, 0)?;
    let x = net.conv("features.3", x, &conv_layer(192, &[5, 5]).with_pads(&[2, 2]).with_bias())?;
    let x = net.relu("features.4", x)?;
    let mut x = net.max_pool("features.5", x, 3, 2, 0)?;
    for (index, out) in [(6, 384), (8, 256), (10, 256)] {
        x = net.conv(&format!("features.{index}"), x, &conv_layer(out, &[3, 3]).with_pads(&[1, 1]).with_bias())?;
        x = net.relu(&format!("features.{}", index + 1), x)?;
    }
    let x = net.max_pool("features.12", x, 3, 2, 0)?;
    let mut x = net.flatten(x)?;
    for index in [1, 4] {
        x = net.dropout(x)?;
        x = net.dense(&format!("classifier.{index}"), x, 4096)?;
        x = net.relu(&format!("classifier.{}", index + 1), x)?;
    }
    Ok(vec![net.dense("classifier.6", x, 1000)?])
}
