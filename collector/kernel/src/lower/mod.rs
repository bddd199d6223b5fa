//! Lowers a task to tensor expressions and a function that can be scheduled. Schedules find blocks by name, so names
//! are stable and unique. Parameters come first in the order of the task, the output last. A layout may require a
//! constant operand in packed form; the caller packs it once, outside of any timing.

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
use crate::tvm::reducers;
pub(crate) use attention::{MASK_BLOCK, QUERIES_BLOCK};
use job::Packing;
use job::space::{ByTaps, Layout, Schedule};
use models::operators::ConvTranspose;
use models::{DType, Dim, Op, Operand, Step, Task, TensorType};
use schedules::flat::{Flat, flatten_task};
use schedules::phases;
use schedules::pools::has_ends;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub layout: Layout,
    /// Whether the code is for a GPU or another device with its own memory.
    pub is_device: bool,
    /// Whether the spatial dimensions are flattened wherever no operator needs rows.
    pub is_flat: bool,
    /// Multiple to which the columns of a convolution are padded.
    pub columns: i64,
    /// Whether depthwise convolutions of stride 2 store even and odd columns apart, so that vectors are contiguous.
    pub has_vectors: bool,
    /// Whether and how a convolution sums all channels of one kernel position (tap) before the next position.
    pub by_taps: Option<ByTaps>,
    pub columns_first: bool,
    /// Whether the second operand of a matrix product is copied into panels.
    pub copies: bool,
    pub indices: DType,
}

impl Form {
    /// Returns the form that a schedule expects: flattened for CPU templates, TVM's definitions for TVM's own spaces.
    pub fn for_schedule(schedule: &Schedule, target: &CompileTarget) -> Form {
        let is_cpu = !target.is_device();
        Form {
            layout: schedule.data_layout(),
            is_device: !is_cpu,
            is_flat: is_cpu && matches!(schedule, Schedule::Template { .. }),
            columns: if is_cpu { schedule.column_multiple() } else { 1 },
            has_vectors: is_cpu && schedule.has_vectors(),
            by_taps: schedule.by_taps().filter(|_| is_cpu),
            columns_first: is_cpu && schedule.columns_first(),
            copies: is_cpu && schedule.copies_inputs(),
            // Indices have 64 bits, like addresses: if a narrower index might overflow, LLVM does not recognise
            // adjacent elements.
            indices: if is_cpu { DType::I64 } else { DType::I32 },
        }
    }
}

#[derive(Clone)]
pub struct Lowered {
    pub task: Task,
    /// Module with the function `main`.
    pub module: Module,
    /// Blocks in order of computation.
    pub blocks: Vec<Block>,
    /// Storage format of each parameter, in order, followed by that of the result.
    pub packings: Vec<Packing>,
    /// Windows of a convolution whose sums must skip taps that read only padding.
    pub window: Option<ReachedInput>,
    pub has_tail: bool,
}

/// Windows of a convolution: strides, dilations, leading padding and input extents, by spatial dimension.
#[derive(Clone, Debug)]
pub struct ReachedInput {
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub heads: Vec<i64>,
    pub extents: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub name: String,
    pub part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Pads an input, or stores it in another order.
    Pad,
    Copy,
    Quads,
    Windows,
    /// Computes an intermediate result that the anchor reads, such as the maximum of a softmax.
    Helper,
    Columns,
    Anchor,
    Epilogue,
    /// Selects the valid columns of a result that is padded to whole tiles.
    Cut,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LowerError {
    #[error("cannot generate code for `{operator}`: {why}")]
    Unsupported { operator: String, why: String },
    #[error("`{operator}` needs a constant size for a symbolic dimension; bind the symbol first")]
    Symbolic { operator: String },
    #[error(transparent)]
    Tvm(#[from] TvmError),
}

type Result<T> = std::result::Result<T, LowerError>;

type Element = std::result::Result<Expression, TvmError>;

type Indices = std::result::Result<Vec<Expression>, TvmError>;

pub(crate) struct Writer {
    blocks: Vec<Block>,
    layout: Layout,
    is_device: bool,
    /// Symbolic sizes, by name, whose values are known only at run time.
    symbols: HashMap<String, Extent>,
    operator: &'static str,
    /// Kernel extents of a convolution, because a weight stored as a matrix does not contain them.
    kernel: Vec<i64>,
    /// Padded extents for which later steps are computed, until the result is cut or restored to the task's order.
    padded: Option<Vec<Extent>>,
    columns: i64,
    has_vectors: bool,
    by_taps: Option<ByTaps>,
    columns_first: bool,
    copies: bool,
    window: Option<ReachedInput>,
}

impl Writer {
    fn type_extents(&mut self, ty: &TensorType) -> Result<Vec<Extent>> {
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

    fn known_extent(&self, extent: &Extent) -> Result<i64> {
        extent.known_number().ok_or_else(|| LowerError::Symbolic { operator: self.operator.to_owned() })
    }

    fn known_extents(&self, extents: &[Extent]) -> Result<Vec<i64>> {
        extents.iter().map(|extent| self.known_extent(extent)).collect()
    }

    fn add_block(
        &mut self,
        name: &str,
        part: Part,
        like: (models::DType, &[Extent]),
        element: impl FnOnce(&[Expression]) -> std::result::Result<Expression, TvmError>,
    ) -> Result<Tensor> {
        let tensor = expression::compute_tensor(name, like.0, like.1, element)?;
        self.blocks.push(Block { name: name.to_owned(), part });
        Ok(tensor)
    }
}

pub fn lower_task(task: &Task, form: Form) -> Result<Lowered> {
    reducers::register_reducers()?;
    let flat = if form.is_flat { flatten_task(task) } else { None };
    let own = flat.as_ref().map_or(task, |flat| &flat.task);
    // TVM's loop partitioning at row ends (where windows reach into the padding) and at last tiles needs 32-bit
    // indices.
    let has_ends = form.columns_first && has_ends(own);
    let indices = if has_ends || has_tail(own, form) { DType::I32 } else { form.indices };
    expression::with_indices(indices, || match &flat {
        None => write_task(task, form),
        Some(flat) => write_flat(task, flat, form),
    })
}

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
    let mut lowered = write_task(flat, form)?;
    // The bytes stay the same; the flattened task only has other extents.
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

fn write_task(task: &Task, form: Form) -> Result<Lowered> {
    let Form { layout, is_device, columns, has_vectors, by_taps, columns_first, copies, is_flat: _, indices: _ } = form;
    let anchor = task.steps.first().map_or("", |step| step.op.name());
    let weight = task.steps.first().and_then(|step| task.operand_type(*step.inputs.get(1)?).ok()?.extents());
    let kernel = weight.and_then(|extents| Some(extents.get(2..)?.to_vec())).unwrap_or_default();
    let mut writer = Writer {
        blocks: Vec::new(),
        layout,
        is_device,
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
        let extents = writer.type_extents(&parameter.ty)?;
        let packing = packing_of(task, place, form);
        let stored = match packing {
            Packing::Plain => extents,
            packing => known_sizes(&packing.stored_extents(&writer.known_extents(&extents)?)),
        };
        parameters.push(expression::input_tensor(
            &format!("p{place}"),
            packing.stored_dtype(parameter.ty.dtype),
            &stored,
        )?);
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
        let extents = writer.type_extents(&task.steps[task.steps.len() - 1].output)?;
        output = match &task.steps[0].op {
            Op::ConvTranspose(ConvTranspose { strides, .. }) => {
                transposed::merge_phases(&mut writer, &output, strides, &extents)?
            }
            _ => dots::cut_columns(&mut writer, &output, &extents)?,
        };
    }
    let module = expression::build_module(&parameters, &output)?;
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
        None => writer.type_extents(&step.output)?,
    };
    let output = Output { dtype: step.output.dtype, extents, place };
    for lower in FAMILIES {
        if let Some(result) = lower(writer, &step.op, inputs, &output)? {
            return Ok(result);
        }
    }
    Err(LowerError::Unsupported {
        operator: step.op.name().to_owned(),
        why: "this version does not support the operator".to_owned(),
    })
}

/// Function that lowers an operator of one family, or returns None for operators of other families.
type OperatorFamily = fn(&mut Writer, &Op, &[Tensor], &Output) -> Result<Option<Tensor>>;

const FAMILIES: &[OperatorFamily] = &[
    attention::lower_attention,
    contraction::lower_contraction,
    index::lower_indexing,
    movement::lower_movement,
    normalise::lower_normalise,
    pointwise::lower_pointwise,
    pool::lower_pool,
    quantised::lower_quantised,
    reduce::lower_reduce,
    resample::lower_resample,
];

pub(crate) struct Output {
    dtype: models::DType,
    extents: Vec<Extent>,
    place: usize,
}

impl Output {
    fn block_part(&self) -> Part {
        if self.place == 0 { Part::Anchor } else { Part::Epilogue }
    }

    fn element_type(&self) -> (models::DType, &[Extent]) {
        (self.dtype, &self.extents)
    }

    /// Returns the block name of a step, made unique by the step's index: `relu_2`.
    fn block_name(&self, operator: &str) -> String {
        if self.place == 0 { operator.to_owned() } else { format!("{operator}_{}", self.place) }
    }
}

fn known_sizes(numbers: &[i64]) -> Vec<Extent> {
    numbers.iter().map(|&number| Extent::Known(number)).collect()
}

/// Returns a parameter's storage format; blocked layouts pack constant weights, `Columns` makes any filter a matrix.
fn packing_of(task: &Task, place: usize, Form { layout, by_taps, .. }: Form) -> Packing {
    let anchor = &task.steps[0];
    let is_conv = matches!(anchor.op, Op::Conv(_) | Op::QConv(_));
    let is_operand = anchor.inputs.get(1) == Some(&Operand::Parameter(place));
    let is_constant = is_operand && task.parameters[place].is_constant;
    let is_weight = is_constant && (is_conv || matches!(anchor.op, Op::Dense(_) | Op::QDense(_)));
    if let (Layout::Blocked { block }, true) = (layout, is_constant)
        && let Some(phases) = phases::phase_packing(&anchor.op, block)
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
