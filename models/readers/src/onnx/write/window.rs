//! Operators that slide a window.

use super::sheet::{Sheet, flag, int, ints};
use super::{Made, unwritten};
use crate::onnx::messages::Attribute;
use models::graph::{Node, ValueId};
use models::operators::{AdaptivePool, ConvTranspose, GlobalPool, Op, Pool, PoolMode, QConv, Requantize};
use models::types::DType;

pub(super) fn convolution(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let [x, w] = [node.inputs[0], node.inputs[1]];
    let kernel = sheet.extents(w)[2..].to_vec();
    let Some(window) = node.op.window() else { return unwritten(&node.op) };
    let mut attributes = vec![
        ints("kernel_shape", &kernel),
        ints("strides", window.strides),
        ints("pads", window.pads),
        ints("dilations", window.dilations),
        int("group", window.groups),
    ];
    let (operator, zeros) = match &node.op {
        Op::Conv(_) => match sheet.dtype(x) {
            DType::I8 | DType::U8 => ("ConvInteger", [0, 0]),
            dtype if dtype.is_float() => ("Conv", [0, 0]),
            dtype => return Err(format!("ONNX has no convolution of {dtype}")),
        },
        Op::QConv(QConv { x_zero, w_zero, .. }) => {
            let zeros = [*x_zero, *w_zero];
            if let Some((bias, requantize)) = sheet.take_requantization(node, 1) {
                return Ok(requantized(sheet, node, (attributes, zeros), bias, requantize));
            }
            ("ConvInteger", zeros)
        }
        Op::ConvTranspose(ConvTranspose { output_pads, .. }) => {
            if !sheet.dtype(x).is_float() {
                return Err(format!("ONNX has no transposed convolution of {}", sheet.dtype(x)));
            }
            attributes.push(ints("output_padding", output_pads));
            ("ConvTranspose", [0, 0])
        }
        other => return unwritten(other),
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
    let Op::Requantize(Requantize { to, zero, low, high, .. }) = requantize.op else {
        unreachable!("it was asked for")
    };
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
        Op::GlobalPool(GlobalPool { mode }) => Ok(global(sheet, *mode, &name)),
        Op::AdaptivePool(AdaptivePool { mode, extents }) => {
            if extents.iter().all(|&extent| extent == 1) {
                return Ok(global(sheet, *mode, &name));
            }
            let old = sheet.extents(x)[2..].to_vec();
            if old.iter().zip(extents).any(|(old, new)| *new < 1 || old % new != 0) {
                return parts(sheet, *mode, name, &old, extents);
            }
            let kernel: Vec<i64> = old.iter().zip(extents).map(|(old, new)| old / new).collect();
            let (operator, mut attributes) = reduction(*mode);
            attributes.extend([ints("kernel_shape", &kernel), ints("strides", &kernel)]);
            Ok(sheet.call(operator, &[&name], attributes))
        }
        Op::Pool(Pool { mode, kernel, strides, pads, dilations, ceil, count_pad }) => {
            let (operator, mut attributes) = reduction(*mode);
            attributes.extend([
                ints("kernel_shape", kernel),
                ints("strides", strides),
                ints("pads", pads),
                flag("ceil_mode", *ceil),
            ]);
            // ONNX Runtime fuses an average with its quantisation into an operator that has no such attribute.
            if dilations.iter().any(|&dilation| dilation != 1) {
                attributes.push(ints("dilations", dilations));
            }
            if *mode == PoolMode::Average {
                attributes.push(flag("count_include_pad", *count_pad));
            }
            Ok(sheet.call(operator, &[&name], attributes))
        }
        other => unwritten(other),
    }
}

/// Pools windows of several sizes, one dimension after the other.
fn parts(sheet: &mut Sheet<'_>, mode: PoolMode, mut name: String, old: &[i64], new: &[i64]) -> Made {
    let operator = match mode {
        PoolMode::Max => "ReduceMax",
        PoolMode::Average => "ReduceMean",
        PoolMode::Lp { .. } => return Err(format!("ONNX has no windows that make {new:?} places of {old:?}")),
    };
    for (axis, (&old, &new)) in (2..).zip(old.iter().zip(new)) {
        let axes = sheet.integers(&[axis]);
        let part = |sheet: &mut Sheet<'_>, place: i64| {
            let [start, stop] = [place * old / new, ((place + 1) * old + new - 1) / new];
            let [start, stop] = [start, stop].map(|bound| sheet.integers(&[bound]));
            let part = sheet.call("Slice", &[&name, &start, &stop, &axes], Vec::new());
            sheet.call(operator, &[&part, &axes], Vec::new())
        };
        let parts: Vec<String> = (0..new).map(|place| part(sheet, place)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        name = sheet.call("Concat", &parts, vec![int("axis", axis)]);
    }
    Ok(name)
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
