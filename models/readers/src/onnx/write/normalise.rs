//! Writes normalisations and reductions.

use super::sheet::{Sheet, flag_attribute, float_attribute, int_attribute, ints_attribute};
use super::{NameResult, refuse_operator};
use models::graph::Node;
use models::operators::{
    ArgReduce, ArgTop, BatchNorm, CumSum, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, Op, Reduce, ReduceOp,
    RmsNorm, Softmax,
};
use models::types::DType;

pub(super) fn write_normalisation(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let inputs = &node.inputs;
    let (rank, dtype) = (sheet.rank(inputs[0]), sheet.dtype(inputs[0]));
    let x = sheet.value_name(inputs[0]);
    match &node.op {
        Op::BatchNorm(BatchNorm { epsilon }) => {
            let names = sheet.value_names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.add_node("BatchNormalization", &names, vec![float_attribute("epsilon", *epsilon)]))
        }
        Op::LayerNorm(LayerNorm { axis, epsilon }) => {
            let (scale, shift) = (sheet.value_name(inputs[1]), sheet.value_name(inputs[2]));
            let attributes = vec![int_attribute("axis", *axis), float_attribute("epsilon", *epsilon)];
            Ok(sheet.add_node("LayerNormalization", &[&x, &scale, &shift], attributes))
        }
        Op::Softmax(Softmax { axis, log }) => {
            Ok(sheet.add_node(if *log { "LogSoftmax" } else { "Softmax" }, &[&x], vec![int_attribute("axis", *axis)]))
        }
        // Written in the form that libraries recognise.
        Op::RmsNorm(RmsNorm { axis, epsilon }) => {
            let two = sheet.add_scalar(dtype, 2.0);
            let squares = sheet.add_node("Pow", &[&x, &two], Vec::new());
            let axes: Vec<i64> = (*axis..rank as i64).collect();
            let axes = sheet.add_integers(&axes);
            let mean = sheet.add_node("ReduceMean", &[&squares, &axes], vec![flag_attribute("keepdims", true)]);
            let epsilon = sheet.add_scalar(dtype, *epsilon);
            let sum = sheet.add_node("Add", &[&mean, &epsilon], Vec::new());
            let root = sheet.add_node("Sqrt", &[&sum], Vec::new());
            let unit = sheet.add_node("Div", &[&x, &root], Vec::new());
            let scale = sheet.value_name(inputs[1]);
            Ok(sheet.add_node("Mul", &[&unit, &scale], Vec::new()))
        }
        Op::GroupNorm(GroupNorm { groups, epsilon }) => {
            let extents = sheet.extents(inputs[0]);
            if extents.get(1) == Some(groups) && rank > 2 {
                let (scale, shift) = (sheet.value_name(inputs[1]), sheet.value_name(inputs[2]));
                return Ok(sheet.add_node(
                    "InstanceNormalization",
                    &[&x, &scale, &shift],
                    vec![float_attribute("epsilon", *epsilon)],
                ));
            }
            let elements: i64 = extents[1..].iter().product();
            let rows = sheet.reshape(&x, &[extents[0], *groups, elements / groups]);
            let (ones, zeros) = (sheet.add_filled(dtype, &[*groups], 1.0), sheet.add_filled(dtype, &[*groups], 0.0));
            let unit = sheet.add_node(
                "InstanceNormalization",
                &[&rows, &ones, &zeros],
                vec![float_attribute("epsilon", *epsilon)],
            );
            let unit = sheet.reshape(&unit, &extents);
            let (scale, shift) = (sheet.broadcast_along(inputs[1], 1, rank), sheet.broadcast_along(inputs[2], 1, rank));
            let scaled = sheet.add_node("Mul", &[&unit, &scale], Vec::new());
            Ok(sheet.add_node("Add", &[&scaled, &shift], Vec::new()))
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => match *epsilon {
            1e-9 => Ok(sheet.add_node("MeanVarianceNormalization", &[&x], vec![ints_attribute("axes", axes)])),
            other => Err(format!("epsilon is {other}, but ONNX always uses 1e-9")),
        },
        Op::LpNorm(LpNorm { axis, order }) => {
            Ok(sheet.add_node("LpNormalization", &[&x], vec![int_attribute("axis", *axis), int_attribute("p", *order)]))
        }
        Op::Lrn(Lrn { size, alpha, beta, bias }) => {
            let attributes = vec![
                int_attribute("size", *size),
                float_attribute("alpha", *alpha),
                float_attribute("beta", *beta),
                float_attribute("bias", *bias),
            ];
            Ok(sheet.add_node("LRN", &[&x], attributes))
        }
        other => refuse_operator(other),
    }
}

pub(super) fn write_reduction(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let x = sheet.value_name(node.inputs[0]);
    match &node.op {
        Op::Reduce(Reduce { function, axes, keep }) => {
            let operator = match function {
                ReduceOp::Sum => "ReduceSum",
                ReduceOp::Mean => "ReduceMean",
                ReduceOp::Max => "ReduceMax",
                ReduceOp::Min => "ReduceMin",
                ReduceOp::Prod => "ReduceProd",
                ReduceOp::L1 => "ReduceL1",
                ReduceOp::L2 => "ReduceL2",
                ReduceOp::LogSum => "ReduceLogSum",
                ReduceOp::LogSumExp => "ReduceLogSumExp",
                ReduceOp::SumSquare => "ReduceSumSquare",
            };
            let axes = sheet.add_integers(axes);
            Ok(sheet.add_node(operator, &[&x, &axes], vec![flag_attribute("keepdims", *keep)]))
        }
        Op::ArgReduce(ArgReduce { largest, axis, keep, last }) => {
            let operator = if *largest { "ArgMax" } else { "ArgMin" };
            let attributes = vec![
                int_attribute("axis", *axis),
                flag_attribute("keepdims", *keep),
                flag_attribute("select_last_index", *last),
            ];
            let place = sheet.add_node(operator, &[&x], attributes);
            cast_positions(sheet, node, place)
        }
        Op::ArgTop(ArgTop { count, axis, largest }) => {
            let count = sheet.add_integers(&[*count]);
            let (values, place) = (sheet.fresh_name(), sheet.fresh_name());
            let attributes =
                vec![int_attribute("axis", *axis), flag_attribute("largest", *largest), flag_attribute("sorted", true)];
            sheet.call_for("TopK", &[&x, &count], attributes, vec![values, place.clone()]);
            cast_positions(sheet, node, place)
        }
        Op::CumSum(CumSum { axis, exclusive, reverse }) => {
            let axis = sheet.add_scalar(DType::I64, *axis as f64);
            let attributes = vec![flag_attribute("exclusive", *exclusive), flag_attribute("reverse", *reverse)];
            Ok(sheet.add_node("CumSum", &[&x, &axis], attributes))
        }
        other => refuse_operator(other),
    }
}

fn cast_positions(sheet: &mut Sheet<'_>, node: &Node, place: String) -> NameResult {
    match sheet.dtype(node.outputs[0]) {
        DType::I64 => Ok(place),
        dtype => Ok(sheet.cast(&place, dtype)),
    }
}
