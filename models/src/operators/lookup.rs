//! Helpers of operators that read or write elements by index.

use super::prelude::*;

/// How a scatter operator combines an existing element with an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterOp {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

impl ScatterOp {
    pub(super) fn name(self) -> &'static str {
        match self {
            ScatterOp::Replace => "replace",
            ScatterOp::Add => "add",
            ScatterOp::Mul => "mul",
            ScatterOp::Max => "max",
            ScatterOp::Min => "min",
        }
    }
}

/// Rejects an indexed dimension without elements.
fn check_filled(x: &TensorType, axis: usize) -> Rule<()> {
    if x.shape[axis] == Dim::Known(0) {
        return Err(format!("dimension {axis} of {x} has no elements to look up"));
    }
    Ok(())
}

pub(super) fn check_indices(ty: &TensorType) -> Rule<()> {
    match ty.dtype {
        DType::I32 | DType::I64 => Ok(()),
        other => Err(format!("indices must be i32 or i64, not {other}")),
    }
}

pub(super) fn looked_up_axis(x: &TensorType, at: &TensorType, axis: i64) -> Rule<usize> {
    check_indices(at)?;
    let axis = axis_of(axis, x)?;
    check_filled(x, axis)?;
    Ok(axis)
}

/// Returns the length of the index tuples: the number of dimensions of `x` that each tuple indexes.
pub(super) fn tuple_length(x: &TensorType, at: &TensorType, batch: usize) -> Rule<usize> {
    check_indices(at)?;
    let last = at.shape.last().ok_or("the indices need at least 1 dimension")?;
    let count = known_extent(last, "the last dimension of the indices")?;
    let room = x.rank().saturating_sub(batch);
    let count = usize::try_from(count).ok().filter(|count| (1..=room).contains(count));
    let count =
        count.ok_or_else(|| format!("index tuples of length {last} must index 1 to {room} dimensions of {x}"))?;
    (batch..batch + count).try_for_each(|axis| check_filled(x, axis)).map(|()| count)
}

pub(super) fn scatter_type(
    x: &TensorType,
    updates: &TensorType,
    written: &[Dim],
    combine: ScatterOp,
) -> Rule<TensorType> {
    same_dtype(x, updates)?;
    match combine {
        ScatterOp::Replace => {}
        ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => drop(numeric(x)?),
    }
    if updates.shape != written {
        let wanted = TensorType { dtype: x.dtype, shape: written.to_vec() };
        return Err(format!("the updates have shape {updates}, the indices need {wanted}"));
    }
    Ok(x.clone())
}

/// Counts one operation per update, or none if updates replace elements.
pub(super) fn scatter_work(inputs: &[&TensorType], combine: ScatterOp) -> Result<Work> {
    match combine {
        ScatterOp::Replace => Ok(Work::default()),
        ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => Ok(flops_work(elements(inputs[2])?)),
    }
}

/// Returns the number of terms of an element if all updates apply to it, which is the worst case; at most 64.
pub(super) fn scatter_terms(inputs: &[&TensorType]) -> i64 {
    known_product(inputs, 2, 0..usize::MAX).min(64)
}

/// Returns the bytes read of one input; of the table (input 0), only the elements that are looked up.
pub(super) fn bytes_found(input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
    if input == 0 { Ok(bytes_of(ty)?.min(bytes_of(output)?)) } else { bytes_of(ty) }
}
