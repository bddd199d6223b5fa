//! Writes operators with a sliding window.

use super::sheet::{Sheet, flag_attribute, int_attribute, ints_attribute};
use super::{NameResult, refuse_operator};
use crate::onnx::messages::Attribute;
use models::graph::{Node, ValueId};
use models::operators::{AdaptivePool, ConvTranspose, GlobalPool, Op, Pool, PoolMode, QConv, Requantize};
use models::types::DType;

pub(super) fn write_convolution(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let [x, w] = [node.inputs[0], node.inputs[1]];
    let kernel = sheet.extents(w)[2..].to_vec();
    let Some(window) = node.op.window() else { return refuse_operator(&node.op) };
    let mut attributes = vec![
        ints_attribute("kernel_shape", &kernel),
        ints_attribute("strides", window.strides),
        ints_attribute("pads", window.pads),
        ints_attribute("dilations", window.dilations),
        int_attribute("group", window.groups),
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
                return Ok(write_requantised(sheet, node, (attributes, zeros), bias, requantize));
            }
            ("ConvInteger", zeros)
        }
        Op::ConvTranspose(ConvTranspose { output_pads, .. }) => {
            if !sheet.dtype(x).is_float() {
                return Err(format!("ONNX has no transposed convolution of {}", sheet.dtype(x)));
            }
            attributes.push(ints_attribute("output_padding", output_pads));
            ("ConvTranspose", [0, 0])
        }
        other => return refuse_operator(other),
    };
    let mut inputs = vec![sheet.value_name(x), sheet.value_name(w)];
    let mut result = None;
    if operator == "ConvInteger" {
        for (id, zero) in [x, w].into_iter().zip(zeros) {
            inputs.push(sheet.add_scalar(sheet.dtype(id), zero as f64));
        }
    } else if let Some((bias, sum)) = sheet.take_bias(node, 1) {
        inputs.push(sheet.value_name(bias));
        result = Some(sum);
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let made = sheet.add_node(operator, &inputs, attributes);
    if let Some(sum) = result {
        sheet.set_name(sum, made.clone());
    }
    Ok(made)
}

/// Writes one `QLinearConv` with the requantisation scale as the scale of the weights; data and result have scale 1.
fn write_requantised(
    sheet: &mut Sheet<'_>,
    node: &Node,
    (windows, zeros): (Vec<Attribute>, [i64; 2]),
    bias: Option<ValueId>,
    requantize: &Node,
) -> String {
    let Op::Requantize(Requantize { to, zero, low, high, .. }) = requantize.op else {
        unreachable!("the caller passes a requantisation")
    };
    let [x, w] = [node.inputs[0], node.inputs[1]];
    let (scale, one) = (sheet.value_name(requantize.inputs[1]), sheet.add_scalar(DType::F32, 1.0));
    let [x_zero, w_zero] =
        [(x, zeros[0]), (w, zeros[1])].map(|(id, zero)| sheet.add_scalar(sheet.dtype(id), zero as f64));
    let y_zero = sheet.add_scalar(to, zero as f64);
    let mut inputs = vec![sheet.value_name(x), one.clone(), x_zero, sheet.value_name(w), scale, w_zero, one, y_zero];
    inputs.extend(bias.map(|bias| sheet.value_name(bias)));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mut made = sheet.add_node("QLinearConv", &inputs, windows);
    if to.integer_range() != Some((low, high)) {
        let (low, high) = (sheet.add_scalar(to, low as f64), sheet.add_scalar(to, high as f64));
        made = sheet.add_node("Clip", &[&made, &low, &high], Vec::new());
    }
    sheet.set_name(requantize.outputs[0], made.clone());
    made
}

pub(super) fn write_pool(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let x = node.inputs[0];
    let name = sheet.value_name(x);
    match &node.op {
        Op::GlobalPool(GlobalPool { mode }) => Ok(write_global_pool(sheet, *mode, &name)),
        Op::AdaptivePool(AdaptivePool { mode, extents }) => {
            if extents.iter().all(|&extent| extent == 1) {
                return Ok(write_global_pool(sheet, *mode, &name));
            }
            let old = sheet.extents(x)[2..].to_vec();
            if old.iter().zip(extents).any(|(old, new)| *new < 1 || old % new != 0) {
                return pool_parts(sheet, *mode, name, &old, extents);
            }
            let kernel: Vec<i64> = old.iter().zip(extents).map(|(old, new)| old / new).collect();
            let (operator, mut attributes) = pool_operator(*mode);
            attributes.extend([ints_attribute("kernel_shape", &kernel), ints_attribute("strides", &kernel)]);
            Ok(sheet.add_node(operator, &[&name], attributes))
        }
        Op::Pool(Pool { mode, kernel, strides, pads, dilations, ceil, count_pad }) => {
            let (operator, mut attributes) = pool_operator(*mode);
            attributes.extend([
                ints_attribute("kernel_shape", kernel),
                ints_attribute("strides", strides),
                ints_attribute("pads", pads),
                flag_attribute("ceil_mode", *ceil),
            ]);
            // ONNX Runtime fuses an average pool and its quantisation into an operator that rejects `dilations`.
            if dilations.iter().any(|&dilation| dilation != 1) {
                attributes.push(ints_attribute("dilations", dilations));
            }
            if *mode == PoolMode::Average {
                attributes.push(flag_attribute("count_include_pad", *count_pad));
            }
            Ok(sheet.add_node(operator, &[&name], attributes))
        }
        other => refuse_operator(other),
    }
}

/// Writes an adaptive pool with windows of different sizes as slices and reductions, one dimension after the other.
fn pool_parts(sheet: &mut Sheet<'_>, mode: PoolMode, mut name: String, old: &[i64], new: &[i64]) -> NameResult {
    let operator = match mode {
        PoolMode::Max => "ReduceMax",
        PoolMode::Average => "ReduceMean",
        PoolMode::Lp { .. } => return Err(format!("ONNX cannot pool {old:?} elements to {new:?} with this norm")),
    };
    for (axis, (&old, &new)) in (2..).zip(old.iter().zip(new)) {
        let axes = sheet.add_integers(&[axis]);
        let part = |sheet: &mut Sheet<'_>, place: i64| {
            let [start, stop] = [place * old / new, ((place + 1) * old + new - 1) / new];
            let [start, stop] = [start, stop].map(|bound| sheet.add_integers(&[bound]));
            let part = sheet.add_node("Slice", &[&name, &start, &stop, &axes], Vec::new());
            sheet.add_node(operator, &[&part, &axes], Vec::new())
        };
        let parts: Vec<String> = (0..new).map(|place| part(sheet, place)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        name = sheet.add_node("Concat", &parts, vec![int_attribute("axis", axis)]);
    }
    Ok(name)
}

fn pool_operator(mode: PoolMode) -> (&'static str, Vec<Attribute>) {
    match mode {
        PoolMode::Max => ("MaxPool", Vec::new()),
        PoolMode::Average => ("AveragePool", Vec::new()),
        PoolMode::Lp { order } => ("LpPool", vec![int_attribute("p", order)]),
    }
}

fn write_global_pool(sheet: &mut Sheet<'_>, mode: PoolMode, name: &str) -> String {
    match mode {
        PoolMode::Max => sheet.add_node("GlobalMaxPool", &[name], Vec::new()),
        PoolMode::Average => sheet.add_node("GlobalAveragePool", &[name], Vec::new()),
        PoolMode::Lp { order } => sheet.add_node("GlobalLpPool", &[name], vec![int_attribute("p", order)]),
    }
}
