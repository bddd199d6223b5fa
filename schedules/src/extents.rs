//! Extents of a convolution or a product from which register tiles are chosen, and its possible blocks of channels.

use super::dots;
use super::taps::{Reach, conv_reaches};
use super::template::{has_functions, parameter_extents, summed_extent};
use crate::phases;
use models::operators::{Conv, ConvTranspose, MatMul, QConv};
use models::{Op, Task};

pub(crate) fn contraction_extents(task: &Task, output: &[i64]) -> Extents {
    let anchor = &task.steps[0];
    let (last, rank) = (output.last().copied().unwrap_or(1), output.len());
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    let weight_bytes =
        task.parameters.get(1).map_or(4, |weight| i64::try_from(weight.ty.dtype.size_bytes()).unwrap_or(4));
    match &anchor.op {
        Op::Conv(Conv { strides, pads, dilations, groups })
        | Op::QConv(QConv { strides, pads, dilations, groups, .. })
        | Op::ConvTranspose(ConvTranspose { strides, pads, dilations, groups, .. }) => {
            let is_transposed = matches!(anchor.op, Op::ConvTranspose(_));
            let channels = output.get(1).copied().unwrap_or(1);
            let taps = tap_count(task);
            Extents {
                channels,
                rows: if strides.len() > 1 { output[rank - 2] } else { 1 },
                columns: last,
                depth: input_extent(task, 1),
                is_padded: is_transposed || pads.iter().any(|&pad| pad > 0),
                is_conv: true,
                may_fill: !is_transposed,
                summed: input_extent_of(task, 1, 1) * taps,
                is_dense: strides.iter().all(|&stride| stride == 1),
                step: strides.last().copied().unwrap_or(1),
                is_single: taps == 1,
                window: parameter_extents(task, 1).get(2..).and_then(|window| window.last().copied()).unwrap_or(1),
                taps,
                reaches: if taps > 1 { conv_reaches(task) } else { Vec::new() },
                is_close: taps > 1 && dilations.iter().all(|&dilation| dilation == 1),
                sources: parameter_extents(task, 0).iter().product(),
                weights: parameter_extents(task, 1).iter().product(),
                weight_bytes,
                has_functions: has_functions(task),
                batch: 1,
                outside: 3,
                whole: None,
                blocking: match groups {
                    _ if is_transposed => Blocking::None,
                    1 if is_constant => Blocking::Padded,
                    groups => Blocking::Dividing(channels / groups),
                },
            }
        }
        op => Extents {
            channels: last,
            rows: 1,
            columns: output[..rank - 1].last().copied().unwrap_or(1),
            depth: summed_extent(task).unwrap_or_else(|| input_extent(task, -1)),
            is_padded: false,
            is_conv: false,
            may_fill: false,
            summed: 1,
            is_dense: true,
            step: 1,
            is_single: false,
            is_close: true,
            reaches: Vec::new(),
            window: 1,
            taps: 1,
            sources: 1,
            weights: 1,
            weight_bytes,
            has_functions: has_functions(task),
            batch: output[..rank.saturating_sub(2)].iter().product(),
            outside: i64::try_from(rank).unwrap_or(2) - 1,
            // The columns of a transposed operand are not contiguous and cannot be read as a vector.
            whole: match op {
                Op::Dense(_) if !is_constant => Some(1),
                Op::MatMul(MatMul { transpose_b, .. }) => Some(if *transpose_b { 1 } else { last }),
                _ => None,
            },
            blocking: match op {
                Op::Dense(_) | Op::MatMul(_) => Blocking::Padded,
                Op::QDense(_) if is_constant => Blocking::Padded,
                Op::QDense(_) | Op::Einsum(_) => Blocking::None,
                _ => Blocking::Dividing(last),
            },
        },
    }
}

/// Returns the extents of one phase of a transposed convolution; `extents` unchanged if phases cannot be used.
pub(crate) fn by_phases(task: &Task, output: &[i64], extents: Extents) -> Extents {
    let anchor = &task.steps[0];
    let Op::ConvTranspose(ConvTranspose { strides, .. }) = &anchor.op else { return extents };
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    let mut places = output.iter().skip(2).zip(strides);
    let is_even = places.all(|(extent, stride)| extent % stride == 0);
    if !is_constant || !is_even || phases::phase_packing(&anchor.op, 1).is_none() || !dots::follows_channels(task) {
        return extents;
    }
    let stride = |from_last: usize| strides.len().checked_sub(from_last).map_or(1, |place| strides[place]);
    let phases: i64 = strides.iter().product();
    Extents {
        rows: extents.rows / stride(2),
        columns: extents.columns / stride(1),
        summed: extents.depth * tap_count(task) / phases,
        blocking: Blocking::Padded,
        ..extents
    }
}

pub(crate) fn tap_count(task: &Task) -> i64 {
    parameter_extents(task, 1).iter().skip(2).product()
}

fn input_extent_of(task: &Task, parameter: usize, dimension: usize) -> i64 {
    parameter_extents(task, parameter).get(dimension).copied().unwrap_or(1)
}

pub(crate) fn input_extent(task: &Task, dimension: i64) -> i64 {
    let extents = parameter_extents(task, 0);
    let place = if dimension < 0 { extents.len().checked_sub(1) } else { usize::try_from(dimension).ok() };
    place.and_then(|place| extents.get(place)).copied().unwrap_or(1)
}

pub(crate) struct Extents {
    pub(crate) channels: i64,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
    pub(crate) depth: i64,
    pub(crate) is_padded: bool,
    pub(crate) is_conv: bool,
    pub(crate) may_fill: bool,
    /// Number of elements that are summed for each element of the result.
    pub(crate) summed: i64,
    /// Whether adjacent elements of the result read adjacent elements of the input.
    pub(crate) is_dense: bool,
    /// Distance in the input of adjacent columns of the result.
    pub(crate) step: i64,
    /// Whether a convolution is pointwise.
    pub(crate) is_single: bool,
    /// Whether a window's elements are adjacent (no dilation), so that adjacent windows share inputs.
    pub(crate) is_close: bool,
    pub(crate) reaches: Vec<Reach>,
    pub(crate) window: i64,
    pub(crate) taps: i64,
    /// Number of elements of a convolution's input. `weights` is the number of its weights.
    pub(crate) sources: i64,
    pub(crate) weights: i64,
    pub(crate) weight_bytes: i64,
    /// Whether the epilogue computes exponentials or similar functions.
    pub(crate) has_functions: bool,
    /// Number of matrix products with these extents.
    pub(crate) batch: i64,
    pub(crate) outside: i64,
    /// Extent that channel blocks must divide unless a product's second operand is copied; None if it is never copied.
    pub(crate) whole: Option<i64>,
    pub(crate) blocking: Blocking,
}

impl Extents {
    pub(crate) fn is_dilated(&self) -> bool {
        self.is_conv && !self.is_single && !self.is_close && self.may_fill && !is_depthwise(self)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Blocking {
    /// No blocks: adjacent channels cannot be read as a vector.
    None,
    /// Block sizes that divide this extent, because the operand is not copied or groups read different inputs.
    Dividing(i64),
    /// Any block size: the operand is packed, and padded with zeros to whole blocks.
    Padded,
}

pub(crate) fn is_depthwise(extents: &Extents) -> bool {
    matches!(extents.blocking, Blocking::Dividing(1))
}
