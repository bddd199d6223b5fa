//! Conversion of a quantised layer with its constants to a form that the accelerator core executes.
//! A core has shifts but no multiplier after its sums. The scale of each channel is therefore rounded up to a power of
//! two, and the remaining factor between one half and one is folded into the channel's weights. Rounding the weights
//! again is the only loss. Zero points are exact: the result's zero point is added before the shift. The data's zero
//! point contributes the sum of the weights inside the image, since padding has no zero point.

use crate::form::{CpuReason, cpu_error, layer_of};
use models::operators::{Binary, Cast, Clip, Conv, Dense, QConv, QDense, Requantize};
use models::{BinaryOp, DType, Op, Operand, Parameter, Step, Task, TensorType};

/// A layer converted to a form that the core executes, with all operands except the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// The converted task, whose first parameter is the data.
    pub task: Task,
    pub constants: Vec<Vec<u8>>,
}

/// Limit of the magnitude of intermediate sums, so that 32-bit additions do not overflow.
const SUM_MAX: f64 = 2_147_483_647.0;
/// Maximum shift, which is less than the width of a sum.
const SHIFT_MAX: f64 = 30.0;

struct QuantisedParts<'a> {
    x_zero: f64,
    op: Op,
    weights: &'a [f64],
    bias: Option<&'a [f64]>,
    multipliers: &'a [f64],
    zero: i64,
    low: i64,
    high: i64,
}

pub fn fold_scales(task: &Task, constants: &[Option<Vec<f64>>]) -> Result<Folded, CpuReason> {
    let parts = split_layer(task, constants)?;
    let channels = parts.channel_count(task)?;
    let per_channel = parts.weights.len() / channels.max(1);
    let mut weights = Vec::with_capacity(parts.weights.len());
    let (mut added, mut shifts) = (Vec::with_capacity(channels), Vec::with_capacity(channels));
    for (channel, own) in parts.weights.chunks(per_channel.max(1)).enumerate() {
        let multiplier = parts.multipliers[channel % parts.multipliers.len()];
        if !(multiplier > 0.0 && multiplier <= 1.0) {
            return cpu_error(format!(
                "one of the scales is {multiplier}, but shifts can only represent factors of at most 1"
            ));
        }
        let shift = (-multiplier.log2()).floor().min(SHIFT_MAX);
        let rest = multiplier * shift.exp2();
        weights.extend(own.iter().map(|weight| (weight * rest).round_ties_even()));
        let half = if shift > 0.0 { (shift - 1.0).exp2() } else { 0.0 };
        let bias = parts.bias.map_or(0.0, |bias| (bias[channel % bias.len()] * rest).round_ties_even());
        added.push(bias + parts.zero as f64 * shift.exp2() + half);
        shifts.push(shift);
    }
    let output = task.steps[0].output.extents().ok_or_else(|| CpuReason::new("the shapes are symbolic"))?;
    let vector = |task: &Task| match task.steps[0].output.rank() {
        0..=3 => vec![channels as i64],
        _ => vec![channels as i64, 1, 1],
    };
    let (shape, added) = match parts.zero_corrections(task, &weights, channels)? {
        None => (vector(task), added),
        Some(Correction::PerChannel(own)) => (vector(task), add_vectors(&added, &own)),
        Some(Correction::PerElement(own)) => {
            let places = own.len() / channels.max(1);
            let images = usize::try_from(output[0]).unwrap_or(1).max(1);
            let one: Vec<f64> = own.iter().enumerate().map(|(at, own)| added[at / places.max(1)] + own).collect();
            (output.clone(), one.repeat(images))
        }
    };
    let most = 128.0 * 127.0 * per_channel as f64 + added.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
    if most > SUM_MAX {
        return cpu_error("the sums may exceed 32 bits");
    }
    let task = core_task(task, &parts, &shape, &vector(task));
    layer_of(&task)?;
    task.check().map_err(|error| CpuReason::new(error.to_string()))?;
    let bytes = weights.iter().map(|weight| (*weight as i8).cast_unsigned()).collect();
    let words = |numbers: &[f64]| numbers.iter().flat_map(|number| (*number as i32).to_le_bytes()).collect();
    Ok(Folded { task, constants: vec![bytes, words(&added), words(&shifts)] })
}

fn add_vectors(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().zip(right).map(|(left, right)| left + right).collect()
}

fn core_task(task: &Task, parts: &QuantisedParts<'_>, added: &[i64], shifts: &[i64]) -> Task {
    let own = |place: Operand| match place {
        Operand::Parameter(place) => task.parameters[place].ty.clone(),
        Operand::Step(_) => unreachable!("the constants were split off"),
    };
    let constant = |ty: TensorType| Parameter { ty, is_constant: true };
    let (data, weights) = (own(task.steps[0].inputs[0]), own(task.steps[0].inputs[1]));
    let parameters = vec![
        Parameter { ty: data, is_constant: false },
        constant(weights),
        constant(TensorType::new(DType::I32, added)),
        constant(TensorType::new(DType::I32, shifts)),
    ];
    let like = |dtype: DType| TensorType { dtype, shape: task.steps[0].output.shape.clone() };
    let mut steps = Vec::new();
    let mut step = |op: Op, inputs: Vec<Operand>, dtype: DType| steps.push(Step { op, inputs, output: like(dtype) });
    step(parts.op.clone(), vec![Operand::Parameter(0), Operand::Parameter(1)], DType::I32);
    let add = Op::Binary(Binary { function: BinaryOp::Add });
    step(add, vec![Operand::Step(0), Operand::Parameter(2)], DType::I32);
    let shift = Op::Binary(Binary { function: BinaryOp::ShiftRight });
    step(shift, vec![Operand::Step(1), Operand::Parameter(3)], DType::I32);
    let clip = Op::Clip(Clip { low: parts.low as f64, high: parts.high as f64 });
    step(clip, vec![Operand::Step(2)], DType::I32);
    step(Op::Cast(Cast { to: DType::I8 }), vec![Operand::Step(3)], DType::I8);
    Task { parameters, steps }
}

fn split_layer<'a>(task: &Task, constants: &'a [Option<Vec<f64>>]) -> Result<QuantisedParts<'a>, CpuReason> {
    let numbers = |operand: &Operand| match operand {
        Operand::Parameter(place) => constants.get(*place).and_then(Option::as_ref).map(Vec::as_slice),
        Operand::Step(_) => None,
    };
    let anchor = &task.steps[0];
    let (op, x_zero, w_zero) = match &anchor.op {
        Op::QConv(QConv { strides, pads, dilations, groups, x_zero, w_zero }) => {
            let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
            (Op::Conv(Conv { strides, pads, dilations, groups: *groups }), *x_zero, *w_zero)
        }
        Op::QDense(QDense { x_zero, w_zero }) => (Op::Dense(Dense {}), *x_zero, *w_zero),
        op => return cpu_error(format!("`{}` is not a quantised convolution or matrix product", op.name())),
    };
    if w_zero != 0 {
        return cpu_error(format!("the zero point of the weights is {w_zero}, but the accelerator needs 0"));
    }
    for (operand, what) in anchor.inputs.iter().zip(["data", "weights"]) {
        let Operand::Parameter(place) = operand else { return cpu_error("an operand is not a parameter of the task") };
        let dtype = task.parameters[*place].ty.dtype;
        if dtype != DType::I8 {
            return cpu_error(format!("the {what} are {dtype}, but the accelerator needs signed 8-bit numbers"));
        }
    }
    let Some(weights) = numbers(&anchor.inputs[1]).filter(|weights| !weights.is_empty()) else {
        return cpu_error("the weights are not constant");
    };
    let (bias, last) = match &task.steps[1..] {
        [last] => (None, last),
        [Step { op: Op::BiasAdd(_), inputs, .. }, last] => match numbers(&inputs[1]) {
            Some(bias) if !bias.is_empty() => (Some(bias), last),
            _ => return cpu_error("the bias is not constant"),
        },
        _ => return cpu_error("the sums are followed by more than a bias and a change of scale"),
    };
    let Op::Requantize(Requantize { to: DType::I8, zero, low, high, .. }) = last.op else {
        return cpu_error(format!("`{}` follows the sums, but the accelerator writes signed bytes", last.op.name()));
    };
    match numbers(&last.inputs[1]) {
        Some(multipliers) if !multipliers.is_empty() => {
            Ok(QuantisedParts { x_zero: x_zero as f64, op, weights, bias, multipliers, zero, low, high })
        }
        _ => cpu_error("the scales are not constant"),
    }
}

enum Correction {
    PerChannel(Vec<f64>),
    PerElement(Vec<f64>),
}

impl QuantisedParts<'_> {
    fn channel_count(&self, task: &Task) -> Result<usize, CpuReason> {
        let extents = task.steps[0].output.extents().unwrap_or_default();
        let place = if matches!(self.op, Op::Conv(_)) { 1 } else { extents.len().saturating_sub(1) };
        let channels = extents.get(place).and_then(|&channels| usize::try_from(channels).ok());
        let is_cut = |channels: &usize| *channels > 0 && self.weights.len().is_multiple_of(*channels);
        channels.filter(is_cut).ok_or_else(|| CpuReason::new("the weights do not divide into channels"))
    }

    fn zero_corrections(&self, task: &Task, weights: &[f64], channels: usize) -> Result<Option<Correction>, CpuReason> {
        if self.x_zero == 0.0 {
            return Ok(None);
        }
        let own = weights.len() / channels.max(1);
        let all = || weights.chunks(own.max(1)).map(|own| -self.x_zero * own.iter().sum::<f64>()).collect();
        let Op::Conv(Conv { strides, pads, dilations, .. }) = &self.op else {
            return Ok(Some(Correction::PerChannel(all())));
        };
        if pads.iter().all(|&pad| pad == 0) {
            return Ok(Some(Correction::PerChannel(all())));
        }
        let extents = |operand: usize| match task.steps[0].inputs[operand] {
            Operand::Parameter(place) => task.parameters[place].ty.extents().unwrap_or_default(),
            Operand::Step(_) => Vec::new(),
        };
        let (data, windows, output) = (extents(0), extents(1), task.steps[0].output.extents().unwrap_or_default());
        let (&[_, _, height, width], &[_, _, rows, columns]) = (data.as_slice(), windows.as_slice()) else {
            return cpu_error("the convolution does not have two spatial dimensions");
        };
        let (&[down, along], &[tall, wide], &[_, _, out_rows, out_columns]) =
            (strides.as_slice(), dilations.as_slice(), output.as_slice())
        else {
            return cpu_error("the convolution does not have two spatial dimensions");
        };
        let (top, left) = (pads[0], pads[1]);
        let taps = usize::try_from(rows * columns).unwrap_or(0);
        let mut corrections = Vec::new();
        for own in weights.chunks(own.max(1)) {
            // The last two dimensions of a channel's weights are the window.
            let sums: Vec<f64> = (0..taps).map(|tap| own.iter().skip(tap).step_by(taps).sum()).collect();
            for (y, x) in (0..out_rows).flat_map(|y| (0..out_columns).map(move |x| (y, x))) {
                let inside = |row: i64, column: i64| {
                    let (y, x) = (y * down - top + row * tall, x * along - left + column * wide);
                    (0..height).contains(&y) && (0..width).contains(&x)
                };
                let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
                let inside = places.zip(&sums).filter(|((row, column), _)| inside(*row, *column)).map(|(_, sum)| sum);
                corrections.push(-self.x_zero * inside.sum::<f64>());
            }
        }
        Ok(Some(Correction::PerElement(corrections)))
    }
}
