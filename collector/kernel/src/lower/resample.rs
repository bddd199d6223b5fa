//! Spatial dimensions at other extents.

use super::{Output, Part, Result, Sums, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Tensor, constant, index};
use models::operators::Resize;
use models::{DType, Op, ResizeMode};

type Element = std::result::Result<Expression, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let Op::Resize(Resize { mode, .. }) = op else { return Ok(None) };
    let data = &inputs[0];
    let (old, new) = (writer.numbers(&data.extents[2..])?, writer.numbers(&output.extents[2..])?);
    let rank = output.extents.len();
    // Columns first, as many rows as there were: then rows are sums of rows, which lie side by side.
    let is_apart = *mode != ResizeMode::Nearest && rank > 3 && writer.sums == Sums::Own;
    let of = |d: usize, place: &Expression| sources(*mode, place, old[d], new[d], output.dtype);
    let data = if is_apart {
        let extents = [&data.extents[..rank - 1], &output.extents[rank - 1..]].concat();
        writer.block(&output.name("resize_columns"), Part::Helper, (output.dtype, &extents), |i| {
            let terms = vec![(i[..rank - 1].to_vec(), None)];
            blended(data, &blend(&terms, &of(rank - 3, &i[rank - 1])?)?)
        })?
    } else {
        data.clone()
    };
    writer
        .block(&output.name("resize"), output.part(), output.like(), |i| {
            let mut terms = vec![(i[..2].to_vec(), None)];
            for (d, place) in i[2..].iter().enumerate() {
                let is_done = is_apart && d + 3 == rank;
                let sources = if is_done { vec![(place.clone(), None)] } else { of(d, place)? };
                terms = blend(&terms, &sources)?;
            }
            blended(&data, &terms)
        })
        .map(Some)
}

/// The sum of elements by their weights.
fn blended(data: &Tensor, terms: &[Term]) -> Element {
    let mut sum: Option<Expression> = None;
    for (at, weight) in terms {
        let read = data.at(at)?;
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

/// Where one dimension is read, and with which weight; no weight is one.
type SampleSource = (Expression, Option<Expression>);

/// Indices so far with the product of their weights.
type Term = (Vec<Expression>, Option<Expression>);

fn sources(
    mode: ResizeMode,
    place: &Expression,
    old: i64,
    new: i64,
    dtype: DType,
) -> std::result::Result<Vec<SampleSource>, TvmError> {
    if mode == ResizeMode::Nearest {
        return Ok(vec![(place.mul(&index(old)?)?.floor_div(&index(new)?)?, None)]);
    }
    // Whole numbers know exactly between which two elements a place lies; rounded ones err by more than elements do.
    let (part_of, whole) = match mode {
        ResizeMode::LinearAligned => (place.mul(&index(old - 1)?)?, (new - 1).max(1)),
        ResizeMode::Linear | ResizeMode::Nearest => {
            let doubled = place.mul(&index(2 * old)?)?.add(&index(old - new)?)?;
            (if old < new { doubled.max(&index(0)?)? } else { doubled }, 2 * new)
        }
    };
    let low = part_of.floor_div(&index(whole)?)?;
    let part = part_of.sub(&low.mul(&index(whole)?)?)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let part = part.cast(wide)?.mul(&constant(wide, 1.0 / whole as f64)?)?;
    let part = if dtype == wide { part } else { part.cast(dtype)? };
    let high = low.add(&index(1)?)?.min(&index(old - 1)?)?;
    Ok(vec![(low, Some(constant(dtype, 1.0)?.sub(&part)?)), (high, Some(part))])
}

fn blend(terms: &[Term], sources: &[SampleSource]) -> std::result::Result<Vec<Term>, TvmError> {
    let mut longer = Vec::with_capacity(terms.len() * sources.len());
    for (at, weight) in terms {
        for (place, share) in sources {
            let at = at.iter().cloned().chain([place.clone()]).collect();
            longer.push((at, product(weight.as_ref(), share.as_ref())?));
        }
    }
    Ok(longer)
}

fn product(left: Option<&Expression>, right: Option<&Expression>) -> std::result::Result<Option<Expression>, TvmError> {
    let element: Option<Element> = match (left, right) {
        (Some(left), Some(right)) => Some(left.mul(right)),
        (Some(one), None) | (None, Some(one)) => Some(Ok(one.clone())),
        (None, None) => None,
    };
    element.transpose()
}
