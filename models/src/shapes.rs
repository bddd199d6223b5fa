//! Checks and computations on types for shape rules. Errors contain only the reason; `infer` adds operator and inputs.

use crate::types::{DType, Dim, TensorType};
use std::ops::Range;

/// Result of a shape rule; the error is a text.
pub type Rule<T> = std::result::Result<T, String>;

/// Returns the element type in which a contraction accumulates: `i32` for narrower integers, else `dtype` itself.
pub fn accumulator_type(dtype: DType) -> DType {
    match dtype {
        DType::I8 | DType::I16 | DType::U8 | DType::U16 => DType::I32,
        wide => wide,
    }
}

/// Rejects negative extents and overflowing products, even if another extent is 0.
pub fn check_type(ty: &TensorType) -> Rule<()> {
    let mut bytes = ty.dtype.size_bytes();
    for dim in &ty.shape {
        let Dim::Known(extent) = dim else { continue };
        let extent = u64::try_from(*extent).map_err(|_| format!("{ty} has the negative extent {extent}"))?;
        let product = bytes.checked_mul(extent.max(1));
        bytes = product.ok_or_else(|| format!("{ty} has a byte count that exceeds 64 bits"))?;
    }
    Ok(())
}

/// Broadcasts two shapes as numpy does.
pub fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Rule<Vec<Dim>> {
    let rank = a.len().max(b.len());
    let one = Dim::Known(1);
    let from = |shape: &[Dim], index: usize| match (index + shape.len()).checked_sub(rank) {
        Some(index) => shape[index].clone(),
        None => one.clone(),
    };
    (0..rank)
        .map(|index| match (from(a, index), from(b, index)) {
            (a, b) if a == b || b == one => Ok(a),
            (a, b) if a == one => Ok(b),
            (a, b) => Err(format!("extents {a} and {b} of dimension {index} do not broadcast")),
        })
        .collect()
}

/// Converts an axis to an index. Negative axes are errors: the builder counts all axes from the front.
pub(crate) fn axis_of(axis: i64, x: &TensorType) -> Rule<usize> {
    usize::try_from(axis)
        .ok()
        .filter(|&axis| axis < x.rank())
        .ok_or_else(|| format!("axis {axis} is out of range for the rank {}", x.rank()))
}

pub(crate) fn ascending_axes(x: &TensorType, axes: &[i64]) -> Rule<Vec<usize>> {
    if axes.is_empty() || !axes.is_sorted_by(|before, after| before < after) {
        return Err(format!("axes {axes:?} must be a non-empty list in ascending order"));
    }
    axes.iter().map(|&axis| axis_of(axis, x)).collect()
}

pub(crate) fn count_from_front(axis: &mut i64, rank: usize) {
    if *axis < 0 {
        *axis = axis.saturating_add(i64::try_from(rank).unwrap_or(i64::MAX));
    }
}

/// Converts an axis that was already checked; negative axes become 0.
pub(crate) fn axis_index(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(0)
}

pub(crate) fn same_dtype(a: &TensorType, b: &TensorType) -> Rule<()> {
    if a.dtype == b.dtype {
        return Ok(());
    }
    Err(format!("element types {} and {} differ; cast one of them", a.dtype, b.dtype))
}

pub(crate) fn anything(x: &TensorType) -> Rule<TensorType> {
    Ok(x.clone())
}

pub(crate) fn floating(x: &TensorType) -> Rule<TensorType> {
    if x.dtype.is_float() { Ok(x.clone()) } else { Err(format!("needs a floating-point type, not {}", x.dtype)) }
}

pub(crate) fn check_numeric(x: &TensorType) -> Rule<()> {
    if x.dtype == DType::Bool { Err("needs numbers, not bool".to_owned()) } else { Ok(()) }
}

pub(crate) fn numeric(x: &TensorType) -> Rule<TensorType> {
    check_numeric(x).map(|()| x.clone())
}

pub(crate) fn integer(x: &TensorType) -> Rule<TensorType> {
    if x.dtype.is_float() || x.dtype == DType::Bool {
        return Err(format!("needs integers, not {}", x.dtype));
    }
    Ok(x.clone())
}

pub(crate) fn boolean(x: &TensorType) -> Rule<TensorType> {
    if x.dtype == DType::Bool { Ok(x.clone()) } else { Err(format!("needs bool, not {}", x.dtype)) }
}

pub(crate) fn finite_positive(value: f64, name: &str) -> Rule<()> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{name} {value} must be finite and positive")) }
}

pub(crate) fn known_extent(dim: &Dim, what: &str) -> Rule<i64> {
    match dim {
        Dim::Known(extent) => Ok(*extent),
        Dim::Symbol(name) => Err(format!("{what} is the symbol `{name}`; bind it to a number first")),
    }
}

/// Checks that each input has one number per channel along `axis`; the output has the type of `x`.
pub(crate) fn check_vectors(x: &TensorType, axis: usize, vectors: &[&TensorType]) -> Rule<TensorType> {
    let Some(channels) = x.shape.get(axis) else {
        return Err(format!("`x` has {} dimensions, the channel is dimension {axis}", x.rank()));
    };
    check_numeric(x)?;
    for vector in vectors {
        same_dtype(x, vector)?;
        if vector.shape.as_slice() != std::slice::from_ref(channels) {
            return Err(format!("{vector} must be a vector of {channels}, one element per channel"));
        }
    }
    Ok(x.clone())
}

/// Checks a normalisation over the dimensions from `axis` on, whose shape each vector must have.
pub(crate) fn check_normalised(x: &TensorType, axis: i64, epsilon: f64, vectors: &[&TensorType]) -> Rule<TensorType> {
    finite_positive(epsilon, "epsilon")?;
    let axis = axis_of(axis, x)?;
    for vector in vectors {
        same_dtype(x, vector)?;
        if vector.shape != x.shape[axis..] {
            return Err(format!("{vector} must have the shape of `x` from dimension {axis} on"));
        }
    }
    floating(x)
}

/// Removes reduced axes, or keeps them with extent 1. Rejects axes without elements, which have no maximum.
pub(crate) fn remove_axes(x: &TensorType, axes: &[usize], keep: bool) -> Rule<TensorType> {
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

pub(crate) fn element_count(mut extents: impl Iterator<Item = i64>) -> Rule<i64> {
    extents
        .try_fold(1i64, |product, extent| product.checked_mul(extent))
        .ok_or_else(|| "the element count exceeds 64 bits".to_owned())
}

/// Multiplies the known extents of an input over a range of dimensions; 1 if there are none.
pub(crate) fn known_product(inputs: &[&TensorType], input: usize, dimensions: Range<usize>) -> i64 {
    let shape = inputs.get(input).map_or(&[][..], |ty| &ty.shape);
    let dims = shape.get(dimensions.start..dimensions.end.min(shape.len())).unwrap_or_default();
    dims.iter().fold(1, |product: i64, dim| match dim {
        Dim::Known(extent) => product.saturating_mul(*extent),
        Dim::Symbol(_) => product,
    })
}

/// Returns the extent of the first input along an axis; 1 if symbolic.
pub(crate) fn extent_along(inputs: &[&TensorType], axis: i64) -> i64 {
    known_product(inputs, 0, axis_index(axis)..axis_index(axis) + 1)
}

/// Multiplies the extents of the first input along several axes; symbolic ones count as 1.
pub(crate) fn along_all(inputs: &[&TensorType], axes: &[i64]) -> i64 {
    axes.iter().fold(1, |product: i64, &axis| product.saturating_mul(extent_along(inputs, axis)))
}

/// Whether a dimension is a number and not a symbol; true for a dimension that does not exist.
pub(crate) fn is_number(ty: &TensorType, dimension: usize) -> bool {
    !matches!(ty.shape.get(dimension), Some(Dim::Symbol(_)))
}

pub(crate) fn numbers_from(ty: &TensorType, first: usize) -> bool {
    (first..ty.rank()).all(|dimension| is_number(ty, dimension))
}
