//! Tasks as sequences of PyTorch's operators.
//!
//! An operator of ours is the call that does the same, or a short sequence of calls where there is no such one. A bias
//! after a contraction goes into its call, and what follows a contraction is computed in place where PyTorch can, as its
//! users do. Whatever a step gives has memory of its own: a view would move nothing and its time would say nothing.

use crate::refusal::{Refusal, Result};
use crate::{contraction, inputs, movement, normalise, pointwise, reduce, window};
use models::{Op, Operand, Step, Task, TensorType};
use tch::Tensor;

/// What PyTorch's forms of a task need beside its parameters; made once, outside of any timing.
pub fn constants(task: &Task) -> Result<Vec<Tensor>> {
    match &task.steps[0].op {
        Op::Attention { causal, window, .. } => contraction::attention_mask(task, *causal, *window),
        _ => Ok(Vec::new()),
    }
}

/// Computes a task once.
pub fn run(task: &Task, parameters: &[Tensor], constants: &[Tensor]) -> Result<Tensor> {
    let bias = joining_bias(task).map(|index| &parameters[index]);
    let anchor = &task.steps[0];
    let operands: Vec<&Tensor> = operands(anchor, parameters, None);
    let mut value = apply(anchor, &operands, bias, constants)?;
    for step in &task.steps[1 + usize::from(bias.is_some())..] {
        value = follow(task, step, value, parameters)?;
    }
    Ok(value)
}

fn operands<'a>(step: &Step, parameters: &'a [Tensor], before: Option<&'a Tensor>) -> Vec<&'a Tensor> {
    let operand = |operand: &Operand| match operand {
        Operand::Parameter(index) => &parameters[*index],
        Operand::Step(_) => before.expect("a checked task reads only the step before"),
    };
    step.inputs.iter().map(operand).collect()
}

/// The parameter that is added as a bias right after a contraction whose call takes one.
fn joining_bias(task: &Task) -> Option<usize> {
    let [anchor, step, ..] = task.steps.as_slice() else { return None };
    let channel = match &anchor.op {
        Op::Conv { .. } => 1,
        Op::ConvTranspose { pads, .. } if contraction::has_even_pads(pads) => 1,
        Op::Dense => i64::try_from(anchor.output.rank()).ok()? - 1,
        _ => return None,
    };
    match (&step.op, step.inputs.as_slice()) {
        (Op::BiasAdd { axis }, [Operand::Step(_), Operand::Parameter(index)])
            if *axis == channel && anchor.output.dtype.is_float() =>
        {
            Some(*index)
        }
        _ => None,
    }
}

/// A step after the anchor: in place where PyTorch can.
fn follow(task: &Task, step: &Step, mut value: Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let keeps_type = step
        .inputs
        .iter()
        .any(|input| matches!(input, Operand::Step(_)) && task.operand_type(*input).is_ok_and(|ty| *ty == step.output));
    if keeps_type && pointwise::in_place(step, &mut value, parameters)? {
        return Ok(value);
    }
    let operands = operands(step, parameters, Some(&value));
    apply(step, &operands, None, &[])
}

/// One operator.
fn apply(step: &Step, inputs: &[&Tensor], bias: Option<&Tensor>, constants: &[Tensor]) -> Result<Tensor> {
    let x = inputs[0];
    let output: &TensorType = &step.output;
    let kind = inputs::kind(output.dtype)?;
    let extents = inputs::extents(output)?;
    match &step.op {
        Op::Conv { strides, pads, dilations, groups } => {
            contraction::conv(x, inputs[1], bias, &contraction::Window { strides, pads, dilations }, *groups, kind)
        }
        Op::ConvTranspose { strides, pads, output_pads, dilations, groups } => {
            let window = contraction::Window { strides, pads, dilations };
            contraction::conv_transpose(x, inputs[1], bias, &window, output_pads, *groups)
        }
        Op::MatMul { transpose_a, transpose_b } => contraction::mat_mul(x, inputs[1], *transpose_a, *transpose_b, kind),
        Op::Dense => contraction::dense(x, inputs[1], bias, kind),
        Op::Einsum { equation } => contraction::einsum(equation, inputs, kind),
        Op::Attention { causal, scale, softcap, .. } => {
            contraction::attention(inputs, constants.first(), *causal, *scale, *softcap)
        }
        Op::QConv { .. } | Op::QDense { .. } | Op::QMatMul { .. } => Err(Refusal::unsupported(format!(
            "`{}`: PyTorch's integer kernels give rescaled results, not the sums of 32 bits",
            step.op.name()
        ))),
        Op::BatchNorm { epsilon } => normalise::batch_norm(inputs, *epsilon),
        Op::ScaleShift { axis } => {
            let rank = output.rank();
            let (scale, shift) = (pointwise::along(inputs[1], *axis, rank)?, pointwise::along(inputs[2], *axis, rank)?);
            Ok(shift.f_addcmul(x, &scale)?)
        }
        Op::LayerNorm { axis, epsilon } => {
            Ok(x.f_layer_norm(&extents[index(*axis)..], Some(inputs[1]), Some(inputs[2]), *epsilon, false)?)
        }
        Op::Softmax { axis, log: false } => Ok(x.f_softmax(*axis, None)?),
        Op::Softmax { axis, log: true } => Ok(x.f_log_softmax(*axis, None)?),
        Op::RmsNorm { axis, epsilon } => Ok(x.f_rms_norm(&extents[index(*axis)..], Some(inputs[1]), *epsilon)?),
        Op::GroupNorm { groups, epsilon } => {
            Ok(x.f_group_norm(*groups, Some(inputs[1]), Some(inputs[2]), *epsilon, false)?)
        }
        Op::MeanVarianceNorm { axes, epsilon } => normalise::mean_variance_norm(x, axes, *epsilon),
        Op::LpNorm { axis, order } => normalise::lp_norm(x, *axis, *order),
        Op::Lrn { size, alpha, beta, bias } => normalise::lrn(x, *size, *alpha, *beta, *bias),
        Op::Pool { mode, kernel, strides, pads, dilations, ceil, count_pad } => {
            let window = contraction::Window { strides, pads, dilations };
            window::pool(x, *mode, kernel, &window, *ceil, *count_pad)
        }
        Op::GlobalPool { mode } => window::global_pool(x, *mode),
        Op::AdaptivePool { mode, extents } => window::adaptive_pool(x, *mode, extents),
        Op::Resize { mode, extents } => window::resize(x, *mode, extents),
        Op::Reduce { function, axes, keep } => reduce::reduce(x, *function, axes, *keep, kind),
        Op::ArgReduce { largest, axis, keep, last } => reduce::arg_reduce(x, *largest, *axis, *keep, *last),
        Op::ArgTop { count, axis, largest } => reduce::arg_top(x, *count, *axis, *largest),
        Op::CumSum { axis, exclusive, reverse } => reduce::cum_sum(x, *axis, *exclusive, *reverse, kind),
        Op::BiasAdd { axis } => Ok(x.f_add(&pointwise::along(inputs[1], *axis, output.rank())?)?),
        Op::Unary { function } => pointwise::unary(x, *function),
        Op::Clip { low, high } => pointwise::clip(x, *low, *high, output.dtype),
        Op::Binary { function } => pointwise::binary(x, inputs[1], *function, output.dtype),
        Op::Cast { .. } => pointwise::cast(x, kind),
        Op::Compare { function } => pointwise::compare(x, inputs[1], *function),
        Op::Where => Ok(inputs[1].f_where_self(x, inputs[2])?),
        Op::PRelu => pointwise::p_relu(x, inputs[1]),
        Op::Quantize { axis, .. } => pointwise::quantize(inputs, *axis, output.dtype),
        Op::Dequantize { axis } => pointwise::dequantize(inputs, *axis, kind),
        Op::Requantize { axis, zero, low, high, .. } => {
            pointwise::requantize(x, inputs[1], *axis, [*zero, *low, *high], kind)
        }
        Op::Reshape { .. } | Op::Flatten { .. } => Ok(x.f_view_copy(extents)?),
        Op::Identity => Ok(x.f_alias_copy()?),
        Op::Transpose { permutation } => Ok(x.f_permute_copy(permutation)?),
        Op::Concat { axis } => Ok(Tensor::f_cat(inputs, *axis)?),
        Op::Pad { pads, value } => Ok(x.f_pad(movement::from_last(pads), "constant", *value)?),
        Op::BorderPad { border, pads } => movement::border_pad(x, *border, pads, &extents),
        Op::Slice { axes, starts, stops, steps } => movement::slice(x, axes, starts, stops, steps),
        Op::Expand { .. } => Ok(x.f_expand_copy(extents, false)?),
        Op::Tile { repeats } => Ok(x.f_repeat(repeats)?),
        Op::Gather { axis } => movement::gather(x, inputs[1], *axis, &extents),
        Op::GatherElements { axis } => Ok(x.f_gather(*axis, &movement::long(inputs[1])?, false)?),
        Op::GatherNd { batch } => movement::gather_nd(x, inputs[1], *batch),
        Op::ScatterElements { axis, combine } => movement::scatter_elements(inputs, *axis, *combine),
        Op::ScatterNd { combine } => movement::scatter_nd(inputs, *combine),
        Op::OneHot { axis, on, off, .. } => movement::one_hot(x, *axis, [*on, *off], &extents, kind),
        Op::Trilu { upper: true, diagonal } => Ok(x.f_triu(*diagonal)?),
        Op::Trilu { upper: false, diagonal } => Ok(x.f_tril(*diagonal)?),
        Op::Rope { rotary, interleaved } => movement::rope(inputs, *rotary, *interleaved),
    }
}

/// An axis as an index.
fn index(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(0)
}
