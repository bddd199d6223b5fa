//! Operators that slide a window.

use super::Made;
use super::sheet::{Sheet, flag, int, ints};
use models::graph::Node;
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
            ("ConvInteger", windows(strides, pads, dilations, *groups), [*x_zero, *w_zero])
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

fn reduction(mode: PoolMode) -> (&'static str, Vec<crate::onnx::messages::Attribute>) {
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
