//! What all contractions are made of: products of elements, channels of groups, blocks put back.

use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Extent, Tensor, constant, index};
use models::{ConvWindow, DType};

pub(super) type Element = std::result::Result<Expression, TvmError>;

/// A convolution of numbers with zero points.
pub(super) struct ConvShape<'a> {
    pub(super) window: ConvWindow<'a>,
    pub(super) zeros: Zeros,
}

/// Zero points of both operands.
pub(super) type Zeros = [i64; 2];

/// Operands that are the numbers they stand for.
pub(super) const NO_ZEROS: Zeros = [0, 0];

/// The input channel an output channel reads.
pub(super) fn source_channel(
    output: &Expression,
    reduction: Option<&Axis>,
    groups: i64,
    per_group: i64,
    outputs_per_group: i64,
) -> Element {
    let within = match reduction {
        Some(axis) => axis.variable.clone(),
        None => index(0)?,
    };
    match (groups, outputs_per_group, per_group) {
        (1, ..) => Ok(within),
        (_, 1, 1) => Ok(output.clone()),
        _ => output.floor_div(&index(outputs_per_group)?)?.mul(&index(per_group)?)?.add(&within),
    }
}

/// The product of two elements, each less its zero point.
pub(super) fn multiply(
    a: (&Tensor, &[Expression]),
    b: (&Tensor, &[Expression]),
    zeros: Zeros,
    dtype: DType,
) -> Element {
    let read = |(tensor, at): (&Tensor, &[Expression]), zero: i64| {
        let element = tensor.at(at)?;
        // Equal types stay plain reads.
        let wide = if tensor.dtype == dtype { element } else { element.cast(dtype)? };
        if zero == 0 { Ok(wide) } else { wide.sub(&constant(dtype, zero as f64)?) }
    };
    read(a, zeros[0])?.mul(&read(b, zeros[1])?)
}

/// Padding of batch and channel is nothing.
pub(super) fn with_leading(pads: &[i64]) -> Vec<i64> {
    [0, 0].iter().chain(pads).copied().collect()
}

/// Puts a blocked result back into the task's order.
pub(super) fn unblock(
    writer: &mut Writer,
    blocked: &Tensor,
    dimension: usize,
    block: i64,
    output: &Output,
    extents: &[Extent],
) -> Result<Tensor> {
    writer.block(&output.name("unblock"), Part::Epilogue, (output.dtype, extents), |i| {
        let mut at = i.to_vec();
        at[dimension] = i[dimension].floor_div(&index(block)?)?;
        at.push(i[dimension].floor_mod(&index(block)?)?);
        blocked.at(&at)
    })
}

/// A number's digits, the last one first to change, where each has as many values as its extent.
pub(super) fn digits(number: &Expression, extents: &[i64]) -> std::result::Result<Vec<Expression>, TvmError> {
    let mut rest = number.clone();
    let mut digits = Vec::with_capacity(extents.len());
    for (place, &extent) in extents.iter().enumerate().rev() {
        let extent = index(extent)?;
        digits.push(if place == 0 { rest.clone() } else { rest.floor_mod(&extent)? });
        rest = rest.floor_div(&extent)?;
    }
    digits.reverse();
    Ok(digits)
}
