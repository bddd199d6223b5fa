//! What operators share that look up or write elements by indices.

use super::prelude::*;
use super::scatter_elements::ScatterOp;

/// What is looked up must have elements.
fn filled(x: &TensorType, axis: usize) -> Rule<()> {
    if x.shape[axis] == Dim::Known(0) {
        return Err(format!("dimension {axis} of {x} has no elements to look up"));
    }
    Ok(())
}

pub(super) fn indices(ty: &TensorType) -> Rule<()> {
    match ty.dtype {
        DType::I32 | DType::I64 => Ok(()),
        other => Err(format!("indices must be i32 or i64, not {other}")),
    }
}

/// The axis along which indices look elements up.
pub(super) fn looked_up_axis(x: &TensorType, at: &TensorType, axis: i64) -> Rule<usize> {
    indices(at)?;
    let axis = axis_of(axis, x)?;
    filled(x, axis)?;
    Ok(axis)
}

/// How many dimensions the last dimension of the indices looks up.
pub(super) fn tuple(x: &TensorType, at: &TensorType, batch: usize) -> Rule<usize> {
    indices(at)?;
    let last = at.shape.last().ok_or("the indices need at least 1 dimension")?;
    let count = known(last, "the last dimension of the indices")?;
    let room = x.rank().saturating_sub(batch);
    let count = usize::try_from(count).ok().filter(|count| (1..=room).contains(count));
    let count = count.ok_or_else(|| format!("{last} indices do not look up 1 to {room} dimensions of {x}"))?;
    (batch..batch + count).try_for_each(|axis| filled(x, axis)).map(|()| count)
}

/// The type after updates of this shape are written.
pub(super) fn scatter(x: &TensorType, updates: &TensorType, written: &[Dim], combine: ScatterOp) -> Rule<TensorType> {
    same_dtype(x, updates)?;
    match combine {
        ScatterOp::Replace => {}
        ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => drop(numeric(x)?),
    }
    if updates.shape != written {
        let wanted = TensorType { dtype: x.dtype, shape: written.to_vec() };
        return Err(format!("the updates are {updates}, the indices ask for {wanted}"));
    }
    Ok(x.clone())
}

/// One operation for each update that is combined with what stands there.
pub(super) fn scatter_work(inputs: &[&TensorType], combine: ScatterOp) -> Result<Work> {
    match combine {
        ScatterOp::Replace => Ok(Work::default()),
        ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => Ok(flops(elements(inputs[2])?)),
    }
}

/// At worst every update goes to one place.
pub(super) fn scatter_terms(inputs: &[&TensorType]) -> i64 {
    span(inputs, 2, 0..usize::MAX).min(64)
}

/// Of a table that is looked into only what is found is read.
pub(super) fn bytes_found(input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
    if input == 0 { Ok(bytes_of(ty)?.min(bytes_of(output)?)) } else { bytes_of(ty) }
}
