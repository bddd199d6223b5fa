//! DQN: the Q-network for video games from four frames.

use super::net::{Net, conv_layer};
use models::error::Result;
use models::graph::ValueId;

pub(super) fn build_dqn(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let mut x = x;
    for (index, (out, kernel, stride)) in (1..).zip([(32, 8, 4), (64, 4, 2), (64, 3, 1)]) {
        let layer = conv_layer(out, &[kernel; 2]).with_stride(&[stride; 2]).with_bias();
        x = net.conv(&format!("conv{index}"), x, &layer)?;
        x = net.relu(&format!("relu{index}"), x)?;
    }
    let x = net.flatten(x)?;
    let x = net.dense("dense1", x, 512)?;
    let x = net.relu("relu4", x)?;
    Ok(vec![net.dense("dense2", x, 18)?])
}
