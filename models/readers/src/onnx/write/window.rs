//! Operators that slide a window.

use super::Made;
use super::sheet::{Sheet, flag, int, ints};
use crate::onnx::messages::Attribute;
use models::graph::{Node, ValueId};
use models::operator::{Op, PoolMode};
use models::types::DType;

pub(super) fn convolution(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let [x, w] = [node.inputs[0], node.inputs[1]];
    let kernel = sheet.extents(w)[2..].to_vec();
    let windows = |strides: &[i64], pads: &[i64], dilations: &[i64], groups: i64| {
        vec![
            ints("kernel_shape", &kernel),
            ints("strides", strides),
            ints("pads", pads),
            ints("dilations", dilations),
            int("group", groups),
        ]
    };
    let (operator, attributes, zeros) = match &node.op {
        Op::Conv { strides, pads, dilations, groups } => {
            let operator = match sheet.dtype(x) {
                DType::I8 | DType::U8 => "ConvInteger",
                dtype if dtype.is_float() => "Conv",
                dtype => return Err(format!("ONNX has no convolution of {dtype}")),
            };
            (operator, windows(strides, pads, dilations, *groups), [0, 0])
        }
        Op::QConv { strides, pads, dilations, groups, x_zero, w_zero } => {
            let (windows, zeros) = (windows(strides, pads, dilations, *groups), [*x_zero, *w_zero]);
            if let Some((bias, requantize)) = sheet.take_requantization(node, 1) {
                return Ok(requantized(sheet, node, (windows, zeros), bias, requantize));
            }
            ("ConvInteger", windows, zeros)
        }
        Op::ConvTranspose { strides, pads, output_pads, dilations, groups } => {
            if !sheet.dtype(x).is_float() {
                return Err(format!("ONNX has no transposed convolution of {}", sheet.dtype(x)));
            }
            let mut attributes = windows(strides, pads, dilations, *groups);
            attributes.push(ints("output_padding", output_pads));
            ("ConvTranspose", attributes, [0, 0])
        }
        other => unreachable!("`{}` is no convolution", other.name()),
    };
    let mut inputs = vec![sheet.name(x), sheet.name(w)];
    let mut result = None;
    if operator == "ConvInteger" {
        for (id, zero) in [x, w].into_iter().zip(zeros) {
            inputs.push(sheet.number(sheet.dtype(id), zero as f64));
        }
    } else if let Some((bias, sum)) = sheet.take_bias(node, 1) {
        inputs.push(sheet.name(bias));
        result = Some(sum);
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let made = sheet.call(operator, &inputs, attributes);
    if let Some(sum) = result {
        sheet.made(sum, made.clone());
    }
    Ok(made)
}

/// A convolution of bytes whose sums become bytes at once. Only the quotient of the scales counts: it stands where that of
/// the weights does, and the others are one.
fn requantized(
    sheet: &mut Sheet<'_>,
    node: &Node,
    (windows, zeros): (Vec<Attribute>, [i64; 2]),
    bias: Option<ValueId>,
    requantize: &Node,
) -> String {
    let Op::Requantize { to, zero, low, high, .. } = requantize.op else { unreachable!("it was asked for") };
    let [x, w] = [node.inputs[0], node.inputs[1]];
    let (scale, one) = (sheet.name(requantize.inputs[1]), sheet.number(DType::F32, 1.0));
    let [x_zero, w_zero] = [(x, zeros[0]), (w, zeros[1])].map(|(id, zero)| sheet.number(sheet.dtype(id), zero as f64));
    let y_zero = sheet.number(to, zero as f64);
    let mut inputs = vec![sheet.name(x), one.clone(), x_zero, sheet.name(w), scale, w_zero, one, y_zero];
    inputs.extend(bias.map(|bias| sheet.name(bias)));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mut made = sheet.call("QLinearConv", &inputs, windows);
    if to.integer_range() != Some((low, high)) {
        let (low, high) = (sheet.number(to, low as f64), sheet.number(to, high as f64));
        made = sheet.call("Clip", &[&made, &low, &high], Vec::new());
    }
    sheet.made(requantize.outputs[0], made.clone());
    made
}

pub(super) fn pool(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let x = node.inputs[0];
    let name = sheet.name(x);
    match &node.op {
        Op::GlobalPool { mode } => Ok(global(sheet, *mode, &name)),
        Op::AdaptivePool { mode, extents } => {
            if extents.iter().all(|&extent| extent == 1) {
                return Ok(global(sheet, *mode, &name));
            }
            let old = sheet.extents(x)[2..].to_vec();
            if old.iter().zip(extents).any(|(old, new)| *new < 1 || old % new != 0) {
                return Err(format!("ONNX has no windows that make {extents:?} places of {old:?}"));
            }
            let kernel: Vec<i64> = old.iter().zip(extents).map(|(old, new)| old / new).collect();
            let (operator, mut attributes) = reduction(*mode);
            attributes.extend([ints("kernel_shape", &kernel), ints("strides", &kernel)]);
            Ok(sheet.call(operator, &[&name], attributes))
        }
        Op::Pool { mode, kernel, strides, pads, dilations, ceil, count_pad } => {
            let (operator, mut attributes) = reduction(*mode);
            attributes.extend([
                ints("kernel_shape", kernel),
                ints("strides", strides),
                ints("pads", pads),
                ints("dilations", dilations),
                flag("ceil_mode", *ceil),
            ]);
            if *mode == PoolMode::Average {
                attributes.push(flag("count_include_pad", *count_pad));
            }
            Ok(sheet.call(operator, &[&name], attributes))
        }
        other => unreachable!("`{}` is no pool", other.name()),
    }
}

fn reduction(mode: PoolMode) -> (&'static str, Vec<Attribute>) {
    match mode {
        PoolMode::Max => ("MaxPool", Vec::new()),
        PoolMode::Average => ("AveragePool", Vec::new()),
        PoolMode::Lp { order } => ("LpPool", vec![int("p", order)]),
    }
}

fn global(sheet: &mut Sheet<'_>, mode: PoolMode, name: &str) -> String {
    match mode {
        PoolMode::Max => sheet.call("GlobalMaxPool", &[name], Vec::new()),
        PoolMode::Average => sheet.call("GlobalAveragePool", &[name], Vec::new()),
        PoolMode::Lp { order } => sheet.call("GlobalLpPool", &[name], vec![int("p", order)]),
    }
}
