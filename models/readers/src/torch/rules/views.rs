//! Writes to a part of a tensor: rows, ranges, permuted dimensions and diagonals.

use super::{Diagonal, Memory, numbers_of};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Gather, Op, Where};
use models::types::DType;

/// Returns `whole` with the elements that a view of it has replaced by those of `part`.
pub(in crate::torch) fn write_view(
    emit: &mut Emit<'_>,
    whole: ValueId,
    part: ValueId,
    window: Memory,
) -> Outcome<ValueId> {
    let extents = emit.extents(whole)?;
    match window {
        Memory::Own | Memory::Other => unsupported("a write through a view"),
        Memory::Reshaped => emit.reshape(part, &extents),
        Memory::Permuted(axes) => {
            let order: Vec<usize> = axes.iter().take(extents.len()).map(|&axis| usize::from(axis)).collect();
            emit.transpose_back(part, &order)
        }
        Memory::Diagonal(diagonal) => replace_diagonal(emit, whole, part, diagonal),
        Memory::Range { axis, start, stop, step, is_row } => {
            let mut part = part;
            if is_row {
                let mut shape = extents.clone();
                shape[axis] = 1;
                part = emit.reshape(part, &shape)?;
            }
            if step > 1 {
                return write_steps(emit, whole, part, axis, [start, stop, step]);
            }
            let mut parts = Vec::new();
            if start > 0 {
                parts.push(emit.slice(whole, axis, 0, start)?);
            }
            parts.push(part);
            if stop < extents[axis] {
                parts.push(emit.slice(whole, axis, stop, extents[axis])?);
            }
            emit.concat_parts(&parts, axis)
        }
    }
}

/// Replaces every `step`-th element of a dimension: each element of the result is selected from both tensors.
fn write_steps(
    emit: &mut Emit<'_>,
    whole: ValueId,
    part: ValueId,
    axis: usize,
    [start, stop, step]: [i64; 3],
) -> Outcome<ValueId> {
    let extent = emit.extents(whole)?[axis];
    numbers_of(&[extent])?;
    let place = |at: i64| {
        let is_written = (start..stop).contains(&at) && (at - start) % step == 0;
        if is_written { extent + (at - start) / step } else { at }
    };
    let places: Vec<i64> = (0..extent).map(place).collect();
    let both = emit.concat_parts(&[whole, part], axis)?;
    let places = emit.add_integers(&places)?;
    emit.push(Op::Gather(Gather { axis: axis as i64 }), &[both, places])
}

/// Returns `x` with another diagonal, whose elements lie along the last dimension of `part`.
pub(super) fn replace_diagonal(emit: &mut Emit<'_>, x: ValueId, part: ValueId, diagonal: Diagonal) -> Outcome<ValueId> {
    let (rank, (a, b), offset) = (emit.rank(x)?, diagonal.axes, diagonal.offset);
    if a == b || a >= rank || b >= rank {
        return malformed("a diagonal needs two dimensions");
    }
    let extents = emit.extents(x)?;
    numbers_of(&[extents[a], extents[b]])?;
    let mut shape = emit.extents(part)?;
    let Some(count) = shape.pop() else { return malformed("a scalar is no diagonal") };
    let row = offset.saturating_neg().max(0);
    if count < 1 || count != extents[a].saturating_sub(row).min(extents[b].saturating_sub(offset.max(0))) {
        return malformed(format!("a diagonal of {count} elements at offset {offset} of {extents:?}"));
    }
    // Elements of the diagonal in a column, in the rows that they are written to.
    shape.extend([count, 1]);
    let column = emit.reshape(part, &shape)?;
    let mut pads = vec![0; 2 * rank];
    (pads[rank - 2], pads[2 * rank - 2]) = (row, extents[a] - row - count);
    let column = if extents[a] == count { column } else { emit.pad(column, &pads, 0.0)? };
    let mut order: Vec<usize> = (0..rank).filter(|axis| ![a, b].contains(axis)).collect();
    order.extend([a, b]);
    let moved = emit.transpose(x, &order)?;
    let is_on = diagonal_mask(emit, &[extents[a], extents[b]], offset)?;
    let written = emit.push(Op::Where(Where {}), &[is_on, column, moved])?;
    emit.transpose_back(written, &order)
}

/// Returns a mask of a matrix, true where the column is the row plus an offset.
pub(super) fn diagonal_mask(emit: &mut Emit<'_>, extents: &[i64; 2], offset: i64) -> Outcome<ValueId> {
    let [height, width] = *extents;
    let rows = emit.add_range(DType::I64, &[height, 1])?;
    let rows = if offset == 0 { rows } else { emit.binary_with(BinaryOp::Add, rows, offset as f64)? };
    let columns = emit.add_range(DType::I64, &[1, width])?;
    emit.compare(CompareOp::Equal, rows, columns)
}
