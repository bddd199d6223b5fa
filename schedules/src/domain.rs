//! What a template sees of a task: the extents of its result, and what is summed for an element of it.

use crate::Template;
use crate::dots::is_flat;
use crate::extents::{Extents, by_phases, contraction_extents};
use crate::flat::{flat, is_odd};
use crate::template::{parameter_extents, template};
use crate::tiles::count;
use models::operators::{Conv, ConvTranspose, QConv};
use models::{Op, Task};

/// What a loop walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Channels, or the columns of a product.
    Channels,
    /// Rows, images, and all other dimensions of the result.
    Rows,
    /// Columns, or the rows of a product.
    Columns,
    Depth,
    /// Places of a window.
    Taps,
    /// Numbers of Winograd's transformed windows, which share nothing.
    Transformed,
}

impl Walk {
    /// How many there are.
    pub const COUNT: usize = 6;
}

/// How the dimensions of a result are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `n, c, …, y, x`, with sums over windows.
    Convolution,
    /// `…, row, column`; the columns are the channels.
    Product,
    /// Anything else.
    Elements,
}

/// A result and its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// How dimensions are arranged.
    pub form: Form,
    /// Extents of the result, or of one phase of it.
    pub extents: Vec<i64>,
    /// Whether columns may be computed that fill the last tile, and cut.
    pub may_fill: bool,
    /// Channels, or elements of a row, that are summed for an element of the result.
    pub depth: i64,
    /// Places of a window that are summed, by dimension.
    pub window: Vec<i64>,
    /// Whether windows are summed for each channel by itself.
    pub is_depthwise: bool,
    /// Whether all places of the result are one row that reads one row.
    pub is_row: bool,
    /// Places of the input between neighbouring windows.
    pub stride: i64,
}

impl Domain {
    /// A result without sums.
    pub fn elements(extents: Vec<i64>) -> Domain {
        Domain {
            form: Form::Elements,
            extents,
            may_fill: false,
            depth: 1,
            window: Vec::new(),
            is_depthwise: false,
            is_row: false,
            stride: 1,
        }
    }

    /// What the templates for CPUs see of a task, which may be flat.
    pub fn of(task: &Task) -> Domain {
        let flat = flat(task);
        let task = flat.as_ref().map_or(task, |flat| &flat.task);
        Domain::of_parts(task, |output| by_phases(task, output, contraction_extents(task, output)))
    }

    /// What the templates for GPUs see of a task.
    pub fn on_gpu(task: &Task) -> Domain {
        Domain { may_fill: false, ..Domain::of_parts(task, |output| contraction_extents(task, output)) }
    }

    fn of_parts(task: &Task, extents: impl Fn(&[i64]) -> Extents) -> Domain {
        let output = task.steps[0].output.extents().unwrap_or_default();
        if template(task) != Template::Contraction || output.len() < 2 {
            return Domain::elements(output);
        }
        Domain::of_contraction(task, &extents(&output), &output)
    }

    /// What tiles of a contraction see of it.
    pub(crate) fn of_contraction(task: &Task, extents: &Extents, output: &[i64]) -> Domain {
        let mut all = output.to_vec();
        let rank = all.len();
        if extents.is_conv && rank > 2 {
            all[rank - 1] = extents.columns;
            if rank > 3 {
                all[rank - 2] = extents.rows;
            }
        }
        let weight = parameter_extents(task, 1);
        let kernel = weight.get(2..).unwrap_or_default();
        let (window, depth, is_depthwise) = match &task.steps[0].op {
            Op::Conv(Conv { groups, .. }) | Op::QConv(QConv { groups, .. }) => {
                let depth = weight.get(1).copied().unwrap_or(1);
                (kernel.to_vec(), depth, *groups > 1 && depth == 1)
            }
            // Each phase of the result is reached through some of the taps.
            Op::ConvTranspose(ConvTranspose { strides, .. }) => {
                let taps = kernel.iter().zip(strides).map(|(&taps, &stride)| count(taps, stride));
                (taps.collect(), extents.depth, false)
            }
            _ => (Vec::new(), extents.depth, false),
        };
        Domain {
            form: if extents.is_conv { Form::Convolution } else { Form::Product },
            extents: all,
            may_fill: extents.is_conv && extents.may_fill,
            depth,
            window,
            is_depthwise,
            is_row: is_flat(&task.steps[0].op, kernel),
            stride: extents.step,
        }
    }

    /// With all places of an image in one row where each reads one place, and all rows of a product in one dimension, where templates
    /// see them so.
    pub fn in_one_row(mut self) -> Domain {
        let together = match self.form {
            Form::Convolution => 2..self.extents.len(),
            Form::Product => 0..self.extents.len() - 1,
            Form::Elements => return self,
        };
        let Some(&columns) = self.extents[together.clone()].last() else { return self };
        let places = self.extents[together.clone()].iter().product();
        if self.form == Form::Product || !is_odd(places, columns) {
            self.extents[together.clone()].fill(1);
            self.extents[together.end - 1] = places;
        }
        self
    }

    /// Returns the dimension of the channels.
    pub fn channels(&self) -> usize {
        if self.form == Form::Convolution { 1 } else { self.extents.len() - 1 }
    }

    /// Returns the dimension whose elements are neighbours in a tile.
    pub fn columns(&self) -> usize {
        self.extents.len() - if self.form == Form::Convolution { 1 } else { 2 }
    }

    /// Returns whether a dimension is the rows of a convolution's tiles.
    pub fn is_rows(&self, place: usize) -> bool {
        self.form == Form::Convolution && place > 1 && place + 2 == self.extents.len()
    }

    /// Returns what loops over a dimension of a contraction's result walk.
    pub fn walk(&self, place: usize) -> Walk {
        match place {
            _ if place == self.channels() => Walk::Channels,
            _ if place == self.columns() => Walk::Columns,
            _ => Walk::Rows,
        }
    }
}
