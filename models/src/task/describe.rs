//! A task in words: its kind for columns and filters, a name for tables, a line for people.

use crate::operator::{Border, Op, PoolMode, ResizeMode, ScatterOp, UnaryOp};
use crate::task::{Operand, Step, Task};
use crate::types::{Dim, TensorType};
use std::fmt::{Display, Write};

impl Task {
    /// What the anchor is, such as `conv2d` or `depthwise_conv2d`.
    pub fn kind(&self) -> String {
        let Some(anchor) = self.steps.first() else { return "empty".to_owned() };
        let types: Vec<&TensorType> = anchor.inputs.iter().filter_map(|operand| self.type_if_any(*operand)).collect();
        kind(&anchor.op, &types)
    }

    /// The kind and the epilogue, such as `conv2d+bias+relu`.
    pub fn name(&self) -> String {
        let mut name = self.kind();
        for step in self.steps.iter().skip(1) {
            name.push('+');
            name.push_str(label(&step.op));
        }
        name
    }

    /// One line with shapes and attributes, such as `conv2d f32[1,3,224,224] w[64,3,7,7] s=2 p=3 +bias +relu`.
    pub fn describe(&self) -> String {
        let mut line = self.kind();
        let Some(anchor) = self.steps.first() else { return line };
        self.describe_inputs(anchor, &mut line);
        describe_attributes(&anchor.op, &mut line);
        for step in self.steps.iter().skip(1) {
            line.push_str(" +");
            line.push_str(label(&step.op));
            describe_epilogue(&step.op, &mut line);
        }
        line
    }

    /// Tensors the anchor reads: activations with their element type, weights as `w`, per-channel vectors left out.
    fn describe_inputs(&self, anchor: &Step, line: &mut String) {
        for (index, operand) in anchor.inputs.iter().enumerate() {
            let Operand::Parameter(parameter) = operand else { continue };
            let Some(ty) = self.parameters.get(*parameter).map(|parameter| &parameter.ty) else { continue };
            if !anchor.op.is_weight(index) {
                let _ = write!(line, " {ty}");
            } else if ty.rank() > 1 {
                let _ = write!(line, " w[{}]", join(&ty.shape, ","));
            }
        }
    }
}

/// What an operator is once its shapes are known.
pub(crate) fn kind(op: &Op, inputs: &[&TensorType]) -> String {
    match op {
        Op::Conv { strides, groups, .. } => {
            let is_depthwise = *groups > 1
                && inputs.get(1).is_some_and(|w| w.shape.get(1) == Some(&Dim::Known(1)))
                && inputs.get(1).is_some_and(|w| w.shape.first() == Some(&Dim::Known(*groups)));
            format!("{}conv{}d", if is_depthwise { "depthwise_" } else { "" }, strides.len())
        }
        Op::ConvTranspose { strides, .. } => format!("conv_transpose{}d", strides.len()),
        Op::MatMul { .. } => "matmul".to_owned(),
        Op::Softmax { log: true, .. } => "log_softmax".to_owned(),
        Op::QConv { strides, dilations, pads, groups, .. } => {
            let conv = Op::Conv {
                strides: strides.clone(),
                pads: pads.clone(),
                dilations: dilations.clone(),
                groups: *groups,
            };
            format!("q_{}", kind(&conv, inputs))
        }
        Op::QMatMul { .. } => "q_matmul".to_owned(),
        Op::GroupNorm { groups, .. }
            if inputs.first().is_some_and(|x| x.shape.get(1) == Some(&Dim::Known(*groups))) =>
        {
            "instance_norm".to_owned()
        }
        Op::AdaptivePool { mode, .. } => format!("adaptive_{}_pool", mode_name(*mode)),
        Op::Pool { mode, .. } => format!("{}_pool", mode_name(*mode)),
        Op::GlobalPool { mode } => format!("global_{}_pool", mode_name(*mode)),
        Op::Unary { function } => function.name().to_owned(),
        Op::Binary { function } => function.name().to_owned(),
        Op::Dense
        | Op::BatchNorm { .. }
        | Op::ScaleShift { .. }
        | Op::LayerNorm { .. }
        | Op::Softmax { log: false, .. }
        | Op::BiasAdd { .. }
        | Op::Clip { .. }
        | Op::Cast { .. }
        | Op::Reshape { .. }
        | Op::Flatten { .. }
        | Op::Transpose { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Slice { .. }
        | Op::Resize { .. }
        | Op::Einsum { .. }
        | Op::Attention { .. }
        | Op::QDense { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::MeanVarianceNorm { .. }
        | Op::LpNorm { .. }
        | Op::Lrn { .. }
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ArgTop { .. }
        | Op::CumSum { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu
        | Op::Quantize { .. }
        | Op::Dequantize { .. }
        | Op::Requantize { .. }
        | Op::BorderPad { .. }
        | Op::Expand { .. }
        | Op::Tile { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::OneHot { .. }
        | Op::Trilu { .. }
        | Op::Rope { .. }
        | Op::Identity => op.name().to_owned(),
    }
}

/// A pointwise operator as part of an epilogue.
fn label(op: &Op) -> &'static str {
    match op {
        Op::BiasAdd { .. } => "bias",
        Op::Unary { function } => function.name(),
        Op::Binary { function } => function.name(),
        Op::Clip { low: 0.0, high: 6.0 } => "relu6",
        other => other.name(),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
fn describe_attributes(op: &Op, line: &mut String) {
    match op {
        Op::Conv { strides, pads, dilations, groups } => {
            describe_window(strides, pads, dilations, line);
            attribute(line, "g", groups, *groups != 1);
        }
        Op::ConvTranspose { strides, pads, output_pads, dilations, groups } => {
            describe_window(strides, pads, dilations, line);
            attribute(line, "op", list(output_pads), output_pads.iter().any(|&pad| pad != 0));
            attribute(line, "g", groups, *groups != 1);
        }
        Op::Pool { kernel, strides, pads, dilations, ceil, count_pad, .. } => {
            attribute(line, "k", list(kernel), true);
            describe_window(strides, pads, dilations, line);
            flag(line, "ceil", *ceil);
            flag(line, "count_pad", *count_pad);
        }
        Op::MatMul { transpose_a, transpose_b } => {
            flag(line, "ta", *transpose_a);
            flag(line, "tb", *transpose_b);
        }
        Op::ScaleShift { axis }
        | Op::BiasAdd { axis }
        | Op::LayerNorm { axis, .. }
        | Op::Softmax { axis, .. }
        | Op::RmsNorm { axis, .. }
        | Op::Dequantize { axis }
        | Op::Gather { axis }
        | Op::GatherElements { axis }
        | Op::Concat { axis } => {
            attribute(line, "axis", axis, true);
        }
        Op::Transpose { permutation } => attribute(line, "order", join(permutation, ","), true),
        Op::Pad { pads, value } => {
            attribute(line, "p", join(pads, "x"), true);
            attribute(line, "value", value, *value != 0.0);
        }
        Op::Slice { axes, starts, stops, steps } => {
            attribute(line, "axes", join(axes, "x"), true);
            attribute(line, "from", join(starts, "x"), true);
            attribute(line, "to", join(stops, "x"), true);
            attribute(line, "step", join(steps, "x"), steps.iter().any(|&step| step != 1));
        }
        Op::Resize { mode, extents } => {
            attribute(line, "to", join(extents, "x"), true);
            flag(line, resize_name(*mode), true);
        }
        Op::Reshape { shape } => attribute(line, "shape", join(shape, "x"), true),
        Op::Flatten { axis } => attribute(line, "axis", axis, true),
        Op::Unary { .. } | Op::Clip { .. } | Op::Cast { .. } | Op::Quantize { .. } | Op::Requantize { .. } => {
            let mut numbers = String::new();
            describe_epilogue(op, &mut numbers);
            line.push_str(if numbers.is_empty() { "" } else { " " });
            line.push_str(&numbers);
        }
        Op::Einsum { equation } => {
            let _ = write!(line, " {equation}");
        }
        Op::Attention { causal, scale, window, softcap } => {
            flag(line, "causal", *causal);
            attribute(line, "scale", scale, true);
            attribute(line, "window", window.unwrap_or(0), window.is_some());
            attribute(line, "softcap", softcap.unwrap_or(0.0), softcap.is_some());
        }
        Op::QConv { strides, pads, dilations, groups, x_zero, w_zero } => {
            describe_window(strides, pads, dilations, line);
            attribute(line, "g", groups, *groups != 1);
            describe_zeros(*x_zero, *w_zero, line);
        }
        Op::QDense { x_zero: a, w_zero: b } | Op::QMatMul { a_zero: a, b_zero: b } => describe_zeros(*a, *b, line),
        Op::GroupNorm { groups, .. } => attribute(line, "g", groups, true),
        Op::MeanVarianceNorm { axes, .. } => attribute(line, "axes", join(axes, "x"), true),
        Op::LpNorm { axis, order } => {
            attribute(line, "axis", axis, true);
            attribute(line, "order", order, true);
        }
        Op::Lrn { size, .. } => attribute(line, "size", size, true),
        Op::AdaptivePool { extents, .. } => attribute(line, "to", join(extents, "x"), true),
        Op::Reduce { axes, keep, .. } => {
            attribute(line, "axes", join(axes, "x"), true);
            flag(line, "keep", *keep);
        }
        Op::ArgReduce { axis, keep, last, .. } => {
            attribute(line, "axis", axis, true);
            flag(line, "keep", *keep);
            flag(line, "last", *last);
        }
        Op::ArgTop { count, axis, largest } => {
            attribute(line, "count", count, true);
            attribute(line, "axis", axis, true);
            flag(line, "smallest", !*largest);
        }
        Op::CumSum { axis, exclusive, reverse } => {
            attribute(line, "axis", axis, true);
            flag(line, "exclusive", *exclusive);
            flag(line, "reverse", *reverse);
        }
        Op::BorderPad { border, pads } => {
            attribute(line, "p", join(pads, "x"), true);
            flag(line, border_name(*border), true);
        }
        Op::Expand { shape } => attribute(line, "to", join(shape, "x"), true),
        Op::Tile { repeats } => attribute(line, "times", join(repeats, "x"), true),
        Op::GatherNd { batch } => attribute(line, "batch", batch, *batch != 0),
        Op::ScatterElements { axis, combine } => {
            attribute(line, "axis", axis, true);
            flag(line, scatter_name(*combine), true);
        }
        Op::ScatterNd { combine } => flag(line, scatter_name(*combine), true),
        Op::OneHot { axis, depth, .. } => {
            attribute(line, "axis", axis, true);
            attribute(line, "depth", depth, true);
        }
        Op::Trilu { upper, diagonal } => {
            flag(line, if *upper { "upper" } else { "lower" }, true);
            attribute(line, "diagonal", diagonal, *diagonal != 0);
        }
        Op::Rope { rotary, interleaved } => {
            attribute(line, "rotary", rotary, true);
            flag(line, "interleaved", *interleaved);
        }
        Op::Dense
        | Op::BatchNorm { .. }
        | Op::GlobalPool { .. }
        | Op::Binary { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu
        | Op::Identity => {}
    }
}

/// The numbers that tell two epilogues of one name apart.
fn describe_epilogue(op: &Op, line: &mut String) {
    let _ = match op {
        Op::Clip { low: 0.0, high: 6.0 } => Ok(()),
        Op::Clip { low, high } => write!(line, "({low},{high})"),
        Op::Cast { to } | Op::Quantize { to, .. } | Op::Requantize { to, .. } => write!(line, "({to})"),
        Op::Unary {
            function:
                UnaryOp::LeakyRelu { alpha }
                | UnaryOp::Elu { alpha }
                | UnaryOp::Celu { alpha }
                | UnaryOp::ThresholdedRelu { alpha }
                | UnaryOp::Swish { beta: alpha },
        } => write!(line, "({alpha})"),
        Op::Unary {
            function: UnaryOp::HardSigmoidOf { slope: a, offset: b } | UnaryOp::Shrink { lambda: a, bias: b },
        } => write!(line, "({a},{b})"),
        _ => Ok(()),
    };
}

fn describe_zeros(first: i64, second: i64, line: &mut String) {
    attribute(line, "zero", format_args!("{first},{second}"), first != 0 || second != 0);
}

fn describe_window(strides: &[i64], pads: &[i64], dilations: &[i64], line: &mut String) {
    attribute(line, "s", list(strides), strides.iter().any(|&stride| stride != 1));
    attribute(line, "p", list(pads), pads.iter().any(|&pad| pad != 0));
    attribute(line, "d", list(dilations), dilations.iter().any(|&dilation| dilation != 1));
}

fn attribute(line: &mut String, key: &str, value: impl Display, is_shown: bool) {
    if is_shown {
        let _ = write!(line, " {key}={value}");
    }
}

fn flag(line: &mut String, name: &str, is_set: bool) {
    if is_set {
        let _ = write!(line, " {name}");
    }
}

/// One number when all are equal, else all of them.
fn list(numbers: &[i64]) -> String {
    match numbers {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => first.to_string(),
        _ => join(numbers, "x"),
    }
}

fn join<T: Display>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

pub(crate) fn mode_name(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Max => "max",
        PoolMode::Average => "average",
        PoolMode::Lp { .. } => "lp",
    }
}

fn border_name(border: Border) -> &'static str {
    match border {
        Border::Reflect => "reflect",
        Border::Edge => "edge",
        Border::Wrap => "wrap",
    }
}

fn scatter_name(combine: ScatterOp) -> &'static str {
    match combine {
        ScatterOp::Replace => "replace",
        ScatterOp::Add => "add",
        ScatterOp::Mul => "mul",
        ScatterOp::Max => "max",
        ScatterOp::Min => "min",
    }
}

fn resize_name(mode: ResizeMode) -> &'static str {
    match mode {
        ResizeMode::Nearest => "nearest",
        ResizeMode::Linear => "linear",
        ResizeMode::LinearAligned => "linear_aligned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::tests::{conv_bias_relu, single};
    use expect_test::expect;

    #[test]
    fn an_anchor_with_its_epilogue() {
        let task = conv_bias_relu();
        expect!["conv2d+bias+relu"].assert_eq(&task.name());
        expect!["conv2d f32[1,3,224,224] w[64,3,7,7] s=2 p=3 +bias +relu"].assert_eq(&task.describe());
    }

    #[test]
    fn kinds_follow_shapes() {
        let depthwise = Op::Conv { strides: vec![1, 2], pads: vec![0, 1, 0, 1], dilations: vec![2, 2], groups: 8 };
        let task = single(depthwise, &["f32[1,8,9,9]", "f32[8,1,3,3]"]);
        expect!["depthwise_conv2d f32[1,8,9,9] w[8,1,3,3] s=1x2 p=0x1x0x1 d=2 g=8"].assert_eq(&task.describe());
        let grouped = Op::Conv { strides: vec![1], pads: vec![0, 0], dilations: vec![1], groups: 2 };
        expect!["conv1d f32[1,8,9] w[4,4,3] g=2"].assert_eq(&single(grouped, &["f32[1,8,9]", "f32[4,4,3]"]).describe());
        let product = Op::MatMul { transpose_a: false, transpose_b: true };
        expect!["matmul f32[2,3] f32[4,3] tb"].assert_eq(&single(product, &["f32[2,3]", "f32[4,3]"]).describe());
        let leaky = Op::Unary { function: UnaryOp::LeakyRelu { alpha: 0.1 } };
        expect!["leaky_relu f32[4] (0.1)"].assert_eq(&single(leaky, &["f32[4]"]).describe());
    }
}
