//! Lowers resampling, which changes the extents of spatial dimensions.

use super::{Element, Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Tensor, constant, index_constant};
use models::operators::Resize;
use models::{DType, Op, ResizeMode};

pub(super) fn lower_resample(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    let Op::Resize(Resize { mode, .. }) = op else { return Ok(None) };
    let data = &inputs[0];
    let (old, new) = (writer.known_extents(&data.extents[2..])?, writer.known_extents(&output.extents[2..])?);
    let rank = output.extents.len();
    // Columns are resampled first, in all input rows. Output rows are then sums of whole rows, whose elements are
    // contiguous.
    let is_apart = *mode != ResizeMode::Nearest && rank > 3 && !writer.is_device;
    let of = |d: usize, place: &Expression| sample_sources(*mode, place, old[d], new[d], output.dtype);
    let data = if is_apart {
        let extents = [&data.extents[..rank - 1], &output.extents[rank - 1..]].concat();
        writer.add_block(&output.block_name("resize_columns"), Part::Helper, (output.dtype, &extents), |i| {
            let terms = vec![(i[..rank - 1].to_vec(), None)];
            weighted_sum(data, &combine_terms(&terms, &of(rank - 3, &i[rank - 1])?)?)
        })?
    } else {
        data.clone()
    };
    writer
        .add_block(&output.block_name("resize"), output.block_part(), output.element_type(), |i| {
            let mut terms = vec![(i[..2].to_vec(), None)];
            for (d, place) in i[2..].iter().enumerate() {
                let is_done = is_apart && d + 3 == rank;
                let sources = if is_done { vec![(place.clone(), None)] } else { of(d, place)? };
                terms = combine_terms(&terms, &sources)?;
            }
            weighted_sum(&data, &terms)
        })
        .map(Some)
}

fn weighted_sum(data: &Tensor, terms: &[Term]) -> Element {
    let mut sum: Option<Expression> = None;
    for (at, weight) in terms {
        let read = data.element_at(at)?;
        let term = match weight {
            Some(weight) => read.mul(weight)?,
            None => read,
        };
        sum = Some(match sum {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
    }
    Ok(sum.expect("there is at least one term"))
}

/// Source index along one dimension, and the weight of the element at this index; None stands for weight 1.
type SampleSource = (Expression, Option<Expression>);

type Term = (Vec<Expression>, Option<Expression>);

fn sample_sources(
    mode: ResizeMode,
    place: &Expression,
    old: i64,
    new: i64,
    dtype: DType,
) -> std::result::Result<Vec<SampleSource>, TvmError> {
    if mode == ResizeMode::Nearest {
        return Ok(vec![(place.mul(&index_constant(old)?)?.floor_div(&index_constant(new)?)?, None)]);
    }
    // Integer arithmetic selects the two neighbouring elements exactly; rounded positions could select wrong ones.
    let (part_of, whole) = match mode {
        ResizeMode::LinearAligned => (place.mul(&index_constant(old - 1)?)?, (new - 1).max(1)),
        ResizeMode::Linear | ResizeMode::Nearest => {
            let doubled = place.mul(&index_constant(2 * old)?)?.add(&index_constant(old - new)?)?;
            (if old < new { doubled.max(&index_constant(0)?)? } else { doubled }, 2 * new)
        }
    };
    let low = part_of.floor_div(&index_constant(whole)?)?;
    let part = part_of.sub(&low.mul(&index_constant(whole)?)?)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let part = part.cast(wide)?.mul(&constant(wide, 1.0 / whole as f64)?)?;
    let part = if dtype == wide { part } else { part.cast(dtype)? };
    let high = low.add(&index_constant(1)?)?.min(&index_constant(old - 1)?)?;
    Ok(vec![(low, Some(constant(dtype, 1.0)?.sub(&part)?)), (high, Some(part))])
}

fn combine_terms(terms: &[Term], sources: &[SampleSource]) -> std::result::Result<Vec<Term>, TvmError> {
    let mut longer = Vec::with_capacity(terms.len() * sources.len());
    for (at, weight) in terms {
        for (place, share) in sources {
            let at = at.iter().cloned().chain([place.clone()]).collect();
            longer.push((at, multiply_weights(weight.as_ref(), share.as_ref())?));
        }
    }
    Ok(longer)
}

fn multiply_weights(
    left: Option<&Expression>,
    right: Option<&Expression>,
) -> std::result::Result<Option<Expression>, TvmError> {
    let element: Option<Element> = match (left, right) {
        (Some(left), Some(right)) => Some(left.mul(right)),
        (Some(one), None) | (None, Some(one)) => Some(Ok(one.clone())),
        (None, None) => None,
    };
    element.transpose()
}
