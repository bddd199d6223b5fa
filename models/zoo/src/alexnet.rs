//! AlexNet: large kernels and large fully connected layers, without normalisation.

use super::net::{Net, conv};
use models::error::Result;
use models::graph::ValueId;

pub(super) fn alexnet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.conv("features.0", x, &conv(64, &[11, 11]).stride(&[4, 4]).pad(&[2, 2]).bias())?;
    let x = net.relu("features.1", x)?;
    let x = net.max_pool("features.2", x, 3, 2, 0)?;
    let x = net.conv("features.3", x, &conv(192, &[5, 5]).pad(&[2, 2]).bias())?;
    let x = net.relu("features.4", x)?;
    let mut x = net.max_pool("features.5", x, 3, 2, 0)?;
    for (index, out) in [(6, 384), (8, 256), (10, 256)] {
        x = net.conv(&format!("features.{index}"), x, &conv(out, &[3, 3]).pad(&[1, 1]).bias())?;
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
