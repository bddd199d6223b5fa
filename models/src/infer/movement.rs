//! Shape rules of operators that only move elements.

use super::{Rule, axis_of, floating, known, same_dtype};
use crate::operator::ResizeMode;
use crate::types::{Dim, TensorType};

pub(super) fn reshape(x: &TensorType, shape: &[i64]) -> Rule<TensorType> {
    let mut kept = vec![false; x.rank()];
    let mut deduced = None;
    let mut output = Vec::with_capacity(shape.len());
    for (index, &extent) in shape.iter().enumerate() {
        output.push(match extent {
            0 => {
                let dim = x.shape.get(index);
                let dim = dim.ok_or_else(|| format!("0 keeps dimension {index}, `x` has {}", x.rank()))?;
                kept[index] = true;
                dim.clone()
            }
            -1 if deduced.replace(index).is_some() => return Err("more than one extent is -1".to_owned()),
            -1 => Dim::Known(1),
            extent if extent > 0 => Dim::Known(extent),
            extent => return Err(format!("extent {extent} is neither positive, 0 nor -1")),
        });
    }
    // Kept dimensions stand on both sides and cancel; the rest must hold equally many elements.
    let rest: Vec<&Dim> = x.shape.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(dim, _)| dim).collect();
    let asked = product(shape.iter().filter(|&&extent| extent > 0).copied())?;
    let symbols: Vec<&Dim> = rest.iter().copied().filter(|dim| matches!(dim, Dim::Symbol(_))).collect();
    let numbers = product(rest.iter().filter_map(|dim| known(dim, "an extent").ok()))?;
    match (deduced, symbols.as_slice()) {
        (Some(index), [symbol]) if numbers == asked => output[index] = (*symbol).clone(),
        (Some(index), []) if asked != 0 && numbers % asked == 0 => output[index] = Dim::Known(numbers / asked),
        (None, []) if numbers == asked => {}
        (_, []) => return Err(format!("{x} cannot be seen as {shape:?}: the element counts differ")),
        (_, symbols) => return Err(format!("{shape:?} does not say where {} goes; bind it to a number", symbols[0])),
    }
    Ok(TensorType { dtype: x.dtype, shape: output })
}

pub(super) fn flatten(x: &TensorType, axis: i64) -> Rule<TensorType> {
    let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis <= x.rank()) else {
        return Err(format!("axis {axis} is above the rank {}", x.rank()));
    };
    let (outer, inner) = x.shape.split_at(axis);
    Ok(TensorType { dtype: x.dtype, shape: vec![join(outer)?, join(inner)?] })
}

pub(super) fn transpose(x: &TensorType, permutation: &[i64]) -> Rule<TensorType> {
    let mut seen = vec![false; x.rank()];
    let refused = || format!("permutation {permutation:?} must name each of {} dimensions once", x.rank());
    if permutation.len() != x.rank() {
        return Err(refused());
    }
    let mut shape = Vec::with_capacity(x.rank());
    for &axis in permutation {
        let axis = axis_of(axis, x)?;
        if std::mem::replace(&mut seen[axis], true) {
            return Err(refused());
        }
        shape.push(x.shape[axis].clone());
    }
    Ok(TensorType { dtype: x.dtype, shape })
}

pub(super) fn concat(inputs: &[&TensorType], axis: i64) -> Rule<TensorType> {
    let first = inputs[0];
    let axis = axis_of(axis, first)?;
    let mut joined: i64 = 0;
    for input in inputs {
        same_dtype(first, input)?;
        let agree = input.rank() == first.rank()
            && (0..first.rank()).all(|index| index == axis || input.shape[index] == first.shape[index]);
        if !agree {
            return Err(format!("{input} and {first} differ outside axis {axis}"));
        }
        if inputs.len() > 1 {
            let extent = known(&input.shape[axis], "the joined extent")?;
            joined = joined.checked_add(extent).ok_or("the joined extent is more than 64 bits can count")?;
        }
    }
    let mut output = first.clone();
    if inputs.len() > 1 {
        output.shape[axis] = Dim::Known(joined);
    }
    Ok(output)
}

pub(super) fn pad(x: &TensorType, pads: &[i64], value: f64) -> Rule<TensorType> {
    let rank = x.rank();
    if pads.len() != 2 * rank {
        return Err(format!("{rank} dimensions need {} pads, got {}", 2 * rank, pads.len()));
    }
    if !value.is_finite() {
        return Err(format!("the pad value {value} must be finite"));
    }
    let mut output = x.clone();
    for (index, dim) in output.shape.iter_mut().enumerate() {
        let (head, tail) = (pads[index], pads[index + rank]);
        if head < 0 || tail < 0 {
            return Err(format!("pads {head} and {tail} of dimension {index} must not be negative"));
        }
        if head == 0 && tail == 0 {
            continue;
        }
        let extent = known(dim, "a padded extent")?;
        let padded = extent.checked_add(head).and_then(|extent| extent.checked_add(tail));
        *dim = Dim::Known(padded.ok_or("the padded extent is more than 64 bits can count")?);
    }
    Ok(output)
}

pub(super) fn slice(x: &TensorType, axes: &[i64], starts: &[i64], stops: &[i64], steps: &[i64]) -> Rule<TensorType> {
    if [starts.len(), stops.len(), steps.len()] != [axes.len(); 3] {
        return Err(format!("{} axes need as many starts, stops and steps", axes.len()));
    }
    if !axes.is_sorted_by(|before, after| before < after) {
        return Err(format!("axes {axes:?} must ascend"));
    }
    let mut output = x.clone();
    for (index, &axis) in axes.iter().enumerate() {
        let (start, stop, step) = (starts[index], stops[index], steps[index]);
        let axis = axis_of(axis, x)?;
        let extent = known(&x.shape[axis], "a sliced extent")?;
        let is_forward = 0 <= start && start <= stop && stop <= extent && step >= 1;
        let is_backward = -1 <= stop && stop <= start && start < extent && step <= -1;
        if !(is_forward || is_backward) {
            return Err(format!(
                "{start}..{stop} in steps of {step} must stay inside the {extent} elements of dimension {axis}"
            ));
        }
        let (length, step) = (stop.abs_diff(start), step.unsigned_abs());
        let count = i64::try_from(length.div_ceil(step)).expect("no more than the extent");
        output.shape[axis] = Dim::Known(count);
    }
    Ok(output)
}

pub(super) fn resize(x: &TensorType, mode: ResizeMode, extents: &[i64]) -> Rule<TensorType> {
    match mode {
        ResizeMode::Nearest => {}
        ResizeMode::Linear | ResizeMode::LinearAligned => drop(floating(x)?),
    }
    if !(1..=3).contains(&extents.len()) || x.rank() != extents.len() + 2 {
        return Err(format!("{} new extents do not fit {x}, whose first two dimensions stay", extents.len()));
    }
    let mut output = x.clone();
    for (dim, &extent) in output.shape[2..].iter_mut().zip(extents) {
        if extent < 1 || known(dim, "a spatial extent of `x`")? < 1 {
            return Err(format!("a dimension of {dim} cannot become {extent}; both must be at least 1"));
        }
        *dim = Dim::Known(extent);
    }
    Ok(output)
}

/// The extent of several dimensions seen as one. A lone symbol among ones stays what it is.
fn join(dims: &[Dim]) -> Rule<Dim> {
    let proper: Vec<&Dim> = dims.iter().filter(|dim| **dim != Dim::Known(1)).collect();
    match proper.as_slice() {
        [one] => Ok((*one).clone()),
        many => {
            let extents = many.iter().map(|dim| known(dim, "a joined extent")).collect::<Rule<Vec<i64>>>()?;
            Ok(Dim::Known(product(extents.into_iter())?))
        }
    }
}

fn product(mut extents: impl Iterator<Item = i64>) -> Rule<i64> {
    extents
        .try_fold(1i64, |product, extent| product.checked_mul(extent))
        .ok_or_else(|| "the element count is more than 64 bits can count".to_owned())
}
