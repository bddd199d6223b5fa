//! Writes operators that move elements.

use super::sheet::{Sheet, flag_attribute, int_attribute, ints_attribute, text_attribute};
use super::{NameResult, refuse_operator};
use models::graph::Node;
use models::operators::{
    Border, BorderPad, Concat, Expand, Gather, GatherElements, GatherNd, OneHot, Op, Pad, Resize, ResizeMode, Rope,
    ScatterElements, ScatterNd, ScatterOp, Slice, Tile, Transpose, Trilu,
};
use models::types::DType;

pub(super) fn write_movement(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let inputs = &node.inputs;
    let x = sheet.value_name(inputs[0]);
    let extents = sheet.extents(inputs[0]);
    let names = sheet.value_names(inputs);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(match &node.op {
        // The extents of the result replace inferred ones (-1 and 0).
        Op::Reshape(_) | Op::Flatten(_) => {
            let wanted = sheet.extents(node.outputs[0]);
            sheet.reshape(&x, &wanted)
        }
        Op::Identity(_) => x,
        Op::Transpose(Transpose { permutation }) => {
            sheet.add_node("Transpose", &names, vec![ints_attribute("perm", permutation)])
        }
        Op::Concat(Concat { axis }) => sheet.add_node("Concat", &names, vec![int_attribute("axis", *axis)]),
        Op::Pad(Pad { pads, value }) => {
            let (pads, value) = (sheet.add_integers(pads), sheet.add_scalar(sheet.dtype(inputs[0]), *value));
            sheet.add_node("Pad", &[&x, &pads, &value], vec![text_attribute("mode", "constant")])
        }
        Op::BorderPad(BorderPad { border, pads }) => {
            let mode = match border {
                Border::Reflect => "reflect",
                Border::Edge => "edge",
                Border::Wrap => "wrap",
            };
            let pads = sheet.add_integers(pads);
            sheet.add_node("Pad", &[&x, &pads], vec![text_attribute("mode", mode)])
        }
        Op::Slice(Slice { axes, starts, stops, steps }) => {
            // In ONNX, a stop of -1 is the last element; a stop before the first element is `-extent - 1`.
            let before = |(stop, axis): (&i64, &i64)| match (stop, usize::try_from(*axis)) {
                (-1, Ok(axis)) => -extents[axis] - 1,
                (stop, _) => *stop,
            };
            let stops: Vec<i64> = stops.iter().zip(axes).map(before).collect();
            write_slice(sheet, &x, [starts, &stops, axes, steps])
        }
        Op::Expand(Expand { shape }) => {
            let shape = sheet.add_integers(shape);
            sheet.add_node("Expand", &[&x, &shape], Vec::new())
        }
        Op::Tile(Tile { repeats }) => {
            let repeats = sheet.add_integers(repeats);
            sheet.add_node("Tile", &[&x, &repeats], Vec::new())
        }
        Op::Gather(Gather { axis }) => sheet.add_node("Gather", &names, vec![int_attribute("axis", *axis)]),
        Op::GatherElements(GatherElements { axis }) => {
            sheet.add_node("GatherElements", &names, vec![int_attribute("axis", *axis)])
        }
        Op::GatherNd(GatherNd { batch }) => {
            let at = wide_indices(sheet, node);
            sheet.add_node("GatherND", &[&x, &at], vec![int_attribute("batch_dims", *batch)])
        }
        Op::ScatterElements(ScatterElements { axis, combine }) => {
            let attributes =
                vec![int_attribute("axis", *axis), text_attribute("reduction", scatter_reduction(*combine))];
            sheet.add_node("ScatterElements", &names, attributes)
        }
        Op::ScatterNd(ScatterNd { combine }) => {
            let at = wide_indices(sheet, node);
            sheet.add_node(
                "ScatterND",
                &[&x, &at, names[2]],
                vec![text_attribute("reduction", scatter_reduction(*combine))],
            )
        }
        Op::OneHot(OneHot { axis, depth, on, off, to }) => {
            let depth = sheet.add_scalar(DType::I64, *depth as f64);
            let values = reference::Tensor::from_numbers(models::types::TensorType::new(*to, &[2]), &[*off, *on]);
            let values = sheet.add_constant(&values.map_err(|error| error.to_string())?);
            if !extents.is_empty() {
                return Ok(sheet.add_node("OneHot", &[&x, &depth, &values], vec![int_attribute("axis", *axis)]));
            }
            // In ONNX, the indices have at least one dimension.
            let row = sheet.reshape(&x, &[1]);
            let rows = sheet.add_node("OneHot", &[&row, &depth, &values], vec![int_attribute("axis", -1)]);
            sheet.reshape(&rows, &sheet.extents(node.outputs[0]))
        }
        Op::Trilu(Trilu { upper, diagonal }) => {
            let diagonal = sheet.add_scalar(DType::I64, *diagonal as f64);
            sheet.add_node("Trilu", &[&x, &diagonal], vec![flag_attribute("upper", *upper)])
        }
        Op::Resize(Resize { mode, extents: spatial }) => {
            let (mode, places) = match mode {
                ResizeMode::Nearest => ("nearest", "asymmetric"),
                ResizeMode::Linear => ("linear", "half_pixel"),
                ResizeMode::LinearAligned => ("linear", "align_corners"),
            };
            let sizes = sheet.add_integers(&[&extents[..2], spatial].concat());
            let attributes = vec![
                text_attribute("mode", mode),
                text_attribute("coordinate_transformation_mode", places),
                text_attribute("nearest_mode", "floor"),
            ];
            sheet.add_node("Resize", &[&x, "", "", &sizes], attributes)
        }
        Op::Rope(Rope { rotary, interleaved }) => {
            write_rope(sheet, [&x, names[1], names[2]], &extents, *rotary, *interleaved)
        }
        other => return refuse_operator(other),
    })
}

fn wide_indices(sheet: &mut Sheet<'_>, node: &Node) -> String {
    let at = sheet.value_name(node.inputs[1]);
    if sheet.dtype(node.inputs[1]) == DType::I64 { at } else { sheet.cast(&at, DType::I64) }
}

fn scatter_reduction(combine: ScatterOp) -> &'static str {
    match combine {
        ScatterOp::Replace => "none",
        ScatterOp::Add => "add",
        ScatterOp::Mul => "mul",
        ScatterOp::Max => "max",
        ScatterOp::Min => "min",
    }
}

/// Writes a slice; the lists are starts, stops, axes and steps.
fn write_slice(sheet: &mut Sheet<'_>, x: &str, lists: [&[i64]; 4]) -> String {
    let lists = lists.map(|list| sheet.add_integers(list));
    sheet.add_node("Slice", &[x, &lists[0], &lists[1], &lists[2], &lists[3]], Vec::new())
}

fn write_rope(sheet: &mut Sheet<'_>, names: [&str; 3], extents: &[i64], rotary: i64, interleaved: bool) -> String {
    let [x, cos, sin] = names;
    let (axis, width) = (extents.len() as i64 - 1, extents[extents.len() - 1]);
    let mut part = |from: i64, to: i64, step: i64| write_slice(sheet, x, [&[from], &[to], &[axis], &[step]]);
    let (first, second) = match interleaved {
        true => (part(0, rotary, 2), part(1, rotary, 2)),
        false => (part(0, rotary / 2, 1), part(rotary / 2, rotary, 1)),
    };
    let rest = (rotary < width).then(|| part(rotary, width, 1));
    let mut product = |a: &str, b: &str| sheet.add_node("Mul", &[a, b], Vec::new());
    let [a, b] = [product(&first, cos), product(&second, sin)];
    let [c, d] = [product(&second, cos), product(&first, sin)];
    let mut rotated = vec![sheet.add_node("Sub", &[&a, &b], Vec::new()), sheet.add_node("Add", &[&c, &d], Vec::new())];
    if interleaved {
        let last = extents.len() - 1;
        let mut columns = extents.to_vec();
        columns[last] = rotary / 2;
        columns.push(1);
        let apart: Vec<String> = rotated.iter().map(|name| sheet.reshape(name, &columns)).collect();
        let pairs = sheet.add_node("Concat", &[&apart[0], &apart[1]], vec![int_attribute("axis", axis + 1)]);
        columns.pop();
        columns[last] = rotary;
        rotated = vec![sheet.reshape(&pairs, &columns)];
    }
    rotated.extend(rest);
    let rotated: Vec<&str> = rotated.iter().map(String::as_str).collect();
    if rotated.len() == 1 {
        rotated[0].to_owned()
    } else {
        sheet.add_node("Concat", &rotated, vec![int_attribute("axis", axis)])
    }
}
