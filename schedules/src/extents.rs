//! What a register tile has to do with: extents of a convolution or a product, and which blocks of channels it allows.

use super::dots;
use super::taps::{Reach, reaches};
use super::template::{has_functions, parameter_extents, summed};
use crate::phases;
use models::operators::{Conv, ConvTranspose, MatMul, QConv};
use models::{Op, Task};

/// What a register tile has to do with. Only contractions ask.
pub(crate) fn contraction_extents(task: &Task, output: &[i64]) -> Extents {
    let anchor = &task.steps[0];
    let (last, rank) = (output.last().copied().unwrap_or(1), output.len());
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    let weight_bytes = task.parameters.get(1).map_or(4, |weight| i64::try_from(weight.ty.dtype.bytes()).unwrap_or(4));
    match &anchor.op {
        Op::Conv(Conv { strides, pads, dilations, groups })
        | Op::QConv(QConv { strides, pads, dilations, groups, .. })
        | Op::ConvTranspose(ConvTranspose { strides, pads, dilations, groups, .. }) => {
            let is_transposed = matches!(anchor.op, Op::ConvTranspose(_));
            let channels = output.get(1).copied().unwrap_or(1);
            let taps = taps(task);
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
                reaches: if taps > 1 { reaches(task) } else { Vec::new() },
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
            depth: summed(task).unwrap_or_else(|| input_extent(task, -1)),
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
            // Columns of a transposed operand cannot be read as a vector.
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

/// The extents of one phase of a transposed convolution, where it can be computed phase by phase on CPUs: all phases have as
/// many places, and what follows looks at none. Others stay as they are.
pub(crate) fn by_phases(task: &Task, output: &[i64], extents: Extents) -> Extents {
    let anchor = &task.steps[0];
    let Op::ConvTranspose(ConvTranspose { strides, .. }) = &anchor.op else { return extents };
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    let mut places = output.iter().skip(2).zip(strides);
    let is_even = places.all(|(extent, stride)| extent % stride == 0);
    if !is_constant || !is_even || phases::packing(&anchor.op, 1).is_none() || !dots::follows_channels(task) {
        return extents;
    }
    let stride = |from_last: usize| strides.len().checked_sub(from_last).map_or(1, |place| strides[place]);
    let phases: i64 = strides.iter().product();
    Extents {
        rows: extents.rows / stride(2),
        columns: extents.columns / stride(1),
        summed: extents.depth * taps(task) / phases,
        blocking: Blocking::Padded,
        ..extents
    }
}

/// How many places of the input one of the result reads.
pub(crate) fn taps(task: &Task) -> i64 {
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
    /// Whether columns beyond the result may be computed, and left out.
    pub(crate) may_fill: bool,
    /// Numbers that a number of the result is the sum of.
    pub(crate) summed: i64,
    /// Whether neighbours of the result come from neighbours of the input.
    pub(crate) is_dense: bool,
    /// Places of the input from one column of the result to the next.
    pub(crate) step: i64,
    /// Whether a place of a convolution's result comes from one place of the input.
    pub(crate) is_single: bool,
    /// Whether the taps of a window read neighbours, which they can share.
    pub(crate) is_close: bool,
    /// What windows reach, where that may lie outside of the image.
    pub(crate) reaches: Vec<Reach>,
    pub(crate) window: i64,
    pub(crate) taps: i64,
    /// Numbers of a convolution's input, and of its weights.
    pub(crate) sources: i64,
    pub(crate) weights: i64,
    pub(crate) weight_bytes: i64,
    /// Whether what follows computes exponentials or their kin.
    pub(crate) has_functions: bool,
    /// Products that there are of the same extents.
    pub(crate) batch: i64,
    /// Loops around the rows of a product.
    pub(crate) outside: i64,
    /// Where the second operand of a product may be copied: what blocks of channels must divide where it is not.
    pub(crate) whole: Option<i64>,
    pub(crate) blocking: Blocking,
}

impl Extents {
    /// Whether a convolution is dilated, so that neighbouring columns share no inputs.
    pub(crate) fn is_apart(&self) -> bool {
        self.is_conv && !self.is_single && !self.is_close && self.may_fill && !is_depthwise(self)
    }
}

/// Which blocks of output channels a task allows.
#[derive(Clone, Copy)]
pub(crate) enum Blocking {
    /// None: neighbouring channels cannot be read as a vector.
    None,
    /// Those that divide this extent: the operand is read as it is, or channels of other groups read other inputs.
    Dividing(i64),
    /// Any: the operand is packed, and padded with zeros to whole blocks.
    Padded,
}

/// Whether no two channels of the result read the same ones.
pub(crate) fn is_depthwise(extents: &Extents) -> bool {
    matches!(extents.blocking, Blocking::Dividing(1))
}
