//! Operators that read, write or repeat elements by index.

use super::movement::dense_strides;
use super::tensor::Array;
use models::operators::{
    Border, BorderPad, Gather, GatherElements, GatherNd, OneHot, Op, ScatterElements, ScatterNd, ScatterOp, Trilu,
};

/// Calls `visit` for each element in storage order, with its indices and its position in storage.
fn for_each(extents: &[usize], mut visit: impl FnMut(&[usize], usize)) {
    let mut place = vec![0; extents.len()];
    for number in 0..extents.iter().product() {
        visit(&place, number);
        for axis in (0..extents.len()).rev() {
            place[axis] += 1;
            if place[axis] < extents[axis] {
                break;
            }
            place[axis] = 0;
        }
    }
}

fn linear_offset(place: &[usize], strides: &[usize]) -> usize {
    place.iter().zip(strides).map(|(place, stride)| place * stride).sum()
}

/// Resolves an index: a negative one counts from the end. Indices outside, whose result is undefined, are clamped.
fn wrap_index(index: f64, extent: usize) -> usize {
    let extent = i64::try_from(extent).expect("a small extent");
    let index = index as i64;
    let index = if index < 0 { index.saturating_add(extent) } else { index };
    usize::try_from(index.clamp(0, extent - 1)).expect("inside the extent")
}

fn to_size(number: i64) -> usize {
    usize::try_from(number).expect("checked attributes are not negative")
}

/// Returns whether a number is an index of a dimension; a negative one counts from the end.
pub(super) fn is_index(number: f64, extent: f64) -> bool {
    (-extent..extent).contains(&number)
}

/// Describes the first index operand that is outside of its dimension.
pub(super) fn find_outside(op: &Op, inputs: &[&Array]) -> Option<String> {
    // For an index operand of tuples, the dimensions that the numbers of a tuple refer to.
    let (indices, extents): (&Array, &[usize]) = match op {
        Op::Gather(Gather { axis })
        | Op::GatherElements(GatherElements { axis })
        | Op::ScatterElements(ScatterElements { axis, .. }) => {
            (inputs[1], std::slice::from_ref(&inputs[0].extents[to_size(*axis)]))
        }
        Op::GatherNd(GatherNd { batch }) => (inputs[1], &inputs[0].extents[to_size(*batch)..]),
        Op::ScatterNd(_) => (inputs[1], &inputs[0].extents),
        _ => return None,
    };
    let is_tuple = matches!(op, Op::GatherNd(_) | Op::ScatterNd(_));
    let looked_up = if is_tuple { indices.extents.last().copied().unwrap_or(1).max(1) } else { 1 };
    let mut looked_up = indices.data.iter().zip(extents[..looked_up].iter().cycle());
    let outside = looked_up.find(|(index, extent)| !is_index(**index, **extent as f64));
    outside.map(|(index, extent)| format!("the index {index} is outside of a dimension of {extent}"))
}

/// Returns the operand that contains indices instead of elements.
pub(super) fn index_operand(op: &Op) -> Option<usize> {
    match op {
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) | Op::ScatterElements(_) | Op::ScatterNd(_) => Some(1),
        Op::OneHot(_) => Some(0),
        _ => None,
    }
}

pub(super) fn compute_indexing(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let x = inputs[0];
    match op {
        Op::BorderPad(BorderPad { border, pads }) => border_pad(x, *border, pads, y),
        Op::Tile(_) => tile_elements(x, y),
        Op::Gather(Gather { axis }) => gather_slices(x, inputs[1], *axis, y),
        Op::GatherElements(GatherElements { axis }) => gather_elements(x, inputs[1], *axis, y),
        Op::GatherNd(GatherNd { batch }) => gather_nd(x, inputs[1], *batch, y),
        Op::ScatterElements(ScatterElements { axis, combine }) => {
            scatter_elements(x, inputs[1], inputs[2], *axis, *combine, y);
        }
        Op::ScatterNd(ScatterNd { combine }) => scatter_nd(x, inputs[1], inputs[2], *combine, y),
        Op::OneHot(OneHot { axis, on, off, .. }) => one_hot(x, *axis, *on, *off, y),
        Op::Trilu(Trilu { upper, diagonal }) => mask_triangle(x, *upper, *diagonal, y),
        _ => return false,
    }
    true
}

fn tile_elements(x: &Array, y: &mut Array) {
    let own = dense_strides(&x.extents);
    for_each(&y.extents.clone(), |place, number| {
        let source: Vec<usize> = place.iter().zip(&x.extents).map(|(place, extent)| place % extent).collect();
        y.data[number] = x.data[linear_offset(&source, &own)];
    });
}

fn gather_slices(x: &Array, at: &Array, axis: i64, y: &mut Array) {
    let axis = to_size(axis);
    let inner: usize = x.extents[axis + 1..].iter().product();
    let outer: usize = x.extents[..axis].iter().product();
    let mut rest = y.data.as_mut_slice();
    for block in 0..outer {
        for index in &at.data {
            let (row, after) = rest.split_at_mut(inner);
            let source = (block * x.extents[axis] + wrap_index(*index, x.extents[axis])) * inner;
            row.copy_from_slice(&x.data[source..source + inner]);
            rest = after;
        }
    }
}

fn gather_elements(x: &Array, at: &Array, axis: i64, y: &mut Array) {
    let own = dense_strides(&x.extents);
    for_each(&at.extents, |place, number| {
        let mut source = place.to_vec();
        source[to_size(axis)] = wrap_index(at.data[number], x.extents[to_size(axis)]);
        y.data[number] = x.data[linear_offset(&source, &own)];
    });
}

fn gather_nd(x: &Array, at: &Array, batch: i64, y: &mut Array) {
    let batch = to_size(batch);
    let looked_up = at.extents[at.extents.len() - 1];
    let inner: usize = x.extents[batch + looked_up..].iter().product();
    let own = dense_strides(&x.extents);
    for_each(&at.extents[..at.extents.len() - 1], |place, number| {
        let mut source = place[..batch].to_vec();
        for (index, extent) in at.data[number * looked_up..][..looked_up].iter().zip(&x.extents[batch..]) {
            source.push(wrap_index(*index, *extent));
        }
        let start = linear_offset(&source, &own);
        y.data[number * inner..][..inner].copy_from_slice(&x.data[start..start + inner]);
    });
}

fn combine_values(combine: ScatterOp, old: f64, new: f64) -> f64 {
    match combine {
        ScatterOp::Replace => new,
        ScatterOp::Add => old + new,
        ScatterOp::Mul => old * new,
        ScatterOp::Max => old.max(new),
        ScatterOp::Min => old.min(new),
    }
}

fn scatter_elements(x: &Array, at: &Array, updates: &Array, axis: i64, combine: ScatterOp, y: &mut Array) {
    y.data.copy_from_slice(&x.data);
    let own = dense_strides(&x.extents);
    for_each(&at.extents, |place, number| {
        let mut target = place.to_vec();
        target[to_size(axis)] = wrap_index(at.data[number], x.extents[to_size(axis)]);
        let target = &mut y.data[linear_offset(&target, &own)];
        *target = combine_values(combine, *target, updates.data[number]);
    });
}

fn scatter_nd(x: &Array, at: &Array, updates: &Array, combine: ScatterOp, y: &mut Array) {
    y.data.copy_from_slice(&x.data);
    let looked_up = at.extents[at.extents.len() - 1];
    let inner: usize = x.extents[looked_up..].iter().product();
    let own = dense_strides(&x.extents);
    for (number, tuple) in at.data.chunks_exact(looked_up).enumerate() {
        let target: Vec<usize> =
            tuple.iter().zip(&x.extents).map(|(index, extent)| wrap_index(*index, *extent)).collect();
        let start = linear_offset(&target, &own);
        for (target, update) in y.data[start..start + inner].iter_mut().zip(&updates.data[number * inner..]) {
            *target = combine_values(combine, *target, *update);
        }
    }
}

fn one_hot(at: &Array, axis: i64, on: f64, off: f64, y: &mut Array) {
    let axis = to_size(axis);
    let depth = y.extents[axis];
    let inner: usize = at.extents[axis..].iter().product();
    for (number, y) in y.data.iter_mut().enumerate() {
        let (outer, class, place) = (number / (depth * inner), number / inner % depth, number % inner);
        let index = at.data[outer * inner + place];
        let index = if index < 0.0 { index + depth as f64 } else { index };
        *y = if index == class as f64 { on } else { off };
    }
}

fn mask_triangle(x: &Array, upper: bool, diagonal: i64, y: &mut Array) {
    let rank = x.extents.len();
    let (rows, columns) = (x.extents[rank - 2], x.extents[rank - 1]);
    for (number, y) in y.data.iter_mut().enumerate() {
        let right = (number % columns) as i64 - (number / columns % rows) as i64;
        let is_kept = if upper { right >= diagonal } else { right <= diagonal };
        *y = if is_kept { x.data[number] } else { 0.0 };
    }
}

fn border_pad(x: &Array, border: Border, pads: &[i64], y: &mut Array) {
    let own = dense_strides(&x.extents);
    let source = |place: usize, axis: usize| {
        let extent = x.extents[axis] as i64;
        let place = place as i64 - pads[axis];
        to_size(match border {
            Border::Edge => place.clamp(0, extent - 1),
            Border::Wrap => place.rem_euclid(extent),
            Border::Reflect if place < 0 => -place,
            Border::Reflect if place >= extent => 2 * (extent - 1) - place,
            Border::Reflect => place,
        })
    };
    for_each(&y.extents.clone(), |place, number| {
        let at: Vec<usize> = place.iter().enumerate().map(|(axis, &place)| source(place, axis)).collect();
        y.data[number] = x.data[linear_offset(&at, &own)];
    });
}
