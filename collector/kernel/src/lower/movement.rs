//! Operators that only move elements.

use super::{Output, Part, Result, Writer};
use crate::lower::pointwise::axis_of;
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Extent, Tensor, constant, index};
use models::operators::{BorderPad, Concat, Pad, Slice, Tile, Transpose, Trilu};
use models::{Border, Op};

type Element = std::result::Result<Expression, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let data = &inputs[0];
    match op {
        Op::Reshape(_) | Op::Flatten(_) => writer.block(&output.name("reshape"), output.part(), output.like(), |i| {
            data.at(&unravel(&ravel(i, &output.extents)?, &data.extents)?)
        }),
        Op::Transpose(Transpose { permutation }) => {
            writer.block(&output.name("transpose"), output.part(), output.like(), |i| {
                let mut at = i.to_vec();
                for (place, &source) in permutation.iter().enumerate() {
                    at[axis_of(source, i.len())] = i[place].clone();
                }
                data.at(&at)
            })
        }
        Op::Concat(Concat { axis }) => {
            let axis = axis_of(*axis, output.extents.len());
            let lengths = inputs.iter().map(|input| writer.number(&input.extents[axis]));
            let lengths = lengths.collect::<Result<Vec<i64>>>()?;
            writer.block(&output.name("concat"), output.part(), output.like(), |i| concat(inputs, &lengths, axis, i))
        }
        Op::Slice(Slice { axes, starts, stops: _, steps }) => {
            writer.block(&output.name("slice"), output.part(), output.like(), |i| {
                let mut at = i.to_vec();
                for ((&axis, &start), &step) in axes.iter().zip(starts).zip(steps) {
                    let axis = axis_of(axis, i.len());
                    at[axis] = i[axis].mul(&index(step)?)?.add(&index(start)?)?;
                }
                data.at(&at)
            })
        }
        Op::Pad(Pad { pads, value }) => {
            let rank = data.extents.len();
            let value = constant(data.dtype, *value)?;
            pad(writer, (&output.name("pad"), output.part()), data, pads.split_at(rank), &value)
        }
        Op::BorderPad(BorderPad { border, pads }) => {
            let extents = writer.numbers(&data.extents)?;
            writer.block(&output.name("border_pad"), output.part(), output.like(), |i| {
                let mut at = Vec::with_capacity(i.len());
                for (d, variable) in i.iter().enumerate() {
                    at.push(inside(*border, variable, extents[d], pads[d], pads[d + i.len()])?);
                }
                data.at(&at)
            })
        }
        Op::Expand(_) => writer
            .block(&output.name("expand"), output.part(), output.like(), |i| super::pointwise::broadcast_read(data, i)),
        Op::Tile(Tile { repeats }) => writer.block(&output.name("tile"), output.part(), output.like(), |i| {
            let mut at = i.to_vec();
            for (d, _) in repeats.iter().enumerate().filter(|(_, repeat)| **repeat > 1) {
                at[d] = i[d].floor_mod(&data.extents[d].expression()?)?;
            }
            data.at(&at)
        }),
        Op::Trilu(Trilu { upper, diagonal }) => {
            // A diagonal outside of the matrix is as good as the last one just outside.
            let matrix = writer.numbers(&output.extents[output.extents.len() - 2..])?;
            let bound = matrix[0].max(matrix[1]);
            let diagonal = index((*diagonal).clamp(-bound, bound))?;
            writer.block(&output.name("trilu"), output.part(), output.like(), |i| {
                let right = i[i.len() - 1].sub(&i[i.len() - 2])?;
                let is_kept = if *upper { right.at_least(&diagonal)? } else { right.at_most(&diagonal)? };
                is_kept.select(&data.at(i)?, &constant(data.dtype, 0.0)?)
            })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// Where a place of a padded dimension comes from.
fn inside(border: Border, place: &Expression, extent: i64, head: i64, tail: i64) -> Element {
    if head == 0 && tail == 0 {
        return Ok(place.clone());
    }
    let place = place.sub(&index(head)?)?;
    let last = index(extent - 1)?;
    match border {
        Border::Edge => place.max(&index(0)?)?.min(&last),
        Border::Wrap => place.add(&index(extent)?)?.floor_mod(&index(extent)?),
        Border::Reflect => {
            let mirrored = place.max(&index(0)?.sub(&place)?)?;
            mirrored.min(&index(2 * (extent - 1))?.sub(&mirrored)?)
        }
    }
}

/// Reads from the last input whose start lies at or before the position.
fn concat(inputs: &[Tensor], lengths: &[i64], axis: usize, place: &[Expression]) -> Element {
    let mut start = lengths.iter().sum::<i64>();
    let mut chosen: Option<Expression> = None;
    for (input, length) in inputs.iter().zip(lengths).rev() {
        start -= length;
        let mut at = place.to_vec();
        at[axis] = place[axis].sub(&index(start)?)?;
        let read = input.at(&at)?;
        chosen = Some(match chosen {
            None => read,
            Some(later) => place[axis].less(&index(start + length)?)?.if_then_else(&read, &later)?,
        });
    }
    Ok(chosen.expect("concat has at least one input"))
}

/// `data` surrounded by `value`; one head and one tail per dimension.
pub(super) fn pad(
    writer: &mut Writer,
    (name, part): (&str, Part),
    data: &Tensor,
    (heads, tails): (&[i64], &[i64]),
    value: &Expression,
) -> Result<Tensor> {
    let extents = padded_extents(writer, data, (heads, tails))?;
    writer.block(name, part, (data.dtype, &extents), |i| padded_at(data, (heads, tails), i, value))
}

/// The extents of `data` between heads and tails.
pub(super) fn padded_extents(writer: &Writer, data: &Tensor, (heads, tails): (&[i64], &[i64])) -> Result<Vec<Extent>> {
    let mut extents = data.extents.clone();
    for (d, extent) in extents.iter_mut().enumerate().filter(|(d, _)| heads[*d] + tails[*d] != 0) {
        *extent = Extent::Known(heads[d] + writer.number(extent)? + tails[d]);
    }
    Ok(extents)
}

/// The element at a place of `data` between heads and tails, which are `value`.
pub(super) fn padded_at(
    data: &Tensor,
    (heads, tails): (&[i64], &[i64]),
    place: &[Expression],
    value: &Expression,
) -> Element {
    let mut inside: Option<Expression> = None;
    let mut at = Vec::with_capacity(place.len());
    for (d, variable) in place.iter().enumerate() {
        at.push(if heads[d] == 0 { variable.clone() } else { variable.sub(&index(heads[d])?)? });
        if heads[d] > 0 {
            inside = Some(both(inside, variable.at_least(&index(heads[d])?)?)?);
        }
        if tails[d] > 0 {
            inside = Some(both(inside, variable.less(&index(heads[d])?.add(&data.extents[d].expression()?)?)?)?);
        }
    }
    match inside {
        Some(inside) => inside.if_then_else(&data.at(&at)?, value),
        None => data.at(&at),
    }
}

/// `left and right`, where `left` may not exist yet.
pub(super) fn both(left: Option<Expression>, right: Expression) -> Element {
    match left {
        Some(left) => left.and(&right),
        None => Ok(right),
    }
}

/// Position in row-major order.
fn ravel(place: &[Expression], extents: &[Extent]) -> Element {
    let mut position = index(0)?;
    for (variable, extent) in place.iter().zip(extents) {
        position = position.mul(&extent.expression()?)?.add(variable)?;
    }
    Ok(position)
}

/// Indices of a row-major position.
fn unravel(position: &Expression, extents: &[Extent]) -> std::result::Result<Vec<Expression>, TvmError> {
    let mut indices = Vec::with_capacity(extents.len());
    let mut rest = position.clone();
    for extent in extents.iter().rev() {
        indices.push(rest.floor_mod(&extent.expression()?)?);
        rest = rest.floor_div(&extent.expression()?)?;
    }
    indices.reverse();
    Ok(indices)
}
