//! The view of a task that templates have: extents of the result, and extents that are summed for each element.

use crate::Template;
use crate::dots::is_flat;
use crate::extents::{Extents, by_phases, contraction_extents};
use crate::flat::{flatten_task, is_odd};
use crate::template::{parameter_extents, task_template};
use crate::tiles::tile_count;
use models::operators::{Conv, ConvTranspose, QConv};
use models::{Op, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Channels, or the columns of a product.
    Channels,
    /// Rows, images, and all other dimensions of the result.
    Rows,
    /// Columns, or the rows of a product.
    Columns,
    Depth,
    Taps,
    /// Elements of Winograd's transformed windows, each of which is an independent product.
    Transformed,
}

impl Walk {
    pub const COUNT: usize = 6;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Result `n, c, …, y, x`, with sums over windows.
    Convolution,
    /// Result `…, row, column`; columns are treated as channels.
    Product,
    Elements,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub form: Form,
    /// Extents of the result, or of one phase of a transposed convolution's result.
    pub extents: Vec<i64>,
    /// Whether the last tile may be filled with extra columns, which are cut off.
    pub may_fill: bool,
    /// Number of channels, or row elements, that are summed for each element of the result.
    pub depth: i64,
    pub window: Vec<i64>,
    pub is_depthwise: bool,
    /// Whether each position of the result reads only the input at this position, so that all form one row.
    pub is_row: bool,
    pub stride: i64,
}

impl Domain {
    pub fn without_sums(extents: Vec<i64>) -> Domain {
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

    pub fn on_cpu(task: &Task) -> Domain {
        let flat = flatten_task(task);
        let task = flat.as_ref().map_or(task, |flat| &flat.task);
        Domain::of_parts(task, |output| by_phases(task, output, contraction_extents(task, output)))
    }

    pub fn on_gpu(task: &Task) -> Domain {
        Domain { may_fill: false, ..Domain::of_parts(task, |output| contraction_extents(task, output)) }
    }

    fn of_parts(task: &Task, extents: impl Fn(&[i64]) -> Extents) -> Domain {
        let output = task.steps[0].output.extents().unwrap_or_default();
        if task_template(task) != Template::Contraction || output.len() < 2 {
            return Domain::without_sums(output);
        }
        Domain::of_contraction(task, &extents(&output), &output)
    }

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
            // Each phase of the result reads only some of the taps.
            Op::ConvTranspose(ConvTranspose { strides, .. }) => {
                let taps = kernel.iter().zip(strides).map(|(&taps, &stride)| tile_count(taps, stride));
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

    pub fn channel_dimension(&self) -> usize {
        if self.form == Form::Convolution { 1 } else { self.extents.len() - 1 }
    }

    pub fn column_dimension(&self) -> usize {
        self.extents.len() - if self.form == Form::Convolution { 1 } else { 2 }
    }

    pub fn is_rows(&self, place: usize) -> bool {
        self.form == Form::Convolution && place > 1 && place + 2 == self.extents.len()
    }

    pub fn loop_walk(&self, place: usize) -> Walk {
        match place {
            _ if place == self.channel_dimension() => Walk::Channels,
            _ if place == self.column_dimension() => Walk::Columns,
            _ => Walk::Rows,
        }
    }
}
