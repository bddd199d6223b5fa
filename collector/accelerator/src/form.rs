//! Tasks that an accelerator core can execute: 8-bit inputs, 32-bit sums, shifts instead of scales, 8-bit results.

use crate::instruction::AluOp;
use crate::layer::{Kind, Layer, Post, Tensors};
use models::operators::{BiasAdd, Binary, Cast, Clip, Conv, Dense, QConv, Requantize, Unary};
use models::{BinaryOp, DType, Op, Operand, Parameter, Step, Task, TensorType, UnaryOp};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CpuReason(String);

impl CpuReason {
    pub(crate) fn new(why: impl Into<String>) -> CpuReason {
        CpuReason(why.into())
    }
}

pub(crate) fn cpu_error<T>(why: impl Into<String>) -> Result<T, CpuReason> {
    Err(CpuReason(why.into()))
}

/// Converts a task to symmetric 8-bit values and power-of-two scales, ignoring accuracy. Shapes and work stay.
pub fn in_core_form(task: &Task) -> Result<Task, CpuReason> {
    if layer_of(task).is_ok() {
        return Ok(task.clone());
    }
    let anchor = &task.steps[0];
    let (op, is_sum) = match &anchor.op {
        Op::Conv(Conv { strides, pads, dilations, groups })
        | Op::QConv(QConv { strides, pads, dilations, groups, .. }) => {
            let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
            (Op::Conv(Conv { strides, pads, dilations, groups: *groups }), true)
        }
        Op::Dense(_) | Op::QDense(_) => (Op::Dense(Dense {}), true),
        op => (op.clone(), false),
    };
    let mut form = LayerForm { parameters: Vec::new(), steps: Vec::new() };
    let operands = anchor.inputs.iter().map(|operand| {
        let parameter = operand_parameter(task, *operand)?;
        Ok(form.add_parameter(parameter, if is_sum { DType::I8 } else { DType::I32 }))
    });
    let operands = operands.collect::<Result<Vec<Operand>, CpuReason>>()?;
    form.add_step(op, operands, &anchor.output);
    let rest = &task.steps[1..];
    let is_requantised = rest.iter().any(|step| matches!(step.op, Op::Requantize(_)));
    let has_bias = matches!(rest.first(), Some(Step { op: Op::BiasAdd(_), .. }));
    if is_sum && !is_requantised && !has_bias {
        form.append_shift(&anchor.output);
    }
    for (place, step) in rest.iter().enumerate() {
        match &step.op {
            Op::Requantize(Requantize { to, low, high, .. }) => {
                if *to == DType::U8 {
                    return cpu_error("the result is unsigned, but the accelerator's results are signed");
                }
                form.append_shift(&step.output);
                form.append_step(Op::Clip(Clip { low: *low as f64, high: *high as f64 }), &step.output);
            }
            Op::Clip(Clip { low, .. }) => {
                let low = if *low < 0.0 { -128.0 } else { 0.0 };
                form.append_step(Op::Clip(Clip { low, high: 127.0 }), &step.output);
            }
            Op::Cast(_) => {}
            op @ (Op::BiasAdd(_) | Op::Binary(_) | Op::Unary(_)) => {
                let other = step.inputs.iter().find(|operand| matches!(operand, Operand::Parameter(_)));
                let other = other.map(|operand| operand_parameter(task, *operand)).transpose()?;
                let before = Operand::Step(form.steps.len() - 1);
                let other = other.map(|parameter| form.add_parameter(parameter, DType::I32));
                form.add_step(op.clone(), [before].into_iter().chain(other).collect(), &step.output);
            }
            op => return cpu_error(format!("the accelerator does not support `{}`", op.name())),
        }
        if place == 0 && has_bias && is_sum && !is_requantised {
            form.append_shift(&step.output);
        }
    }
    let last = task.steps[task.steps.len() - 1].output.clone();
    let is_clipped = matches!(form.steps.last(), Some(Step { op: Op::Clip(_), .. }));
    if !is_clipped {
        form.append_step(Op::Clip(Clip { low: -128.0, high: 127.0 }), &last);
    }
    form.append_step(Op::Cast(Cast { to: DType::I8 }), &last);
    let task = Task { parameters: form.parameters, steps: form.steps };
    layer_of(&task)?;
    task.check().map_err(|error| CpuReason(error.to_string()))?;
    Ok(task)
}

struct LayerForm {
    parameters: Vec<Parameter>,
    steps: Vec<Step>,
}

impl LayerForm {
    fn add_parameter(&mut self, like: &Parameter, dtype: DType) -> Operand {
        let ty = TensorType { dtype, shape: like.ty.shape.clone() };
        self.parameters.push(Parameter { ty, is_constant: like.is_constant });
        Operand::Parameter(self.parameters.len() - 1)
    }

    fn add_step(&mut self, op: Op, inputs: Vec<Operand>, like: &TensorType) {
        let dtype = if let Op::Cast(Cast { to }) = &op { *to } else { DType::I32 };
        self.steps.push(Step { op, inputs, output: TensorType { dtype, shape: like.shape.clone() } });
    }

    fn append_step(&mut self, op: Op, like: &TensorType) {
        let before = Operand::Step(self.steps.len() - 1);
        self.add_step(op, vec![before], like);
    }

    fn append_shift(&mut self, like: &TensorType) {
        let extents = like.extents().unwrap_or_default();
        let shape = match extents.len() {
            0..=3 => vec![extents.last().copied().unwrap_or(1)],
            _ => vec![extents[1], 1, 1],
        };
        let shifts = Parameter { ty: TensorType::new(DType::I32, &shape), is_constant: true };
        let (before, by) = (Operand::Step(self.steps.len() - 1), self.add_parameter(&shifts, DType::I32));
        self.add_step(Op::Binary(Binary { function: BinaryOp::ShiftRight }), vec![before, by], like);
    }
}

fn operand_parameter(task: &Task, operand: Operand) -> Result<&Parameter, CpuReason> {
    match operand {
        Operand::Parameter(place) if place < task.parameters.len() => Ok(&task.parameters[place]),
        Operand::Parameter(_) | Operand::Step(_) => cpu_error("an operand is not a parameter of the task"),
    }
}

pub fn layer_of(task: &Task) -> Result<Layer, CpuReason> {
    let anchor = &task.steps[0];
    let extents = |operand: usize| {
        let types = anchor.inputs.get(operand).and_then(|operand| task.operand_type(*operand).ok());
        let extents = types.and_then(TensorType::extents).ok_or(CpuReason("the shapes are symbolic".to_owned()))?;
        let small = extents.iter().map(|&extent| u32::try_from(extent).ok().filter(|&extent| extent < 1 << 20));
        small.collect::<Option<Vec<u32>>>().ok_or(CpuReason("a dimension is 2^20 or larger".to_owned()))
    };
    let mut layer = match &anchor.op {
        Op::Conv(Conv { strides, pads, dilations, groups }) => {
            convolution_layer(&extents(0)?, &extents(1)?, [strides, pads, dilations], *groups)?
        }
        Op::Dense(_) => {
            let (data, weights) = (extents(0)?, extents(1)?);
            matrix_layer(Kind::Convolution, &data, weights[0])?
        }
        Op::Binary(_) | Op::Unary(_) | Op::Clip(_) => {
            let data = extents(0)?;
            match data.as_slice() {
                &[images, channels, height, width] => elementwise_layer([images, channels, height, width]),
                _ => matrix_layer(Kind::Elementwise, &data, data.last().copied().unwrap_or(1))?,
            }
        }
        op => return cpu_error(format!("the accelerator does not support `{}`", op.name())),
    };
    check_types(task, &layer)?;
    let (mut next, first) = if layer.kind == Kind::Elementwise { (1, 0) } else { (2, 1) };
    for step in &task.steps[first..task.steps.len() - 1] {
        layer.post.extend(post_operations(task, step, &layer, &mut next)?);
    }
    if next != task.parameters.len() {
        return cpu_error("a parameter is read twice");
    }
    Ok(layer)
}

fn check_types(task: &Task, layer: &Layer) -> Result<(), CpuReason> {
    let bytes = if layer.kind == Kind::Elementwise { 0 } else { 2 };
    for (place, parameter) in task.parameters.iter().enumerate() {
        let wanted = if place < bytes { DType::I8 } else { DType::I32 };
        if parameter.ty.dtype != wanted {
            return cpu_error(format!(
                "parameter {place} is {}, but the accelerator needs {wanted}",
                parameter.ty.dtype
            ));
        }
    }
    let (last, before) = task.steps.split_last().expect("a task has at least one step");
    if last.op != (Op::Cast(Cast { to: DType::I8 })) || before.iter().any(|step| step.output.dtype != DType::I32) {
        return cpu_error("the result does not have 8 bits, but the accelerator writes bytes");
    }
    Ok(())
}

fn convolution_layer(
    data: &[u32],
    weights: &[u32],
    [strides, pads, dilations]: [&Vec<i64>; 3],
    groups: i64,
) -> Result<Layer, CpuReason> {
    let (&[images, channels_in, height, width], &[channels_out, depth, rows, columns]) = (data, weights) else {
        return cpu_error(format!(
            "the convolution has {} spatial dimensions, but the accelerator supports 2",
            data.len().saturating_sub(2)
        ));
    };
    if dilations.iter().any(|&dilation| dilation != 1) {
        return cpu_error(format!("the accelerator does not support dilated windows (dilations {dilations:?})"));
    }
    let kind = match groups {
        1 => Kind::Convolution,
        _ if depth == 1 && channels_in == channels_out => Kind::Depthwise,
        _ => {
            return cpu_error(format!(
                "the convolution has {groups} groups of {depth} channels, but the accelerator supports only one group \
                 or groups of one channel"
            ));
        }
    };
    let small = |number: &i64| u32::try_from(*number).ok().filter(|&number| number < 1 << 12);
    let strides: Option<Vec<u32>> = strides.iter().map(small).collect();
    let pads: Option<Vec<u32>> = pads.iter().map(small).collect();
    let (Some(&[down, along]), Some(&[top, left, bottom, right])) = (strides.as_deref(), pads.as_deref()) else {
        return cpu_error("the accelerator does not support these strides or pads");
    };
    let (kernel, strides, pads) = ([rows, columns], [down, along], [top, left, bottom, right]);
    let tensors = Tensors::Images;
    Ok(Layer {
        kind,
        tensors,
        images,
        channels_in,
        height,
        width,
        channels_out,
        kernel,
        strides,
        pads,
        post: Vec::new(),
    })
}

fn elementwise_layer([images, channels, height, width]: [u32; 4]) -> Layer {
    Layer {
        kind: Kind::Elementwise,
        tensors: Tensors::Images,
        images,
        channels_in: channels,
        height,
        width,
        channels_out: channels,
        kernel: [1, 1],
        strides: [1, 1],
        pads: [0; 4],
        post: Vec::new(),
    }
}

/// Returns a matrix operation as a layer with one image row. Up to `BATCH` adjacent matrix rows form a batch.
fn matrix_layer(kind: Kind, data: &[u32], channels_out: u32) -> Result<Layer, CpuReason> {
    /// Rows per buffer element on the core with the largest batch.
    const BATCH: u32 = 4;
    let Some((&channels_in, rows)) = data.split_last() else { return cpu_error("the data have no dimensions") };
    let rows = rows.iter().try_fold(1u32, |rows, &extent| rows.checked_mul(extent));
    let Some(rows) = rows.filter(|rows| (1..1 << 20).contains(rows)) else {
        return cpu_error("the data have no rows, or too many");
    };
    let images = rows.min(BATCH);
    let width = rows.div_ceil(images);
    let (kernel, strides, pads) = ([1, 1], [1, 1], [0; 4]);
    let tensors = Tensors::Matrix { rows };
    Ok(Layer {
        kind,
        tensors,
        images,
        channels_in,
        height: 1,
        width,
        channels_out,
        kernel,
        strides,
        pads,
        post: Vec::new(),
    })
}

fn post_operations(task: &Task, step: &Step, layer: &Layer, next: &mut usize) -> Result<Vec<Post>, CpuReason> {
    let per = |op: AluOp, next: &mut usize| {
        // The first operand of an element-wise task's first step is the data.
        let reads = step.inputs.iter().filter_map(|operand| match operand {
            Operand::Parameter(place) => Some(*place),
            Operand::Step(_) => None,
        });
        let reads: Vec<usize> = reads.filter(|place| *place >= *next).collect();
        let [place] = reads[..] else { return cpu_error("a parameter is read twice") };
        if place != *next || step.inputs.last() != Some(&Operand::Parameter(place)) && op == AluOp::ShiftRight {
            return cpu_error("the parameters are not in the order of their steps");
        }
        *next += 1;
        let shape = task.parameters[place].ty.extents().unwrap_or_default();
        let output = step.output.extents().unwrap_or_default();
        let channels = i64::from(layer.channels_out);
        let is_vector = shape.iter().product::<i64>() == channels;
        let is_channels = is_vector
            && match layer.tensors {
                // The last two dimensions of an image are spatial. A bias names its axis.
                Tensors::Images => match shape.len() {
                    1 => matches!(step.op, Op::BiasAdd(_)),
                    rank => rank >= 3 && shape[rank - 3] == channels,
                },
                Tensors::Matrix { .. } => shape.last() == Some(&channels),
            };
        match () {
            () if shape == output => Ok(vec![Post::Tensor(op)]),
            () if is_channels => Ok(vec![Post::PerChannel(op)]),
            () => cpu_error(format!(
                "an operand of shape {shape:?} has neither one value per channel nor one per element"
            )),
        }
    };
    match &step.op {
        Op::BiasAdd(BiasAdd { axis }) => {
            let channel = if layer.tensors == Tensors::Images { 1 } else { step.output.rank() as i64 - 1 };
            if *axis != channel {
                cpu_error("the bias does not have one value per channel")
            } else {
                per(AluOp::Add, next)
            }
        }
        Op::Binary(Binary { function: BinaryOp::Add }) => per(AluOp::Add, next),
        Op::Binary(Binary { function: BinaryOp::Max }) => per(AluOp::Max, next),
        Op::Binary(Binary { function: BinaryOp::Min }) => per(AluOp::Min, next),
        Op::Binary(Binary { function: BinaryOp::ShiftRight }) => per(AluOp::ShiftRight, next),
        Op::Unary(Unary { function: UnaryOp::Relu }) => Ok(vec![Post::Immediate(AluOp::Max, 0)]),
        Op::Clip(Clip { low, high }) => match (whole_i16(*low), whole_i16(*high)) {
            (Some(low), Some(high)) => Ok(vec![Post::Immediate(AluOp::Max, low), Post::Immediate(AluOp::Min, high)]),
            _ => {
                cpu_error(format!("the clip bounds {low} and {high} are not 16-bit integers, as the accelerator needs"))
            }
        },
        op => cpu_error(format!("the accelerator does not support `{}`", op.name())),
    }
}

fn whole_i16(number: f64) -> Option<i16> {
    let rounded = number as i16;
    (f64::from(rounded) == number).then_some(rounded)
}
