//! Import rules of matrix products.

use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, MatMul, Op, QDense, QMatMul};

type Outputs = Outcome<Vec<ValueId>>;

/// Emits `FULLY_CONNECTED`. Flattens the data to rows as wide as the filter, unless its dimensions are kept.
pub(super) fn fully_connected(call: &mut Call<'_, '_>) -> Outputs {
    if call.byte_option(1)? != 0 {
        return unsupported("a filter in shuffled format");
    }
    let activation = call.read_activation(0)?;
    let factor = call.exact_factor([0, 1], 0, activation)?;
    let (x, w) = match factor {
        Some(_) => (call.input(0)?, call.input(1)?),
        None => (call.real(0)?, call.real(1)?),
    };
    let width = match call.emit.extents(w)?[..] {
        [_, width] => width,
        ref other => return malformed(format!("the filter must have 2 dimensions, has {}", other.len())),
    };
    let x = if call.flag_option(2)? {
        x
    } else {
        call.emit.reshape(x, &flatten_extents(&call.emit.extents(x)?, width)?)?
    };
    let axis = call.emit.rank(x)?.saturating_sub(1) as i64;
    let Some(factor) = factor else {
        let mut y = call.emit.push(Op::Dense(Dense {}), &[x, w])?;
        if let Some(bias) = call.bias_vector(2, false)? {
            y = call.emit.push(Op::BiasAdd(BiasAdd { axis }), &[y, bias])?;
        }
        return Ok(vec![call.apply_activation(y, activation)?]);
    };
    let op = Op::QDense(QDense { x_zero: factor.x.zeros[0], w_zero: factor.w.zeros[0] });
    let mut y = call.emit.push(op, &[x, w])?;
    if let Some(bias) = call.bias_vector(2, true)? {
        y = call.emit.push(Op::BiasAdd(BiasAdd { axis }), &[y, bias])?;
    }
    Ok(vec![call.requantise_sums(y, factor, axis, activation)?])
}

fn flatten_extents(extents: &[i64], width: i64) -> Outcome<Vec<i64>> {
    let elements = extents.iter().try_fold(1i64, |product, &extent| product.checked_mul(extent));
    match elements {
        Some(elements) if width > 0 && elements % width == 0 => Ok(vec![elements / width, width]),
        _ => malformed(format!("input of shape {extents:?} cannot be split into rows of {width}")),
    }
}

pub(super) fn batch_mat_mul(call: &mut Call<'_, '_>) -> Outputs {
    let (transpose_a, transpose_b) = (call.flag_option(0)?, call.flag_option(1)?);
    let factor = call.exact_factor([0, 1], 0, Activation::None)?.filter(|factor| factor.w.scales.len() == 1);
    let Some(factor) = factor else {
        let (a, b) = (call.real(0)?, call.real(1)?);
        return Ok(vec![call.emit.push(Op::MatMul(MatMul { transpose_a, transpose_b }), &[a, b])?]);
    };
    let mut operands = [call.input(0)?, call.input(1)?];
    for (operand, is_turned) in operands.iter_mut().zip([transpose_a, transpose_b]) {
        let rank = call.emit.rank(*operand)?;
        if is_turned && rank >= 2 {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 2, rank - 1);
            *operand = call.emit.transpose(*operand, &order)?;
        }
    }
    let op = Op::QMatMul(QMatMul { a_zero: factor.x.zeros[0], b_zero: factor.w.zeros[0] });
    let y = call.emit.push(op, &operands)?;
    Ok(vec![call.requantise_sums(y, factor, 0, Activation::None)?])
}
