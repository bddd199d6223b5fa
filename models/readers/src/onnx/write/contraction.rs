//! Writes matrix products.

use super::sheet::{Sheet, flag_attribute, text_attribute};
use super::{NameResult, refuse_operator};
use models::graph::Node;
use models::operators::{Einsum, MatMul, Op, QDense, QMatMul};
use models::types::DType;

pub(super) fn write_product(sheet: &mut Sheet<'_>, node: &Node) -> NameResult {
    let inputs = &node.inputs;
    match &node.op {
        Op::Einsum(Einsum { equation }) => {
            let names = sheet.value_names(inputs);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(sheet.add_node("Einsum", &names, vec![text_attribute("equation", equation)]))
        }
        Op::Dense(_) if sheet.rank(inputs[0]) == 2 && sheet.dtype(inputs[0]).is_float() => {
            let (x, w) = (sheet.value_name(inputs[0]), sheet.value_name(inputs[1]));
            let attributes = vec![flag_attribute("transB", true)];
            let Some((bias, result)) = sheet.take_bias(node, 1) else {
                return Ok(sheet.add_node("Gemm", &[&x, &w], attributes));
            };
            let bias = sheet.value_name(bias);
            let made = sheet.add_node("Gemm", &[&x, &w, &bias], attributes);
            sheet.set_name(result, made.clone());
            Ok(made)
        }
        Op::Dense(_) => {
            let (x, w) = (sheet.value_name(inputs[0]), sheet.transpose_last(inputs[1]));
            write_matmul(sheet, sheet.dtype(inputs[0]), [&x, &w])
        }
        Op::QDense(QDense { x_zero, w_zero }) => {
            let (x, w) = (sheet.value_name(inputs[0]), sheet.transpose_last(inputs[1]));
            write_integer_matmul(sheet, [&x, &w], [sheet.dtype(inputs[0]), sheet.dtype(inputs[1])], [*x_zero, *w_zero])
        }
        Op::QMatMul(QMatMul { a_zero, b_zero }) => {
            let (a, b) = (sheet.value_name(inputs[0]), sheet.value_name(inputs[1]));
            write_integer_matmul(sheet, [&a, &b], [sheet.dtype(inputs[0]), sheet.dtype(inputs[1])], [*a_zero, *b_zero])
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => {
            let a = if *transpose_a { sheet.transpose_last(inputs[0]) } else { sheet.value_name(inputs[0]) };
            let b = if *transpose_b { sheet.transpose_last(inputs[1]) } else { sheet.value_name(inputs[1]) };
            write_matmul(sheet, sheet.dtype(inputs[0]), [&a, &b])
        }
        Op::Attention(_) => {
            Err("the attention cannot be split into products, and this version writes no other form".to_owned())
        }
        other => refuse_operator(other),
    }
}

/// Writes a matrix product; products of 8-bit integers are summed in 32 bits, those of 16-bit integers are refused.
fn write_matmul(sheet: &mut Sheet<'_>, dtype: DType, operands: [&str; 2]) -> NameResult {
    match dtype {
        DType::I8 | DType::U8 => write_integer_matmul(sheet, operands, [dtype; 2], [0, 0]),
        DType::I16 | DType::U16 => Err(format!("ONNX has no product of {dtype} that is summed in 32 bits")),
        _ => Ok(sheet.add_node("MatMul", &operands, Vec::new())),
    }
}

fn write_integer_matmul(sheet: &mut Sheet<'_>, operands: [&str; 2], dtypes: [DType; 2], zeros: [i64; 2]) -> NameResult {
    let zeros = [0, 1].map(|place| sheet.add_scalar(dtypes[place], zeros[place] as f64));
    Ok(sheet.add_node("MatMulInteger", &[operands[0], operands[1], &zeros[0], &zeros[1]], Vec::new()))
}
