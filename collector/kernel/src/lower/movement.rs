//! Lowers operators that only move elements.

use super::{Element, Indices, Output, Part, Result, Writer};
use crate::lower::pointwise::axis_of;
use crate::tvm::expression::{Expression, Extent, Tensor, constant, index_constant};
use models::operators::{BorderPad, Concat, Pad, Slice, Tile, Transpose, Trilu};
use models::{Border, Op};

pub(super) fn lower_movement(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    let data = &inputs[0];
    match op {
        Op::Reshape(_) | Op::Flatten(_) => {
            writer.add_block(&output.block_name("reshape"), output.block_part(), output.element_type(), |i| {
                data.element_at(&unravel_index(&ravel_index(i, &output.extents)?, &data.extents)?)
            })
        }
        Op::Transpose(Transpose { permutation }) => {
            writer.add_block(&output.block_name("transpose"), output.block_part(), output.element_type(), |i| {
                let mut at = i.to_vec();
                for (place, &source) in permutation.iter().enumerate() {
                    at[axis_of(source, i.len())] = i[place].clone();
                }
                data.element_at(&at)
            })
        }
        Op::Concat(Concat { axis }) => {
            let axis = axis_of(*axis, output.extents.len());
            let lengths = inputs.iter().map(|input| writer.known_extent(&input.extents[axis]));
            let lengths = lengths.collect::<Result<Vec<i64>>>()?;
            writer.add_block(&output.block_name("concat"), output.block_part(), output.element_type(), |i| {
                concat_inputs(inputs, &lengths, axis, i)
            })
        }
        Op::Slice(Slice { axes, starts, stops: _, steps }) => {
            writer.add_block(&output.block_name("slice"), output.block_part(), output.element_type(), |i| {
                let mut at = i.to_vec();
                for ((&axis, &start), &step) in axes.iter().zip(starts).zip(steps) {
                    let axis = axis_of(axis, i.len());
                    at[axis] = i[axis].mul(&index_constant(step)?)?.add(&index_constant(start)?)?;
                }
                data.element_at(&at)
            })
        }
        Op::Pad(Pad { pads, value }) => {
            let rank = data.extents.len();
            let value = constant(data.dtype, *value)?;
            pad_tensor(writer, (&output.block_name("pad"), output.block_part()), data, pads.split_at(rank), &value)
        }
        Op::BorderPad(BorderPad { border, pads }) => {
            let extents = writer.known_extents(&data.extents)?;
            writer.add_block(&output.block_name("border_pad"), output.block_part(), output.element_type(), |i| {
                let mut at = Vec::with_capacity(i.len());
                for (d, variable) in i.iter().enumerate() {
                    at.push(source_position(*border, variable, extents[d], pads[d], pads[d + i.len()])?);
                }
                data.element_at(&at)
            })
        }
        Op::Expand(_) => {
            writer.add_block(&output.block_name("expand"), output.block_part(), output.element_type(), |i| {
                super::pointwise::broadcast_read(data, i)
            })
        }
        Op::Tile(Tile { repeats }) => {
            writer.add_block(&output.block_name("tile"), output.block_part(), output.element_type(), |i| {
                let mut at = i.to_vec();
                for (d, _) in repeats.iter().enumerate().filter(|(_, repeat)| **repeat > 1) {
                    at[d] = i[d].floor_mod(&data.extents[d].as_expression()?)?;
                }
                data.element_at(&at)
            })
        }
        Op::Trilu(Trilu { upper, diagonal }) => {
            // Diagonals outside of the matrix are equivalent, so the index is clamped to the first one outside.
            let matrix = writer.known_extents(&output.extents[output.extents.len() - 2..])?;
            let bound = matrix[0].max(matrix[1]);
            let diagonal = index_constant((*diagonal).clamp(-bound, bound))?;
            writer.add_block(&output.block_name("trilu"), output.block_part(), output.element_type(), |i| {
                let right = i[i.len() - 1].sub(&i[i.len() - 2])?;
                let is_kept = if *upper { right.at_least(&diagonal)? } else { right.at_most(&diagonal)? };
                is_kept.select(&data.element_at(i)?, &constant(data.dtype, 0.0)?)
            })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

fn source_position(border: Border, place: &Expression, extent: i64, head: i64, tail: i64) -> Element {
    if head == 0 && tail == 0 {
        return Ok(place.clone());
    }
    let place = place.sub(&index_constant(head)?)?;
    let last = index_constant(extent - 1)?;
    match border {
        Border::Edge => place.max(&index_constant(0)?)?.min(&last),
        Border::Wrap => place.add(&index_constant(extent)?)?.floor_mod(&index_constant(extent)?),
        Border::Reflect => {
            let mirrored = place.max(&index_constant(0)?.sub(&place)?)?;
            mirrored.min(&index_constant(2 * (extent - 1))?.sub(&mirrored)?)
        }
    }
}

/// Reads an element of a concatenation, from the last input that starts at or before the position.
fn concat_inputs(inputs: &[Tensor], lengths: &[i64], axis: usize, place: &[Expression]) -> Element {
    let mut start = lengths.iter().sum::<i64>();
    let mut chosen: Option<Expression> = None;
    for (input, length) in inputs.iter().zip(lengths).rev() {
        start -= length;
        let mut at = place.to_vec();
        at[axis] = place[axis].sub(&index_constant(start)?)?;
        let read = input.element_at(&at)?;
        chosen = Some(match chosen {
            None => read,
            Some(later) => place[axis].less(&index_constant(start + length)?)?.if_then_else(&read, &later)?,
        });
    }
    Ok(chosen.expect("concat has at least one input"))
}

pub(super) fn pad_tensor(
    writer: &mut Writer,
    (name, part): (&str, Part),
    data: &Tensor,
    (heads, tails): (&[i64], &[i64]),
    value: &Expression,
) -> Result<Tensor> {
    let extents = padded_extents(writer, data, (heads, tails))?;
    writer.add_block(name, part, (data.dtype, &extents), |i| padded_at(data, (heads, tails), i, value))
}

pub(super) fn padded_extents(writer: &Writer, data: &Tensor, (heads, tails): (&[i64], &[i64])) -> Result<Vec<Extent>> {
    let mut extents = data.extents.clone();
    for (d, extent) in extents.iter_mut().enumerate().filter(|(d, _)| heads[*d] + tails[*d] != 0) {
        *extent = Extent::Known(heads[d] + writer.known_extent(extent)? + tails[d]);
    }
    Ok(extents)
}

pub(super) fn padded_at(
    data: &Tensor,
    (heads, tails): (&[i64], &[i64]),
    place: &[Expression],
    value: &Expression,
) -> Element {
    let mut inside: Option<Expression> = None;
    let mut at = Vec::with_capacity(place.len());
    for (d, variable) in place.iter().enumerate() {
        at.push(if heads[d] == 0 { variable.clone() } else { variable.sub(&index_constant(heads[d])?)? });
        if heads[d] > 0 {
            inside = Some(join_conditions(inside, variable.at_least(&index_constant(heads[d])?)?)?);
        }
        if tails[d] > 0 {
            inside = Some(join_conditions(
                inside,
                variable.less(&index_constant(heads[d])?.add(&data.extents[d].as_expression()?)?)?,
            )?);
        }
    }
    match inside {
        Some(inside) => inside.if_then_else(&data.element_at(&at)?, value),
        None => data.element_at(&at),
    }
}

pub(super) fn join_conditions(left: Option<Expression>, right: Expression) -> Element {
    match left {
        Some(left) => left.and(&right),
        None => Ok(right),
    }
}

fn ravel_index(place: &[Expression], extents: &[Extent]) -> Element {
    let mut position = index_constant(0)?;
    for (variable, extent) in place.iter().zip(extents) {
        position = position.mul(&extent.as_expression()?)?.add(variable)?;
    }
    Ok(position)
}

fn unravel_index(position: &Expression, extents: &[Extent]) -> Indices {
    let mut indices = Vec::with_capacity(extents.len());
    let mut rest = position.clone();
    for extent in extents.iter().rev() {
        indices.push(rest.floor_mod(&extent.as_expression()?)?);
        rest = rest.floor_div(&extent.as_expression()?)?;
    }
    indices.reverse();
    Ok(indices)
}
