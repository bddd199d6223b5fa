//! Operators that move elements, and iteration over tensors that are broadcast.

use super::resize::resize_array;
use super::tensor::Array;
use models::operators::{Concat, Op, Pad, Resize, Slice, Transpose};

/// Returns the memory offset of each element, in row-major order of `extents`.
pub(super) fn strided_offsets(extents: &[usize], strides: &[usize]) -> impl Iterator<Item = usize> + use<> {
    let (extents, strides) = (extents.to_vec(), strides.to_vec());
    let count: usize = extents.iter().product();
    let mut index = vec![0; extents.len()];
    let mut offset = 0;
    (0..count).map(move |_| {
        let here = offset;
        for axis in (0..extents.len()).rev() {
            index[axis] += 1;
            offset += strides[axis];
            if index[axis] < extents[axis] {
                break;
            }
            offset -= strides[axis] * extents[axis];
            index[axis] = 0;
        }
        here
    })
}

pub(super) fn dense_strides(extents: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; extents.len()];
    for axis in (1..extents.len()).rev() {
        strides[axis - 1] = strides[axis] * extents[axis];
    }
    strides
}

/// Returns the strides of a tensor broadcast to `rank` dimensions: 0 for added and repeated ones.
pub(super) fn broadcast_strides(extents: &[usize], rank: usize) -> Vec<usize> {
    let own =
        dense_strides(extents).into_iter().zip(extents).map(|(stride, &extent)| if extent == 1 { 0 } else { stride });
    std::iter::repeat_n(0, rank - extents.len()).chain(own).collect()
}

pub(super) fn compute_movement(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let x = inputs[0];
    match op {
        Op::Reshape(_) | Op::Flatten(_) | Op::Identity(_) => y.data.copy_from_slice(&x.data),
        Op::Transpose(Transpose { permutation }) => permute_axes(x, permutation, y),
        Op::Concat(Concat { axis }) => join_arrays(inputs, *axis, y),
        Op::Slice(Slice { axes, starts, steps, .. }) => slice_array(x, axes, starts, steps, y),
        Op::Resize(Resize { mode, .. }) => resize_array(x, *mode, y),
        Op::Pad(Pad { pads, value }) => pad_array(x, pads, *value, y),
        Op::Expand(_) => expand_to(x, y),
        _ => return false,
    }
    true
}

pub(super) fn broadcast_binary(a: &Array, b: &Array, y: &mut Array, function: impl Fn(f64, f64) -> f64) {
    let walk = |array: &Array| strided_offsets(&y.extents, &broadcast_strides(&array.extents, y.extents.len()));
    let (a_walk, b_walk) = (walk(a), walk(b));
    for (y, (a_at, b_at)) in y.data.iter_mut().zip(a_walk.zip(b_walk)) {
        *y = function(a.data[a_at], b.data[b_at]);
    }
}

pub(super) fn select_elements(inputs: &[&Array], y: &mut Array) {
    let walk = |array: &Array| strided_offsets(&y.extents, &broadcast_strides(&array.extents, y.extents.len()));
    let (condition, yes, no) = (walk(inputs[0]), walk(inputs[1]), walk(inputs[2]));
    for (y, (condition_at, (yes_at, no_at))) in y.data.iter_mut().zip(condition.zip(yes.zip(no))) {
        *y = if inputs[0].data[condition_at] != 0.0 { inputs[1].data[yes_at] } else { inputs[2].data[no_at] };
    }
}

fn expand_to(x: &Array, y: &mut Array) {
    for (y, at) in y.data.iter_mut().zip(strided_offsets(&y.extents, &broadcast_strides(&x.extents, y.extents.len()))) {
        *y = x.data[at];
    }
}

fn permute_axes(x: &Array, permutation: &[i64], y: &mut Array) {
    let own = dense_strides(&x.extents);
    let permuted: Vec<usize> = permutation.iter().map(|&axis| own[usize::try_from(axis).unwrap_or(0)]).collect();
    for (y, at) in y.data.iter_mut().zip(strided_offsets(&y.extents, &permuted)) {
        *y = x.data[at];
    }
}

fn join_arrays(inputs: &[&Array], axis: i64, y: &mut Array) {
    let axis = usize::try_from(axis).unwrap_or(0);
    let run = |array: &Array| array.extents[axis..].iter().product::<usize>();
    let outer: usize = y.extents[..axis].iter().product();
    let parts = (0..outer).flat_map(|row| inputs.iter().map(move |input| (row, *input)));
    let mut rest = y.data.as_mut_slice();
    for (row, input) in parts {
        let length = run(input);
        let (part, after) = rest.split_at_mut(length);
        part.copy_from_slice(&input.data[row * length..][..length]);
        rest = after;
    }
}

fn slice_array(x: &Array, axes: &[i64], starts: &[i64], steps: &[i64], y: &mut Array) {
    let own = dense_strides(&x.extents);
    // For each dimension, the offset in elements of the source of each index.
    let mut sources: Vec<Vec<usize>> =
        own.iter().zip(&y.extents).map(|(stride, &extent)| (0..extent).map(|place| place * stride).collect()).collect();
    for ((&axis, &start), &step) in axes.iter().zip(starts).zip(steps) {
        let axis = usize::try_from(axis).expect("checked axes are not negative");
        for (place, source) in sources[axis].iter_mut().enumerate() {
            let element = i128::from(start) + place as i128 * i128::from(step);
            *source = usize::try_from(element).expect("checked slices stay inside") * own[axis];
        }
    }
    let mut index = vec![0; y.extents.len()];
    for y in &mut y.data {
        *y = x.data[index.iter().zip(&sources).map(|(&place, source)| source[place]).sum::<usize>()];
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < sources[axis].len() {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Returns the operator with its padding value, if it has one, changed by `function`.
pub(super) fn map_padding(op: &Op, function: impl Fn(f64) -> f64) -> Op {
    match op {
        Op::Pad(Pad { pads, value }) => Op::Pad(Pad { pads: pads.clone(), value: function(*value) }),
        other => other.clone(),
    }
}

fn pad_array(x: &Array, pads: &[i64], value: f64, y: &mut Array) {
    y.data.fill(value);
    let own = dense_strides(&y.extents);
    let start: usize = own.iter().zip(pads).map(|(stride, &head)| stride * usize::try_from(head).unwrap_or(0)).sum();
    for (x, at) in x.data.iter().zip(strided_offsets(&x.extents, &own)) {
        y.data[start + at] = *x;
    }
}
