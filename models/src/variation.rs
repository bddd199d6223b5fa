//! Varies the sizes of a task, so that datasets cover shapes between and around those of known networks. Equal extents
//! stay equal, so that images stay square and joined tensors still fit; kernels, strides and extents of 1 are kept. The
//! operator, its epilogue and its element types are kept, too.

use crate::infer::infer_type;
use crate::operators::{BiasAdd, Conv, ConvTranspose, Dequantize, Op, QConv, Requantize, Resize, ScaleShift, Slice};
use crate::task::{Operand, Parameter, Step, Task};
use crate::types::TensorType;
use rand::{Rng, RngExt};
use std::collections::BTreeMap;

/// Attempts per variation. Some tasks cannot be varied, because their operator fixes the sizes.
const MAX_ATTEMPTS: usize = 32;
/// Maximum ratio of the varied task's work and bytes to the original's.
const MAX_RATIO: u64 = 2;
/// Exponent of the largest power of two whose multiples are preserved: a multiple of 8 stays a multiple of 8.
const KEPT_POWER: u32 = 3;

/// Returns a task of the same operators with other sizes and at most twice the work and bytes; None if all tries fail.
pub fn vary_task(task: &Task, random: &mut impl Rng) -> Option<Task> {
    let most = task.work().ok()?;
    let is_like = |drawn: &Task| {
        drawn.check().is_ok()
            && drawn != task
            && drawn.name() == task.name()
            && drawn.work().is_ok_and(|work| {
                work.flops <= most.flops.max(1).saturating_mul(MAX_RATIO)
                    && work.total_bytes() <= most.total_bytes().saturating_mul(MAX_RATIO)
            })
    };
    (0..MAX_ATTEMPTS).find_map(|_| sample_task(task, random).filter(is_like))
}

type Sizes<'a> = dyn FnMut(i64) -> i64 + 'a;

/// Samples new sizes for all dimensions; None if the operators do not accept them.
fn sample_task(task: &Task, random: &mut impl Rng) -> Option<Task> {
    let mut drawn: BTreeMap<i64, i64> = BTreeMap::new();
    let mut size = |extent: i64| *drawn.entry(extent).or_insert_with(|| vary_extent(extent, random));
    let mut varied = Task { parameters: task.parameters.clone(), steps: Vec::new() };
    let anchor = task.steps.first()?;
    for (index, operand) in anchor.inputs.iter().enumerate() {
        let Operand::Parameter(place) = *operand else { return None };
        let ty = &task.parameters[place].ty;
        let extents = extents_of_input(&anchor.op, index, &ty.extents()?, &task.parameters, &mut size);
        varied.parameters[place].ty = TensorType::new(ty.dtype, &extents);
    }
    let op = resize_attributes(&anchor.op, &task.parameters.first()?.ty, &varied.parameters.first()?.ty)?;
    push_step(&mut varied, op, &anchor.inputs)?;
    for step in &task.steps[1..] {
        for operand in &step.inputs {
            if let Operand::Parameter(place) = *operand {
                let after = &varied.steps[0].output;
                varied.parameters[place] = resize_parameter(&task.parameters[place], &step.op, &anchor.output, after)?;
            }
        }
        push_step(&mut varied, step.op.clone(), &step.inputs)?;
    }
    Some(varied)
}

fn push_step(task: &mut Task, op: Op, inputs: &[Operand]) -> Option<()> {
    let types = inputs.iter().map(|operand| task.operand_type(*operand)).collect::<Result<Vec<_>, _>>().ok()?;
    let output = infer_type(&op, &types).ok()?;
    task.steps.push(Step { op, inputs: inputs.to_vec(), output });
    Some(())
}

/// Scales the extent by a random factor from 0.5 to 2, which in half of the cases is exactly 0.5, 1 or 2.
fn vary_extent(extent: i64, random: &mut impl Rng) -> i64 {
    if extent <= 1 {
        return extent;
    }
    let factor = match random.random_range(0..8) {
        0 | 1 => 1.0,
        2 => 0.5,
        3 => 2.0,
        _ => f64::exp2(random.random_range(-1.0..=1.0)),
    };
    let step = 1_i64 << extent.trailing_zeros().min(KEPT_POWER);
    ((extent as f64 * factor / step as f64).round() as i64).max(1).saturating_mul(step)
}

fn extents_of_input(
    op: &Op,
    index: usize,
    extents: &[i64],
    parameters: &[Parameter],
    size: &mut Sizes<'_>,
) -> Vec<i64> {
    let (Op::Conv(Conv { groups, .. })
    | Op::ConvTranspose(ConvTranspose { groups, .. })
    | Op::QConv(QConv { groups, .. })) = op
    else {
        return extents.iter().map(|extent| size(*extent)).collect();
    };
    let channels = parameters.first().and_then(|x| x.ty.extents()).and_then(|x| x.get(1).copied());
    // Depthwise convolutions stay depthwise; other group counts are kept.
    let kept = if channels == Some(*groups) { 1 } else { *groups };
    let mut of_all = |extent: i64| size(extent / kept).saturating_mul(kept);
    match (index, extents) {
        (0, [batch, channels, space @ ..]) => {
            let head = [*batch, of_all(*channels)];
            head.into_iter().chain(space.iter().map(|extent| size(*extent))).collect()
        }
        (1, [first, second, kernel @ ..]) => {
            let head = [of_all(*first), size(*second)];
            head.into_iter().chain(kernel.iter().copied()).collect()
        }
        _ => extents.iter().map(|extent| size(*extent)).collect(),
    }
}

fn resize_attributes(op: &Op, before: &TensorType, after: &TensorType) -> Option<Op> {
    let (before, after) = (before.extents()?, after.extents()?);
    let scaled = |axis: usize, at: i64| Some(at.checked_mul(*after.get(axis)?)? / (*before.get(axis)?).max(1));
    let mut op = op.clone();
    match &mut op {
        Op::Conv(Conv { groups, .. })
        | Op::ConvTranspose(ConvTranspose { groups, .. })
        | Op::QConv(QConv { groups, .. })
            if before.get(1) == Some(groups) =>
        {
            *groups = *after.get(1)?;
        }
        Op::Slice(Slice { axes, starts, stops, steps }) => {
            for place in 0..axes.len() {
                let axis = usize::try_from(axes[place]).ok()?;
                if starts[place] < 0 || stops[place] < starts[place] || steps[place] < 1 {
                    return None;
                }
                let length = scaled(axis, stops[place] - starts[place])?.max(1);
                starts[place] = scaled(axis, starts[place])?;
                stops[place] = starts[place] + length;
            }
        }
        Op::Resize(Resize { extents, .. }) => {
            for (place, extent) in extents.iter_mut().enumerate() {
                *extent = scaled(place + 2, *extent)?;
            }
        }
        _ => {}
    }
    Some(op)
}

fn resize_parameter(parameter: &Parameter, op: &Op, before: &TensorType, after: &TensorType) -> Option<Parameter> {
    let (own, before, after) = (parameter.ty.extents()?, before.extents()?, after.extents()?);
    let first = match op {
        Op::BiasAdd(BiasAdd { axis })
        | Op::ScaleShift(ScaleShift { axis })
        | Op::Requantize(Requantize { axis, .. })
        | Op::Dequantize(Dequantize { axis }) => {
            usize::try_from(if *axis < 0 { axis + before.len() as i64 } else { *axis }).ok()?
        }
        _ => before.len().checked_sub(own.len())?,
    };
    let follows = |(place, extent): (usize, i64)| match before.get(first + place) {
        _ if extent == 1 => Some(1),
        Some(known) if *known == extent => after.get(first + place).copied(),
        _ => None,
    };
    let extents: Option<Vec<i64>> = own.into_iter().enumerate().map(follows).collect();
    Some(Parameter { ty: TensorType::new(parameter.ty.dtype, &extents?), ..parameter.clone() })
}
