//! Networks with an image as output: DCGAN's generator and U-Net.

use super::net::{Net, RELU, same_conv};
use models::error::Result;
use models::graph::ValueId;
use models::operators::UnaryOp;

const EPSILON: f64 = 1e-5;

pub(super) fn build_dcgan(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let batch = net.extents(x)?[0];
    let x = net.dense("project", x, 1024 * 4 * 4)?;
    let x = net.relu("project.relu", x)?;
    let mut x = net.reshape("project.reshape", x, &[batch, 1024, 4, 4])?;
    for (index, out) in (1..).zip([512, 256, 128]) {
        let scope = format!("up{index}");
        x = net.conv_transpose(&scope, x, out, [4, 2, 1], false)?;
        x = net.batch_norm(&format!("{scope}.bn"), x, EPSILON)?;
        x = net.relu(&format!("{scope}.relu"), x)?;
    }
    let x = net.conv_transpose("up4", x, 3, [4, 2, 1], false)?;
    Ok(vec![net.unary("tanh", x, UnaryOp::Tanh)?])
}

pub(super) fn build_unet(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let mut x = double_conv(net, "inc", x, 64)?;
    let mut seen = Vec::new();
    for (index, channels) in (1..).zip([128, 256, 512, 1024]) {
        seen.push(x);
        x = net.max_pool(&format!("down{index}.pool"), x, 2, 2, 0)?;
        x = double_conv(net, &format!("down{index}"), x, channels)?;
    }
    for (index, channels) in (1..).zip([512, 256, 128, 64]) {
        let scope = format!("up{index}");
        x = net.conv_transpose(&format!("{scope}.up"), x, channels, [2, 2, 0], true)?;
        let level = seen.pop().expect("as many levels up as down");
        x = net.concat(&format!("{scope}.concat"), &[level, x])?;
        x = double_conv(net, &scope, x, channels)?;
    }
    Ok(vec![net.conv("outc", x, &same_conv(2, 1).with_bias())?])
}

fn double_conv(net: &mut Net, scope: &str, x: ValueId, channels: i64) -> Result<ValueId> {
    let x = net.conv_norm_act(&format!("{scope}.first"), x, &same_conv(channels, 3), EPSILON, &RELU)?;
    net.conv_norm_act(&format!("{scope}.second"), x, &same_conv(channels, 3), EPSILON, &RELU)
}
