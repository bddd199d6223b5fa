//! Normalisations and reductions.

use super::sheet::{Sheet, flag, float, int, ints};
use super::{Made, unwritten};
use models::graph::Node;
use models::operators::{
    ArgReduce, ArgTop, BatchNorm, CumSum, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, Op, Reduce, ReduceOp,
    RmsNorm, Softmax,
};
use models::types::DType;

pub(super) fn normalisation(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let inputs = &node.inputs;
    let (rank, dtype) = (sheet.rank(inputs[0]), sheet.dtype(inputs[0]));
    let x = sheet.name(inputs[0]);
    match &node.op {
        Op::BatchNorm(BatchNorm { epsilon }) => {
            let names = sheet.names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.call("BatchNormalization", &names, vec![float("epsilon", *epsilon)]))
        }
        Op::LayerNorm(LayerNorm { axis, epsilon }) => {
            let (scale, shift) = (sheet.name(inputs[1]), sheet.name(inputs[2]));
            let attributes = vec![int("axis", *axis), float("epsilon", *epsilon)];
            Ok(sheet.call("LayerNormalization", &[&x, &scale, &shift], attributes))
        }
        Op::Softmax(Softmax { axis, log }) => {
            Ok(sheet.call(if *log { "LogSoftmax" } else { "Softmax" }, &[&x], vec![int("axis", *axis)]))
        }
        // Spelled as libraries look for it.
        Op::RmsNorm(RmsNorm { axis, epsilon }) => {
            let two = sheet.number(dtype, 2.0);
            let squares = sheet.call("Pow", &[&x, &two], Vec::new());
            let axes: Vec<i64> = (*axis..rank as i64).collect();
            let axes = sheet.integers(&axes);
            let mean = sheet.call("ReduceMean", &[&squares, &axes], vec![flag("keepdims", true)]);
            let epsilon = sheet.number(dtype, *epsilon);
            let sum = sheet.call("Add", &[&mean, &epsilon], Vec::new());
            let root = sheet.call("Sqrt", &[&sum], Vec::new());
            let unit = sheet.call("Div", &[&x, &root], Vec::new());
            let scale = sheet.name(inputs[1]);
            Ok(sheet.call("Mul", &[&unit, &scale], Vec::new()))
        }
        Op::GroupNorm(GroupNorm { groups, epsilon }) => {
            let extents = sheet.extents(inputs[0]);
            if extents.get(1) == Some(groups) && rank > 2 {
                let (scale, shift) = (sheet.name(inputs[1]), sheet.name(inputs[2]));
                return Ok(sheet.call(
                    "InstanceNormalization",
                    &[&x, &scale, &shift],
                    vec![float("epsilon", *epsilon)],
                ));
            }
            let elements: i64 = extents[1..].iter().product();
            let rows = sheet.reshape(&x, &[extents[0], *groups, elements / groups]);
            let (ones, zeros) = (sheet.filled(dtype, &[*groups], 1.0), sheet.filled(dtype, &[*groups], 0.0));
            let unit = sheet.call("InstanceNormalization", &[&rows, &ones, &zeros], vec![float("epsilon", *epsilon)]);
            let unit = sheet.reshape(&unit, &extents);
            let (scale, shift) = (sheet.along(inputs[1], 1, rank), sheet.along(inputs[2], 1, rank));
            let scaled = sheet.call("Mul", &[&unit, &scale], Vec::new());
            Ok(sheet.call("Add", &[&scaled, &shift], Vec::new()))
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => match *epsilon {
            1e-9 => Ok(sheet.call("MeanVarianceNormalization", &[&x], vec![ints("axes", axes)])),
            other => Err(format!("its epsilon is {other}, that of ONNX is always 1e-9")),
        },
        Op::LpNorm(LpNorm { axis, order }) => {
            Ok(sheet.call("LpNormalization", &[&x], vec![int("axis", *axis), int("p", *order)]))
        }
        Op::Lrn(Lrn { size, alpha, beta, bias }) => {
            let attributes =
                vec![int("size", *size), float("alpha", *alpha), float("beta", *beta), float("bias", *bias)];
            Ok(sheet.call("LRN", &[&x], attributes))
        }
        other => unwritten(other),
    }
}

pub(super) fn reduction(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let x = sheet.name(node.inputs[0]);
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
            let axes = sheet.integers(axes);
            Ok(sheet.call(operator, &[&x, &axes], vec![flag("keepdims", *keep)]))
        }
        Op::ArgReduce(ArgReduce { largest, axis, keep, last }) => {
            let operator = if *largest { "ArgMax" } else { "ArgMin" };
            let attributes = vec![int("axis", *axis), flag("keepdims", *keep), flag("select_last_index", *last)];
            let place = sheet.call(operator, &[&x], attributes);
            places(sheet, node, place)
        }
        Op::ArgTop(ArgTop { count, axis, largest }) => {
            let count = sheet.integers(&[*count]);
            let (values, place) = (sheet.fresh(), sheet.fresh());
            let attributes = vec![int("axis", *axis), flag("largest", *largest), flag("sorted", true)];
            sheet.call_for("TopK", &[&x, &count], attributes, vec![values, place.clone()]);
            places(sheet, node, place)
        }
        Op::CumSum(CumSum { axis, exclusive, reverse }) => {
            let axis = sheet.number(DType::I64, *axis as f64);
            let attributes = vec![flag("exclusive", *exclusive), flag("reverse", *reverse)];
            Ok(sheet.call("CumSum", &[&x, &axis], attributes))
        }
        other => unwritten(other),
    }
}

/// Places have 64 bits there.
fn places(sheet: &mut Sheet<'_>, node: &Node, place: String) -> Made {
    match sheet.dtype(node.outputs[0]) {
        DType::I64 => Ok(place),
        dtype => Ok(sheet.cast(&place, dtype)),
    }
}
