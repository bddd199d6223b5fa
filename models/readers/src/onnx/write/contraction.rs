//! Products of matrices.

use super::sheet::{Sheet, flag, text};
use super::{Made, unwritten};
use models::graph::Node;
use models::operators::{Einsum, MatMul, Op, QDense, QMatMul};
use models::types::DType;

pub(super) fn product(sheet: &mut Sheet<'_>, node: &Node) -> Made {
    let inputs = &node.inputs;
    match &node.op {
        Op::Einsum(Einsum { equation }) => {
            let names = sheet.names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.call("Einsum", &names, vec![text("equation", equation)]))
        }
        Op::Dense(_) if sheet.rank(inputs[0]) == 2 && sheet.dtype(inputs[0]).is_float() => {
            let (x, w) = (sheet.name(inputs[0]), sheet.name(inputs[1]));
            let attributes = vec![flag("transB", true)];
            let Some((bias, result)) = sheet.take_bias(node, 1) else {
                return Ok(sheet.call("Gemm", &[&x, &w], attributes));
            };
            let bias = sheet.name(bias);
            let made = sheet.call("Gemm", &[&x, &w, &bias], attributes);
            sheet.made(result, made.clone());
            Ok(made)
        }
        Op::Dense(_) => {
            let (x, w) = (sheet.name(inputs[0]), sheet.turned(inputs[1]));
            matrices(sheet, sheet.dtype(inputs[0]), [&x, &w])
        }
        Op::QDense(QDense { x_zero, w_zero }) => {
            let (x, w) = (sheet.name(inputs[0]), sheet.turned(inputs[1]));
            integers(sheet, [&x, &w], [sheet.dtype(inputs[0]), sheet.dtype(inputs[1])], [*x_zero, *w_zero])
        }
        Op::QMatMul(QMatMul { a_zero, b_zero }) => {
            let (a, b) = (sheet.name(inputs[0]), sheet.name(inputs[1]));
            integers(sheet, [&a, &b], [sheet.dtype(inputs[0]), sheet.dtype(inputs[1])], [*a_zero, *b_zero])
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => {
            let a = if *transpose_a { sheet.turned(inputs[0]) } else { sheet.name(inputs[0]) };
            let b = if *transpose_b { sheet.turned(inputs[1]) } else { sheet.name(inputs[1]) };
            matrices(sheet, sheet.dtype(inputs[0]), [&a, &b])
        }
        Op::Attention(_) => Err("it cannot be split into products, and this version writes no other form".to_owned()),
        other => unwritten(other),
    }
}

/// A product whose operands have this type: narrow integers are summed in 32 bits.
fn matrices(sheet: &mut Sheet<'_>, dtype: DType, operands: [&str; 2]) -> Made {
    match dtype {
        DType::I8 | DType::U8 => integers(sheet, operands, [dtype; 2], [0, 0]),
        DType::I16 | DType::U16 => Err(format!("ONNX has no product of {dtype} that is summed in 32 bits")),
        _ => Ok(sheet.call("MatMul", &operands, Vec::new())),
    }
}

fn integers(sheet: &mut Sheet<'_>, operands: [&str; 2], dtypes: [DType; 2], zeros: [i64; 2]) -> Made {
    let zeros = [0, 1].map(|place| sheet.number(dtypes[place], zeros[place] as f64));
    Ok(sheet.call("MatMulInteger", &[operands[0], operands[1], &zeros[0], &zeros[1]], Vec::new()))
}
