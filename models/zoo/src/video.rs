//! Residual networks for short videos, with full, mixed or factorised three-dimensional convolutions.

use super::net::{ConvLayer, Net, RELU, conv_layer};
use models::error::Result;
use models::graph::ValueId;

const EPSILON: f64 = 1e-5;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VideoTime {
    Whole,
    /// Three-dimensional convolutions in the first stage, two-dimensional ones (per frame) in later stages.
    Mixed,
    /// Each convolution is factorised into a spatial and a temporal one.
    Split,
}

pub(super) fn resnet_18(net: &mut Net, x: ValueId, time: VideoTime) -> Result<Vec<ValueId>> {
    let mut x = build_stem(net, x, time)?;
    for (stage, channels) in [64, 128, 256, 512].into_iter().enumerate() {
        for index in 0..2 {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let looks_at_time = time != VideoTime::Mixed || stage == 0;
            let kind = if time == VideoTime::Split {
                VideoKind::Split
            } else if looks_at_time {
                VideoKind::Whole
            } else {
                VideoKind::Frame
            };
            x = add_block(net, &format!("layer{}.{index}", stage + 1), x, channels, stride, kind)?;
        }
    }
    let x = net.channel_means("avgpool", x)?;
    Ok(vec![net.dense("fc", x, 400)?])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VideoKind {
    Whole,
    Frame,
    Split,
}

fn build_stem(net: &mut Net, x: ValueId, time: VideoTime) -> Result<ValueId> {
    if time == VideoTime::Split {
        let x = net.conv_norm_act("stem.space", x, &space_conv(45, 7, 2), EPSILON, &RELU)?;
        return net.conv_norm_act("stem.time", x, &over_time(64, 1), EPSILON, &RELU);
    }
    let layer = conv_layer(64, &[3, 7, 7]).with_stride(&[1, 2, 2]).with_pads(&[1, 3, 3]);
    net.conv_norm_act("stem", x, &layer, EPSILON, &RELU)
}

fn add_block(net: &mut Net, scope: &str, x: ValueId, out: i64, stride: i64, kind: VideoKind) -> Result<ValueId> {
    let channels = net.channel_count(x)?;
    // The width at which the factorised convolution has as many weights as the full one.
    let middle = (channels * out * 27) / (channels * 9 + 3 * out);
    let y = add_filter(net, &format!("{scope}.conv1"), x, out, middle, stride, kind)?;
    let y = net.relu(&format!("{scope}.relu1"), y)?;
    let y = add_filter(net, &format!("{scope}.conv2"), y, out, middle, 1, kind)?;
    let shortcut = if stride == 1 && channels == out {
        x
    } else {
        let strides = if kind == VideoKind::Frame { [1, stride, stride] } else { [stride; 3] };
        net.conv_norm(&format!("{scope}.downsample"), x, &conv_layer(out, &[1, 1, 1]).with_stride(&strides), EPSILON)?
    };
    let y = net.add(&format!("{scope}.add"), y, shortcut)?;
    net.relu(&format!("{scope}.relu2"), y)
}

fn add_filter(
    net: &mut Net,
    scope: &str,
    x: ValueId,
    out: i64,
    middle: i64,
    stride: i64,
    kind: VideoKind,
) -> Result<ValueId> {
    match kind {
        VideoKind::Whole => {
            let layer = conv_layer(out, &[3, 3, 3]).with_stride(&[stride; 3]).with_pads(&[1; 3]);
            net.conv_norm(scope, x, &layer, EPSILON)
        }
        VideoKind::Frame => net.conv_norm(scope, x, &space_conv(out, 3, stride), EPSILON),
        VideoKind::Split => {
            let x = net.conv_norm_act(&format!("{scope}.space"), x, &space_conv(middle, 3, stride), EPSILON, &RELU)?;
            net.conv_norm(&format!("{scope}.time"), x, &over_time(out, stride), EPSILON)
        }
    }
}

fn space_conv(out: i64, kernel: i64, stride: i64) -> ConvLayer {
    conv_layer(out, &[1, kernel, kernel]).with_stride(&[1, stride, stride]).with_pads(&[0, kernel / 2, kernel / 2])
}

fn over_time(out: i64, stride: i64) -> ConvLayer {
    conv_layer(out, &[3, 1, 1]).with_stride(&[stride, 1, 1]).with_pads(&[1, 0, 0])
}
