//! Task → tensor expressions → a function that can be scheduled. One file per operator family.
//!
//! Each step of a task becomes one named block, or a few: schedules find blocks by name, so names are stable and
//! unique. Parameters come first in the order of the task, the output last. A layout may ask for a constant operand
//! in packed form; the caller packs it once, outside of any timing.

mod attention;
mod contraction;
mod dots;
mod index;
mod movement;
mod normalise;
mod pointwise;
mod pool;
mod products;
mod quantised;
mod reduce;
mod resample;
mod transposed;
mod winograd;

pub(crate) use contraction::column_of;

use crate::tvm::TvmError;
use crate::tvm::compile::CompileTarget;
use crate::tvm::expression::{self, Expression, Extent, Module, Tensor};
use job::Packing;
use job::space::{ByTaps, Layout, Schedule};
use models::operators::ConvTranspose;
use models::{DType, Dim, Op, Operand, Step, Task, TensorType};
use schedules::flat::{Flat, flat};
use schedules::phases;
use schedules::pools::has_ends;
use std::collections::HashMap;

/// How a task is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// How constant operands are stored.
    pub layout: Layout,
    /// In what products of half precision are summed.
    pub sums: Sums,
    /// Whether all places of an image are one row, where nothing looks at rows.
    pub is_flat: bool,
    /// The columns of a convolution's sums are filled up to a multiple of this.
    pub columns: i64,
    /// Whether vectors of columns are read, of a channel by itself that takes every second one, too.
    pub has_vectors: bool,
    /// Whether a convolution reads all channels at one place of a window after those at another.
    pub by_taps: Option<ByTaps>,
    /// Whether a pool reduces the columns of windows before the rows of what these come to.
    pub columns_first: bool,
    /// Whether the second operand of a product is copied, panel by panel.
    pub copies: bool,
    pub indices: DType,
}

impl Form {
    /// The form that a schedule makes its moves on. Those of our own for CPUs are declared for flat tasks, TVM's are for tasks
    /// as its operators define them.
    pub fn of(schedule: &Schedule, target: &CompileTarget) -> Form {
        let is_cpu = !target.is_device();
        Form {
            layout: schedule.layout(),
            sums: if is_cpu { Sums::Own } else { Sums::Wide },
            is_flat: is_cpu && matches!(schedule, Schedule::Template { .. }),
            columns: if is_cpu { schedule.columns() } else { 1 },
            has_vectors: is_cpu && schedule.has_vectors(),
            by_taps: schedule.by_taps().filter(|_| is_cpu),
            columns_first: is_cpu && schedule.columns_first(),
            copies: is_cpu && schedule.copies(),
            // A processor's addresses have 64 bits: where shorter numbers might run over, LLVM cannot see neighbours as such.
            indices: if is_cpu { DType::I64 } else { DType::I32 },
        }
    }
}

/// A task that TVM can schedule.
#[derive(Clone)]
pub struct Lowered {
    /// The task as it was written down.
    pub task: Task,
    /// The function `main`.
    pub module: Module,
    /// Its blocks, in order of computation.
    pub blocks: Vec<Block>,
    /// How each parameter must be stored, in order, and last how the result is.
    pub packings: Vec<Packing>,
    /// The windows of a convolution whose sums must leave out what is padding for a whole tile.
    pub window: Option<ReachedInput>,
    /// Whether the last tile of a product's rows is to be apart from others.
    pub has_tail: bool,
}

/// The input that the windows of a convolution reach, by spatial dimensions.
#[derive(Clone, Debug)]
pub struct ReachedInput {
    /// Places of the input from one window to the next.
    pub strides: Vec<i64>,
    /// Places of the input from one of a window's to the next.
    pub dilations: Vec<i64>,
    /// Padding before the input.
    pub heads: Vec<i64>,
    pub extents: Vec<i64>,
}

/// One block and what a schedule may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub name: String,
    pub part: Part,
}

/// The part a block plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Surrounds an input with its padding, or reads it in another order.
    Pad,
    /// Copies an operand, panel by panel.
    Copy,
    /// Puts four bytes into one number, for products of bytes.
    Quads,
    /// The windows of a convolution as a matrix.
    Windows,
    /// Helps the anchor, such as the maximum of a softmax.
    Helper,
    /// What the columns of a pool's windows come to.
    Columns,
    /// The reduction or main computation.
    Anchor,
    /// Elementwise work on the anchor's result.
    Epilogue,
    /// Takes from columns that fill whole tiles those that the result has.
    Cut,
}

/// In what products of half precision are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    Own,
    /// In 32 bits, as GPUs do it.
    Wide,
}

/// Why a task cannot be lowered.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LowerError {
    #[error("`{operator}` has no lowering: {why}")]
    Unsupported { operator: String, why: String },
    #[error("`{operator}` needs a number for a dimension that is a symbol; bind it first")]
    Symbolic { operator: String },
    #[error(transparent)]
    Tvm(#[from] TvmError),
}

type Result<T> = std::result::Result<T, LowerError>;

/// Collects blocks while a task is written down.
pub(crate) struct Writer {
    blocks: Vec<Block>,
    layout: Layout,
    sums: Sums,
    /// Sizes that a call decides, by name.
    symbols: HashMap<String, Extent>,
    operator: &'static str,
    /// Extents of a convolution's window, which a weight stored as a matrix does not tell.
    kernel: Vec<i64>,
    /// What later steps compute in the place of their outputs, until all are cut to those or brought together.
    padded: Option<Vec<Extent>>,
    /// The columns of a convolution's sums are a multiple of this.
    columns: i64,
    has_vectors: bool,
    by_taps: Option<ByTaps>,
    columns_first: bool,
    copies: bool,
    window: Option<ReachedInput>,
}

impl Writer {
    fn extents(&mut self, ty: &TensorType) -> Result<Vec<Extent>> {
        let mut extents = Vec::with_capacity(ty.rank());
        for dim in &ty.shape {
            extents.push(match dim {
                Dim::Known(number) => Extent::Known(*number),
                Dim::Symbol(name) => match self.symbols.get(name) {
                    Some(extent) => extent.clone(),
                    None => {
                        let extent = Extent::symbol(name)?;
                        self.symbols.insert(name.clone(), extent.clone());
                        extent
                    }
                },
            });
        }
        Ok(extents)
    }

    fn number(&self, extent: &Extent) -> Result<i64> {
        extent.number().ok_or_else(|| LowerError::Symbolic { operator: self.operator.to_owned() })
    }

    fn numbers(&self, extents: &[Extent]) -> Result<Vec<i64>> {
        extents.iter().map(|extent| self.number(extent)).collect()
    }

    /// A computed tensor that is also a block.
    fn block(
        &mut self,
        name: &str,
        part: Part,
        like: (models::DType, &[Extent]),
        element: impl FnOnce(&[Expression]) -> std::result::Result<Expression, TvmError>,
    ) -> Result<Tensor> {
        let tensor = expression::compute(name, like.0, like.1, element)?;
        self.blocks.push(Block { name: name.to_owned(), part });
        Ok(tensor)
    }
}

/// Writes a task down for TVM.
pub fn lower(task: &Task, form: Form) -> Result<Lowered> {
    let flat = if form.is_flat { flat(task) } else { None };
    let own = flat.as_ref().map_or(task, |flat| &flat.task);
    // TVM takes the ends of rows, where windows reach into the padding, and last tiles apart by 32-bit indices only.
    let has_ends = form.columns_first && has_ends(own);
    let indices = if has_ends || has_tail(own, form) { DType::I32 } else { form.indices };
    expression::with_indices(indices, || match &flat {
        None => write(task, form),
        Some(flat) => write_flat(task, flat, form),
    })
}

/// Whether the last tile of a product's rows reaches past the end and can be computed apart from others.
pub fn has_tail(task: &Task, form: Form) -> bool {
    let anchor = &task.steps[0];
    let is_product = matches!(anchor.op, Op::Dense(_) | Op::MatMul(_) | Op::QDense(_) | Op::QMatMul(_));
    let is_product = is_product && matches!(form.layout, Layout::Blocked { .. });
    let types = task.parameters.iter().map(|parameter| &parameter.ty).chain(task.steps.iter().map(|step| &step.output));
    let is_small = |ty: &TensorType| {
        let extents = ty.extents()?;
        extents.iter().try_fold(4, |all: i32, &extent| all.checked_mul(i32::try_from(extent).ok()?))
    };
    let rows = anchor.output.extents().and_then(|extents| extents.iter().rev().nth(1).copied());
    is_product
        && rows.is_some_and(|rows| rows % form.columns.max(1) != 0)
        && types.into_iter().all(|ty| is_small(ty).is_some())
}

fn write_flat(task: &Task, flat: &Flat, form: Form) -> Result<Lowered> {
    let Flat { task: flat, packing: seen } = flat;
    let mut lowered = write(flat, form)?;
    // The same bytes; the code knows them by other extents.
    let types = |task: &Task| {
        let result = task.steps.last().map(|step| step.output.clone());
        let parameters = task.parameters.iter().map(|parameter| parameter.ty.clone());
        parameters.chain(result).collect::<Vec<TensorType>>()
    };
    for ((own, flat), packing) in types(task).iter().zip(&types(flat)).zip(&mut lowered.packings) {
        if own != flat {
            *packing = *seen;
        }
    }
    Ok(lowered)
}

fn write(task: &Task, form: Form) -> Result<Lowered> {
    let Form { layout, sums, columns, has_vectors, by_taps, columns_first, copies, is_flat: _, indices: _ } = form;
    let anchor = task.steps.first().map_or("", |step| step.op.name());
    let weight = task.steps.first().and_then(|step| task.operand_type(*step.inputs.get(1)?).ok()?.extents());
    let kernel = weight.and_then(|extents| Some(extents.get(2..)?.to_vec())).unwrap_or_default();
    let mut writer = Writer {
        blocks: Vec::new(),
        layout,
        sums,
        symbols: HashMap::new(),
        operator: anchor,
        kernel,
        padded: None,
        columns,
        has_vectors,
        by_taps,
        columns_first,
        copies,
        window: None,
    };
    let mut parameters = Vec::new();
    let mut packings = Vec::new();
    for (place, parameter) in task.parameters.iter().enumerate() {
        let extents = writer.extents(&parameter.ty)?;
        let packing = packing_of(task, place, form);
        let stored = match packing {
            Packing::Plain => extents,
            packing => known(&packing.extents(&writer.numbers(&extents)?)),
        };
        parameters.push(expression::placeholder(&format!("p{place}"), packing.dtype(parameter.ty.dtype), &stored)?);
        packings.push(packing);
    }
    let mut outputs: Vec<Tensor> = Vec::new();
    for (place, step) in task.steps.iter().enumerate() {
        let inputs: Vec<Tensor> = step
            .inputs
            .iter()
            .map(|operand| match operand {
                Operand::Parameter(index) => parameters[*index].clone(),
                Operand::Step(index) => outputs[*index].clone(),
            })
            .collect();
        writer.operator = step.op.name();
        outputs.push(lower_step(&mut writer, place, step, &inputs)?);
    }
    let mut output = outputs.pop().expect("a task has at least one step");
    if writer.padded.is_some() {
        let extents = writer.extents(&task.steps[task.steps.len() - 1].output)?;
        output = match &task.steps[0].op {
            Op::ConvTranspose(ConvTranspose { strides, .. }) => {
                transposed::together(&mut writer, &output, strides, &extents)?
            }
            _ => dots::cut(&mut writer, &output, &extents)?,
        };
    }
    let module = expression::module(&parameters, &output)?;
    packings.push(Packing::Plain);
    Ok(Lowered {
        task: task.clone(),
        module,
        blocks: writer.blocks,
        packings,
        window: writer.window,
        has_tail: has_tail(task, form),
    })
}

fn lower_step(writer: &mut Writer, place: usize, step: &Step, inputs: &[Tensor]) -> Result<Tensor> {
    let extents = match &writer.padded {
        Some(padded) => padded.clone(),
        None => writer.extents(&step.output)?,
    };
    let output = Output { dtype: step.output.dtype, extents, place };
    for lower in FAMILIES {
        if let Some(result) = lower(writer, &step.op, inputs, &output)? {
            return Ok(result);
        }
    }
    Err(LowerError::Unsupported {
        operator: step.op.name().to_owned(),
        why: "this version generates no code for it".to_owned(),
    })
}

/// Lowers an operator, or returns None if it belongs to another family.
type OperatorFamily = fn(&mut Writer, &Op, &[Tensor], &Output) -> Result<Option<Tensor>>;

const FAMILIES: &[OperatorFamily] = &[
    attention::lower,
    contraction::lower,
    index::lower,
    movement::lower,
    normalise::lower,
    pointwise::lower,
    pool::lower,
    quantised::lower,
    reduce::lower,
    resample::lower,
];

/// What a step must produce.
pub(crate) struct Output {
    dtype: models::DType,
    extents: Vec<Extent>,
    place: usize,
}

impl Output {
    /// Part of a block: the first step is the anchor, the others are its epilogue.
    fn part(&self) -> Part {
        if self.place == 0 { Part::Anchor } else { Part::Epilogue }
    }

    fn like(&self) -> (models::DType, &[Extent]) {
        (self.dtype, &self.extents)
    }

    /// Block name of a step, unique by its place: `relu_2`.
    fn name(&self, operator: &str) -> String {
        if self.place == 0 { operator.to_owned() } else { format!("{operator}_{}", self.place) }
    }
}

fn known(numbers: &[i64]) -> Vec<Extent> {
    numbers.iter().map(|&number| Extent::Known(number)).collect()
}

/// How a layout stores a parameter. A blocked one packs the weight of a contraction, when it is a constant; one of columns
/// takes that of a convolution for a matrix.
fn packing_of(task: &Task, place: usize, Form { layout, by_taps, .. }: Form) -> Packing {
    let anchor = &task.steps[0];
    let is_conv = matches!(anchor.op, Op::Conv(_) | Op::QConv(_));
    let is_operand = anchor.inputs.get(1) == Some(&Operand::Parameter(place));
    let is_constant = is_operand && task.parameters[place].is_constant;
    let is_weight = is_constant && (is_conv || matches!(anchor.op, Op::Dense(_) | Op::QDense(_)));
    if let (Layout::Blocked { block }, true) = (layout, is_constant)
        && let Some(phases) = phases::packing(&anchor.op, block)
    {
        return phases;
    }
    match layout {
        Layout::Blocked { block } if is_weight && is_conv && by_taps.is_some() => Packing::Taps { block },
        Layout::Blocked { block } if is_weight => Packing::Blocked { block },
        Layout::Dots { .. } if is_weight => Packing::Quads { block: 1 },
        Layout::BlockedDots { block, .. } if is_weight => Packing::Quads { block },
        Layout::Columns { .. } if is_operand && is_conv => Packing::Matrix,
        Layout::Winograd { tile, block } if is_weight && is_conv => Packing::Winograd { tile, block },
        Layout::Blocked { .. }
        | Layout::Plain
        | Layout::Columns { .. }
        | Layout::Winograd { .. }
        | Layout::BlockedDots { .. }
        | Layout::Dots { .. } => Packing::Plain,
    }
}
