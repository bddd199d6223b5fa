//! Helpers of operators on quantised tensors.

use super::prelude::*;

/// Checks that the scale is a scalar, or a vector with one element per channel along `axis`.
pub(super) fn per_channel(x: &TensorType, scale: &TensorType, axis: i64) -> Rule<()> {
    match scale.shape.as_slice() {
        [] if axis == 0 => Ok(()),
        [] => Err(format!("the axis of a scalar scale must be 0, not {axis}")),
        [channels] if x.shape.get(axis_of(axis, x)?) == Some(channels) => Ok(()),
        _ => Err(format!("{scale} must be a scalar or a vector along dimension {axis} of {x}")),
    }
}

pub(super) fn check_zero(scales: &[&TensorType], dtype: DType) -> Rule<()> {
    match scales.get(1) {
        None => Ok(()),
        Some(zero) if zero.dtype == dtype && zero.shape == scales[0].shape => Ok(()),
        Some(zero) => Err(format!("the zero point {zero} must be {dtype} and shaped like the scale {}", scales[0])),
    }
}

pub(super) fn quantised_range(dtype: DType) -> Rule<(i64, i64)> {
    dtype
        .integer_range()
        .filter(|_| dtype.size_bytes() <= 2)
        .ok_or_else(|| format!("needs an integer of 8 or 16 bits, not {dtype}"))
}

/// Checks the operands of a quantised contraction and returns their types for the shape rule of the plain contraction.
pub(super) fn as_plain(operands: [(&TensorType, i64); 2]) -> Rule<[TensorType; 2]> {
    for (operand, zero) in operands {
        let (low, high) = match operand.dtype {
            DType::I8 | DType::U8 => quantised_range(operand.dtype)?,
            other => return Err(format!("needs integers of 8 bits, not {other}")),
        };
        if !(low..=high).contains(&zero) {
            return Err(format!("the zero point {zero} does not fit {}", operand.dtype));
        }
    }
    // The signs of the two may differ; only their shapes matter from here on.
    Ok(operands.map(|(operand, _)| TensorType { dtype: DType::I8, shape: operand.shape.clone() }))
}

pub(super) fn describe_zeros(line: &mut String, zeros: [i64; 2]) {
    append_attribute(line, "zero", join_items(&zeros, ","), zeros != [0, 0]);
}
