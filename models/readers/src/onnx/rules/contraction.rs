//! Import rules of matrix products.

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BiasAdd, BinaryOp, Dense, Einsum, MatMul, Op};

pub(super) fn mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    Ok(vec![numpy_product(emit, call.input(0)?, call.input(1)?)?])
}

/// Multiplies as numpy does: a vector is a row (left) or a column (right), whose added dimension is dropped.
pub(super) fn numpy_product(emit: &mut Emit<'_>, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    let (a_extents, b_extents) = (emit.extents(a)?, emit.extents(b)?);
    let a = match a_extents.as_slice() {
        [k] => emit.reshape(a, &[1, *k])?,
        _ => a,
    };
    let b = match b_extents.as_slice() {
        [k] => emit.reshape(b, &[*k, 1])?,
        _ => b,
    };
    let y = emit.mat_mul(a, b)?;
    let mut extents = emit.extents(y)?;
    if b_extents.len() == 1 {
        extents.pop();
    }
    if a_extents.len() == 1 {
        // Removes the row dimension: the second to last, or the last if the column dimension was removed before.
        extents.remove(extents.len() - if b_extents.len() == 1 { 1 } else { 2 });
    }
    emit.reshape(y, &extents)
}

pub(super) fn einsum(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let Some(equation) = call.text_attribute("equation") else { return malformed("`equation` is missing") };
    let equation = equation.chars().filter(|sign| !sign.is_whitespace()).collect();
    Ok(vec![emit.push(Op::Einsum(Einsum { equation }), &call.all_inputs()?)?])
}

pub(super) fn gemm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (alpha, beta) = (call.float_attribute("alpha", 1.0), call.float_attribute("beta", 1.0));
    let (transpose_a, transpose_b) = (call.flag_attribute("transA"), call.flag_attribute("transB"));
    if emit.rank(a)? != 2 || emit.rank(b)? != 2 {
        return malformed(format!("the operands {} and {} must be matrices", emit.ty(a)?, emit.ty(b)?));
    }
    let mut y = if transpose_b && !transpose_a {
        emit.push(Op::Dense(Dense {}), &[a, b])?
    } else {
        emit.push(Op::MatMul(MatMul { transpose_a, transpose_b }), &[a, b])?
    };
    if alpha != 1.0 {
        y = emit.binary_with(BinaryOp::Mul, y, alpha)?;
    }
    if let Some(mut c) = call.optional_input(2).filter(|_| beta != 0.0) {
        if beta != 1.0 {
            c = emit.binary_with(BinaryOp::Mul, c, beta)?;
        }
        let (rows, outputs) = (emit.extents(c)?, emit.extents(y)?[1]);
        y = match rows.as_slice() {
            [n] | [1, n] if *n == outputs => {
                let bias = emit.reshape(c, &[outputs])?;
                emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?
            }
            _ => emit.binary(BinaryOp::Add, y, c)?,
        };
    }
    Ok(vec![y])
}
