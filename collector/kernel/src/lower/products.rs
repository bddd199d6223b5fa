//! Parts that contractions share: products of elements, channels of groups, blocks that restore the result's order.

use super::{Element, Indices, Output, Part, Result, Writer};
use crate::tvm::expression::{Axis, Expression, Extent, Tensor, constant, index_constant};
use models::{ConvWindow, DType};

pub(super) struct ConvShape<'a> {
    pub(super) window: ConvWindow<'a>,
    pub(super) zeros: Zeros,
}

pub(super) type Zeros = [i64; 2];

pub(super) const NO_ZEROS: Zeros = [0, 0];

pub(super) fn source_channel(
    output: &Expression,
    reduction: Option<&Axis>,
    groups: i64,
    per_group: i64,
    outputs_per_group: i64,
) -> Element {
    let within = match reduction {
        Some(axis) => axis.variable.clone(),
        None => index_constant(0)?,
    };
    match (groups, outputs_per_group, per_group) {
        (1, ..) => Ok(within),
        (_, 1, 1) => Ok(output.clone()),
        _ => output.floor_div(&index_constant(outputs_per_group)?)?.mul(&index_constant(per_group)?)?.add(&within),
    }
}

pub(super) fn multiply_elements(
    a: (&Tensor, &[Expression]),
    b: (&Tensor, &[Expression]),
    zeros: Zeros,
    dtype: DType,
) -> Element {
    let read = |(tensor, at): (&Tensor, &[Expression]), zero: i64| {
        let element = tensor.element_at(at)?;
        // A cast to the same type is omitted.
        let wide = if tensor.dtype == dtype { element } else { element.cast(dtype)? };
        if zero == 0 { Ok(wide) } else { wide.sub(&constant(dtype, zero as f64)?) }
    };
    read(a, zeros[0])?.mul(&read(b, zeros[1])?)
}

pub(super) fn with_leading(pads: &[i64]) -> Vec<i64> {
    [0, 0].iter().chain(pads).copied().collect()
}

pub(super) fn unblock_result(
    writer: &mut Writer,
    blocked: &Tensor,
    dimension: usize,
    block: i64,
    output: &Output,
    extents: &[Extent],
) -> Result<Tensor> {
    writer.add_block(&output.block_name("unblock"), Part::Epilogue, (output.dtype, extents), |i| {
        let mut at = i.to_vec();
        at[dimension] = i[dimension].floor_div(&index_constant(block)?)?;
        at.push(i[dimension].floor_mod(&index_constant(block)?)?);
        blocked.element_at(&at)
    })
}

/// Splits a number into digits of a mixed-radix system, most significant first.
pub(super) fn split_digits(number: &Expression, extents: &[i64]) -> Indices {
    let mut rest = number.clone();
    let mut digits = Vec::with_capacity(extents.len());
    for (place, &extent) in extents.iter().enumerate().rev() {
        let extent = index_constant(extent)?;
        digits.push(if place == 0 { rest.clone() } else { rest.floor_mod(&extent)? });
        rest = rest.floor_div(&extent)?;
    }
    digits.reverse();
    Ok(digits)
}
