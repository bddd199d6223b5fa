//! Shape rules of operators that repeat, look up and write elements.

use super::{Rule, axis_of, broadcast, floating, known, numeric, same_dtype};
use crate::operator::{Border, ScatterOp};
use crate::types::{DType, Dim, TensorType};

/// Diagonals beyond this are mistakes.
const MAX_DIAGONAL: i64 = 1 << 31;

pub(super) fn expand(x: &TensorType, shape: &[i64]) -> Rule<TensorType> {
    let shape: Vec<Dim> = shape.iter().map(|&extent| Dim::Known(extent)).collect();
    Ok(TensorType { dtype: x.dtype, shape: broadcast(&x.shape, &shape)? })
}

pub(super) fn tile(x: &TensorType, repeats: &[i64]) -> Rule<TensorType> {
    if repeats.len() != x.rank() {
        return Err(format!("{} dimensions need as many repeats, got {}", x.rank(), repeats.len()));
    }
    let mut output = x.clone();
    for (dim, &repeat) in output.shape.iter_mut().zip(repeats) {
        if repeat < 1 {
            return Err(format!("{repeat} repeats must be at least 1"));
        }
        if repeat > 1 {
            let repeated = known(dim, "a repeated extent")?.checked_mul(repeat);
            *dim = Dim::Known(repeated.ok_or("the repeated extent is more than 64 bits can count")?);
        }
    }
    Ok(output)
}

/// What is looked up must have elements.
fn filled(x: &TensorType, axis: usize) -> Rule<()> {
    if x.shape[axis] == Dim::Known(0) {
        return Err(format!("dimension {axis} of {x} has no elements to look up"));
    }
    Ok(())
}

fn indices(ty: &TensorType) -> Rule<()> {
    match ty.dtype {
        DType::I32 | DType::I64 => Ok(()),
        other => Err(format!("indices must be i32 or i64, not {other}")),
    }
}

pub(super) fn gather(x: &TensorType, at: &TensorType, axis: i64) -> Rule<TensorType> {
    indices(at)?;
    let axis = axis_of(axis, x)?;
    filled(x, axis)?;
    let shape = [&x.shape[..axis], &at.shape, &x.shape[axis + 1..]].concat();
    Ok(TensorType { dtype: x.dtype, shape })
}

pub(super) fn gather_elements(x: &TensorType, at: &TensorType, axis: i64) -> Rule<TensorType> {
    indices(at)?;
    let axis = axis_of(axis, x)?;
    filled(x, axis)?;
    if at.rank() != x.rank() {
        return Err(format!("the indices have {} dimensions, `x` has {}", at.rank(), x.rank()));
    }
    for (place, (old, new)) in x.shape.iter().zip(&at.shape).enumerate() {
        let fits = match (old, new) {
            (Dim::Known(old), Dim::Known(new)) => new <= old,
            (old, new) => old == new,
        };
        if place != axis && !fits {
            return Err(format!("{at} reaches outside of dimension {place} of {x}"));
        }
    }
    Ok(TensorType { dtype: x.dtype, shape: at.shape.clone() })
}

pub(super) fn gather_nd(x: &TensorType, at: &TensorType, batch: i64) -> Rule<TensorType> {
    let batch = usize::try_from(batch).map_err(|_| format!("{batch} batch dimensions must not be negative"))?;
    let looked_up = tuple(x, at, batch)?;
    if at.shape.get(..batch) != x.shape.get(..batch) || batch >= at.rank() {
        return Err(format!("the first {batch} dimensions of {x} and {at} must agree"));
    }
    let shape = [&at.shape[..at.rank() - 1], &x.shape[batch + looked_up..]].concat();
    Ok(TensorType { dtype: x.dtype, shape })
}

/// How many dimensions the last dimension of the indices looks up.
fn tuple(x: &TensorType, at: &TensorType, batch: usize) -> Rule<usize> {
    indices(at)?;
    let last = at.shape.last().ok_or("the indices need at least 1 dimension")?;
    let count = known(last, "the last dimension of the indices")?;
    let room = x.rank().saturating_sub(batch);
    let count = usize::try_from(count).ok().filter(|count| (1..=room).contains(count));
    let count = count.ok_or_else(|| format!("{last} indices do not look up 1 to {room} dimensions of {x}"))?;
    (batch..batch + count).try_for_each(|axis| filled(x, axis)).map(|()| count)
}

pub(super) fn scatter_elements(inputs: &[&TensorType], axis: i64, combine: ScatterOp) -> Rule<TensorType> {
    let [x, at, updates] = inputs else { return Err("takes 3 inputs".to_owned()) };
    let written = gather_elements(x, at, axis)?;
    scatter(x, updates, &written.shape, combine)
}

pub(super) fn scatter_nd(inputs: &[&TensorType], combine: ScatterOp) -> Rule<TensorType> {
    let [x, at, updates] = inputs else { return Err("takes 3 inputs".to_owned()) };
    let looked_up = tuple(x, at, 0)?;
    let written = [&at.shape[..at.rank() - 1], &x.shape[looked_up..]].concat();
    scatter(x, updates, &written, combine)
}

fn scatter(x: &TensorType, updates: &TensorType, written: &[Dim], combine: ScatterOp) -> Rule<TensorType> {
    same_dtype(x, updates)?;
    match combine {
        ScatterOp::Replace => {}
        ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => drop(numeric(x)?),
    }
    if updates.shape != written {
        let wanted = TensorType { dtype: x.dtype, shape: written.to_vec() };
        return Err(format!("the updates are {updates}, the indices ask for {wanted}"));
    }
    Ok((*x).clone())
}

pub(super) fn one_hot(at: &TensorType, axis: i64, depth: i64, values: [f64; 2], to: DType) -> Rule<TensorType> {
    indices(at)?;
    let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis <= at.rank()) else {
        return Err(format!("axis {axis} is above the rank {}", at.rank()));
    };
    if depth < 1 {
        return Err(format!("depth {depth} must be at least 1"));
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(format!("the values {values:?} must be finite"));
    }
    let mut shape = at.shape.clone();
    shape.insert(axis, Dim::Known(depth));
    Ok(TensorType { dtype: to, shape })
}

pub(super) fn trilu(x: &TensorType, diagonal: i64) -> Rule<TensorType> {
    if x.rank() < 2 {
        return Err(format!("`x` has {} dimensions; a triangle needs 2", x.rank()));
    }
    if !(-MAX_DIAGONAL..=MAX_DIAGONAL).contains(&diagonal) {
        return Err(format!("diagonal {diagonal} must be within {MAX_DIAGONAL} of the main one"));
    }
    Ok(x.clone())
}

pub(super) fn border_pad(x: &TensorType, border: Border, pads: &[i64]) -> Rule<TensorType> {
    let output = super::movement::pad(x, pads, 0.0)?;
    for (place, dim) in x.shape.iter().enumerate() {
        let pad = pads[place].max(pads[place + x.rank()]);
        if pad == 0 {
            continue;
        }
        let extent = known(dim, "a padded extent")?;
        let fits = match border {
            Border::Reflect => pad < extent,
            Border::Edge => extent > 0,
            Border::Wrap => pad <= extent,
        };
        if !fits {
            return Err(format!("the {extent} elements of dimension {place} are too few for a pad of {pad}"));
        }
    }
    Ok(output)
}

pub(super) fn rope(x: &TensorType, angles: &[&TensorType], rotary: i64) -> Rule<TensorType> {
    floating(x)?;
    let Some((last, leading)) = x.shape.split_last() else {
        return Err("`x` must have at least 1 dimension".to_owned());
    };
    let extent = known(last, "the last extent of `x`")?;
    if rotary < 2 || rotary % 2 != 0 || rotary > extent {
        return Err(format!("{rotary} turned elements must be even and at most {extent}"));
    }
    let full = [leading, &[Dim::Known(rotary / 2)]].concat();
    for angle in angles {
        same_dtype(x, angle)?;
        let has_all = angle.shape.last() == full.last();
        if !has_all || broadcast(&angle.shape, &full)? != full {
            let full = TensorType { dtype: x.dtype, shape: full };
            return Err(format!("{angle} must end in {} and broadcast to {full}", rotary / 2));
        }
    }
    Ok(x.clone())
}
