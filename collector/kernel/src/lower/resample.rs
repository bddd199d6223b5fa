//! Spatial dimensions at other extents.

use super::{Output, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Tensor, constant, index, index_type};
use models::{DType, Op, ResizeMode};

type Element = std::result::Result<Expression, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let Op::Resize { mode, .. } = op else { unreachable!("`{op:?}` does not resample") };
    let data = &inputs[0];
    let (old, new) = (writer.numbers(&data.extents[2..])?, writer.numbers(&output.extents[2..])?);
    writer.block(&output.name("resize"), output.part(), output.like(), |i| {
        let mut terms = vec![(i[..2].to_vec(), None)];
        for (d, place) in i[2..].iter().enumerate() {
            let sources = sources(*mode, place, old[d], new[d], output.dtype)?;
            terms = blend(&terms, &sources)?;
        }
        let mut sum: Option<Expression> = None;
        for (at, weight) in terms {
            let read = data.at(&at)?;
            let term = match weight {
                Some(weight) => read.mul(&weight)?,
                None => read,
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&term)?,
                None => term,
            });
        }
        Ok(sum.expect("there is at least one term"))
    })
}

/// Where one dimension is read, and with which weight; no weight is one.
type Source = (Expression, Option<Expression>);

/// Indices so far with the product of their weights.
type Term = (Vec<Expression>, Option<Expression>);

fn sources(
    mode: ResizeMode,
    place: &Expression,
    old: i64,
    new: i64,
    dtype: DType,
) -> std::result::Result<Vec<Source>, TvmError> {
    if mode == ResizeMode::Nearest {
        return Ok(vec![(place.mul(&index(old)?)?.floor_div(&index(new)?)?, None)]);
    }
    let number = |value: f64| constant(dtype, value);
    let at = match mode {
        ResizeMode::LinearAligned if new > 1 => {
            place.cast(dtype)?.mul(&number((old - 1) as f64 / (new - 1) as f64)?)?
        }
        ResizeMode::LinearAligned => number(0.0)?,
        ResizeMode::Linear | ResizeMode::Nearest => {
            let scale = old as f64 / new as f64;
            place.cast(dtype)?.mul(&number(scale)?)?.add(&number(0.5 * scale - 0.5)?)?
        }
    };
    let at = at.max(&number(0.0)?)?.min(&number((old - 1) as f64)?)?;
    let low = at.floor()?;
    let part = at.sub(&low)?;
    let low = low.cast(index_type())?;
    let high = low.add(&index(1)?)?.min(&index(old - 1)?)?;
    Ok(vec![(low, Some(number(1.0)?.sub(&part)?)), (high, Some(part))])
}

fn blend(terms: &[Term], sources: &[Source]) -> std::result::Result<Vec<Term>, TvmError> {
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
