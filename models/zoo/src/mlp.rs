//! A multilayer perceptron with three layers, for recognising handwritten digits.

use super::net::Net;
use models::error::Result;
use models::graph::ValueId;
use models::operators::{Op, Softmax};

pub(super) fn build_mlp(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let x = net.flatten(x)?;
    let x = net.dense("fc1", x, 128)?;
    let x = net.relu("relu1", x)?;
    let x = net.dense("fc2", x, 64)?;
    let x = net.relu("relu2", x)?;
    let x = net.dense("fc3", x, 10)?;
    Ok(vec![net.push_op("softmax", Op::Softmax(Softmax { axis: 1, log: false }), &[x])?])
}
