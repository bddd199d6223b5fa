//! Shape rules of reductions and normalisations.

use super::{Rule, axis_of, finite_positive, floating, known, numeric, same_dtype, vectors};
use crate::operator::ReduceOp;
use crate::types::{DType, Dim, TensorType};

pub(super) fn reduce(x: &TensorType, function: ReduceOp, axes: &[i64], keep: bool) -> Rule<TensorType> {
    match function {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod | ReduceOp::L1 | ReduceOp::SumSquare => {
            numeric(x)?;
        }
        ReduceOp::Mean | ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => {
            floating(x)?;
        }
    }
    without(x, &ascending(x, axes)?, keep)
}

pub(super) fn arg_reduce(x: &TensorType, axis: i64, keep: bool) -> Rule<TensorType> {
    numeric(x)?;
    let reduced = without(x, &[axis_of(axis, x)?], keep)?;
    Ok(TensorType { dtype: DType::I64, shape: reduced.shape })
}

pub(super) fn arg_top(x: &TensorType, count: i64, axis: i64) -> Rule<TensorType> {
    numeric(x)?;
    let axis = axis_of(axis, x)?;
    let extent = known(&x.shape[axis], "the extent to search")?;
    if !(1..=extent).contains(&count) {
        return Err(format!("the {count} best of {extent} elements cannot be found"));
    }
    let mut shape = x.shape.clone();
    shape[axis] = Dim::Known(count);
    Ok(TensorType { dtype: DType::I64, shape })
}

/// The type without these dimensions, none of which may be empty: nothing has no maximum.
fn without(x: &TensorType, axes: &[usize], keep: bool) -> Rule<TensorType> {
    if let Some(axis) = axes.iter().find(|axis| x.shape[**axis] == Dim::Known(0)) {
        return Err(format!("dimension {axis} of {x} has no elements to reduce"));
    }
    let shape = x.shape.iter().enumerate().filter_map(|(axis, dim)| match axes.contains(&axis) {
        true if keep => Some(Dim::Known(1)),
        true => None,
        false => Some(dim.clone()),
    });
    Ok(TensorType { dtype: x.dtype, shape: shape.collect() })
}

/// Axes as indices: at least one, in order.
fn ascending(x: &TensorType, axes: &[i64]) -> Rule<Vec<usize>> {
    if axes.is_empty() || !axes.is_sorted_by(|before, after| before < after) {
        return Err(format!("axes {axes:?} must be at least one, in ascending order"));
    }
    axes.iter().map(|&axis| axis_of(axis, x)).collect()
}

pub(super) fn rms_norm(x: &TensorType, scale: &TensorType, axis: i64, epsilon: f64) -> Rule<TensorType> {
    finite_positive(epsilon, "epsilon")?;
    super::layer_norm(x, axis_of(axis, x)?, &[scale])
}

pub(super) fn group_norm(x: &TensorType, affine: &[&TensorType], groups: i64, epsilon: f64) -> Rule<TensorType> {
    finite_positive(epsilon, "epsilon")?;
    floating(x)?;
    let channels = x.shape.get(1).ok_or("`x` needs a batch and a channel dimension")?;
    let channels = known(channels, "the channel count of `x`")?;
    if groups < 1 || channels % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels} channels"));
    }
    vectors(x, 1, affine)
}

pub(super) fn mean_variance_norm(x: &TensorType, axes: &[i64], epsilon: f64) -> Rule<TensorType> {
    finite_positive(epsilon, "epsilon")?;
    ascending(x, axes)?;
    floating(x)
}

pub(super) fn lp_norm(x: &TensorType, axis: i64, order: i64) -> Rule<TensorType> {
    axis_of(axis, x)?;
    if !(1..=2).contains(&order) {
        return Err(format!("the order {order} is neither 1 nor 2"));
    }
    floating(x)
}

pub(super) fn lrn(x: &TensorType, size: i64, numbers: [(&str, f64); 3]) -> Rule<TensorType> {
    if x.rank() < 2 {
        return Err(format!("`x` has {} dimensions; batch and channel are needed", x.rank()));
    }
    let channels = known(&x.shape[1], "the channel count of `x`")?;
    if !(1..=channels.saturating_mul(2).max(1)).contains(&size) {
        return Err(format!("{size} neighbours must be at least 1 and at most twice the {channels} channels"));
    }
    if let Some((name, number)) = numbers.iter().find(|(_, number)| !number.is_finite()) {
        return Err(format!("{name} {number} must be finite"));
    }
    floating(x)
}

/// Quantised numbers and their scale: one for all, or one per channel.
pub(super) fn per_channel(x: &TensorType, scale: &TensorType, axis: i64) -> Rule<()> {
    match scale.shape.as_slice() {
        [] if axis == 0 => Ok(()),
        [] => Err(format!("one scale for all has no axis; give 0 and not {axis}")),
        [channels] if x.shape.get(axis_of(axis, x)?) == Some(channels) => Ok(()),
        _ => Err(format!("{scale} must be a scalar or a vector along dimension {axis} of {x}")),
    }
}

/// The type after quantising, with a scale and perhaps a zero point.
pub(super) fn quantize(x: &TensorType, scales: &[&TensorType], to: DType, axis: i64) -> Rule<TensorType> {
    floating(x)?;
    same_dtype(x, scales[0])?;
    per_channel(x, scales[0], axis)?;
    narrow(to)?;
    check_zero(scales, to)?;
    Ok(TensorType { dtype: to, shape: x.shape.clone() })
}

pub(super) fn dequantize(x: &TensorType, scales: &[&TensorType], axis: i64) -> Rule<TensorType> {
    if x.dtype != DType::I32 {
        narrow(x.dtype)?;
    }
    floating(scales[0])?;
    per_channel(x, scales[0], axis)?;
    check_zero(scales, x.dtype)?;
    Ok(TensorType { dtype: scales[0].dtype, shape: x.shape.clone() })
}

pub(super) fn requantize(
    x: &TensorType,
    multiplier: &TensorType,
    to: DType,
    axis: i64,
    [zero, low, high]: [i64; 3],
) -> Rule<TensorType> {
    if x.dtype != DType::I32 {
        return Err(format!("sums are i32, not {}", x.dtype));
    }
    floating(multiplier)?;
    per_channel(x, multiplier, axis)?;
    let (lowest, highest) = to.integer_range().ok_or_else(|| format!("needs an integer of up to 32 bits, not {to}"))?;
    let is_inside = |number: i64| (lowest..=highest).contains(&number);
    if !(is_inside(zero) && is_inside(low) && is_inside(high) && low <= high) {
        return Err(format!("zero point {zero} and bounds {low} and {high} must be in order and fit {to}"));
    }
    Ok(TensorType { dtype: to, shape: x.shape.clone() })
}

fn check_zero(scales: &[&TensorType], dtype: DType) -> Rule<()> {
    match scales.get(1) {
        None => Ok(()),
        Some(zero) if zero.dtype == dtype && zero.shape == scales[0].shape => Ok(()),
        Some(zero) => Err(format!("the zero point {zero} must be {dtype} and shaped like the scale {}", scales[0])),
    }
}

/// The range of a type that numbers are quantised to.
fn narrow(dtype: DType) -> Rule<(i64, i64)> {
    dtype
        .integer_range()
        .filter(|_| dtype.bytes() <= 2)
        .ok_or_else(|| format!("needs an integer of 8 or 16 bits, not {dtype}"))
}

/// Operands of a quantised contraction, as the plain contraction of the same shapes sees them.
pub(super) fn quantised(operands: [(&TensorType, i64); 2]) -> Rule<[TensorType; 2]> {
    for (operand, zero) in operands {
        let (low, high) = match operand.dtype {
            DType::I8 | DType::U8 => narrow(operand.dtype)?,
            other => return Err(format!("needs integers of 8 bits, not {other}")),
        };
        if !(low..=high).contains(&zero) {
            return Err(format!("the zero point {zero} does not fit {}", operand.dtype));
        }
    }
    // The signs of the two may differ; only their shapes matter from here on.
    Ok(operands.map(|(operand, _)| TensorType { dtype: DType::I8, shape: operand.shape.clone() }))
}
