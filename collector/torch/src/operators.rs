//! Tasks as sequences of PyTorch's operators.
//!
//! An operator of ours is the call that does the same, or a short sequence of calls where there is no such one. A bias
//! after a contraction goes into its call, and what follows a contraction is computed in place where PyTorch can, as its
//! users do. Whatever a step gives has memory of its own: a view would move nothing and its time would say nothing.

use crate::refusal::{Refusal, Result};
use crate::{contraction, inputs, movement, normalise, pointwise, reduce, window};
use models::operators::{
    AdaptivePool, ArgReduce, ArgTop, Attention, BatchNorm, BiasAdd, Binary, BorderPad, Clip, Compare, Concat, Conv,
    ConvTranspose, CumSum, Dequantize, Einsum, Gather, GatherElements, GatherNd, GlobalPool, GroupNorm, LayerNorm,
    LpNorm, Lrn, MatMul, MeanVarianceNorm, OneHot, Pad, Pool, Quantize, Reduce, Requantize, Resize, RmsNorm, Rope,
    ScaleShift, ScatterElements, ScatterNd, Slice, Softmax, Tile, Transpose, Trilu, Unary,
};
use models::{Op, Operand, Step, Task, TensorType};
use tch::Tensor;

/// What PyTorch's forms of a task need beside its parameters; made once, outside of any timing.
pub fn constants(task: &Task) -> Result<Vec<Tensor>> {
    match &task.steps[0].op {
        Op::Attention(Attention { causal, window, .. }) => contraction::attention_mask(task, *causal, *window),
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
        Op::Conv(_) => 1,
        Op::ConvTranspose(ConvTranspose { pads, .. }) if contraction::has_even_pads(pads) => 1,
        Op::Dense(_) => i64::try_from(anchor.output.rank()).ok()? - 1,
        _ => return None,
    };
    match (&step.op, step.inputs.as_slice()) {
        (Op::BiasAdd(BiasAdd { axis }), [Operand::Step(_), Operand::Parameter(index)])
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
        Op::Conv(Conv { strides, pads, dilations, groups }) => {
            contraction::conv(x, inputs[1], bias, &contraction::Window { strides, pads, dilations }, *groups, kind)
        }
        Op::ConvTranspose(ConvTranspose { strides, pads, output_pads, dilations, groups }) => {
            let window = contraction::Window { strides, pads, dilations };
            contraction::conv_transpose(x, inputs[1], bias, &window, output_pads, *groups)
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => {
            contraction::mat_mul(x, inputs[1], *transpose_a, *transpose_b, kind)
        }
        Op::Dense(_) => contraction::dense(x, inputs[1], bias, kind),
        Op::Einsum(Einsum { equation }) => contraction::einsum(equation, inputs, kind),
        Op::Attention(Attention { causal, scale, softcap, .. }) => {
            contraction::attention(inputs, constants.first(), *causal, *scale, *softcap)
        }
        Op::QConv(_) | Op::QDense(_) | Op::QMatMul(_) => Err(Refusal::unsupported(format!(
            "`{}`: PyTorch's integer kernels give rescaled results, not the sums of 32 bits",
            step.op.name()
        ))),
        Op::BatchNorm(BatchNorm { epsilon }) => normalise::batch_norm(inputs, *epsilon),
        Op::ScaleShift(ScaleShift { axis }) => {
            let rank = output.rank();
            let (scale, shift) = (pointwise::along(inputs[1], *axis, rank)?, pointwise::along(inputs[2], *axis, rank)?);
            Ok(shift.f_addcmul(x, &scale)?)
        }
        Op::LayerNorm(LayerNorm { axis, epsilon }) => {
            Ok(x.f_layer_norm(&extents[index(*axis)..], Some(inputs[1]), Some(inputs[2]), *epsilon, false)?)
        }
        Op::Softmax(Softmax { axis, log: false }) => Ok(x.f_softmax(*axis, None)?),
        Op::Softmax(Softmax { axis, log: true }) => Ok(x.f_log_softmax(*axis, None)?),
        Op::RmsNorm(RmsNorm { axis, epsilon }) => {
            Ok(x.f_rms_norm(&extents[index(*axis)..], Some(inputs[1]), *epsilon)?)
        }
        Op::GroupNorm(GroupNorm { groups, epsilon }) => {
            Ok(x.f_group_norm(*groups, Some(inputs[1]), Some(inputs[2]), *epsilon, false)?)
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => normalise::mean_variance_norm(x, axes, *epsilon),
        Op::LpNorm(LpNorm { axis, order }) => normalise::lp_norm(x, *axis, *order),
        Op::Lrn(Lrn { size, alpha, beta, bias }) => normalise::lrn(x, *size, *alpha, *beta, *bias),
        Op::Pool(Pool { mode, kernel, strides, pads, dilations, ceil, count_pad }) => {
            let window = contraction::Window { strides, pads, dilations };
            window::pool(x, *mode, kernel, &window, *ceil, *count_pad)
        }
        Op::GlobalPool(GlobalPool { mode }) => window::global_pool(x, *mode),
        Op::AdaptivePool(AdaptivePool { mode, extents }) => window::adaptive_pool(x, *mode, extents),
        Op::Resize(Resize { mode, extents }) => window::resize(x, *mode, extents),
        Op::Reduce(Reduce { function, axes, keep }) => reduce::reduce(x, *function, axes, *keep, kind),
        Op::ArgReduce(ArgReduce { largest, axis, keep, last }) => reduce::arg_reduce(x, *largest, *axis, *keep, *last),
        Op::ArgTop(ArgTop { count, axis, largest }) => reduce::arg_top(x, *count, *axis, *largest),
        Op::CumSum(CumSum { axis, exclusive, reverse }) => reduce::cum_sum(x, *axis, *exclusive, *reverse, kind),
        Op::BiasAdd(BiasAdd { axis }) => Ok(x.f_add(&pointwise::along(inputs[1], *axis, output.rank())?)?),
        Op::Unary(Unary { function }) => pointwise::unary(x, *function),
        Op::Clip(Clip { low, high }) => pointwise::clip(x, *low, *high, output.dtype),
        Op::Binary(Binary { function }) => pointwise::binary(x, inputs[1], *function, output.dtype),
        Op::Cast(_) => pointwise::cast(x, kind),
        Op::Compare(Compare { function }) => pointwise::compare(x, inputs[1], *function),
        Op::Where(_) => Ok(inputs[1].f_where_self(x, inputs[2])?),
        Op::PRelu(_) => pointwise::p_relu(x, inputs[1]),
        Op::Quantize(Quantize { axis, .. }) => pointwise::quantize(inputs, *axis, output.dtype),
        Op::Dequantize(Dequantize { axis }) => pointwise::dequantize(inputs, *axis, kind),
        Op::Requantize(Requantize { axis, zero, low, high, .. }) => {
            pointwise::requantize(x, inputs[1], *axis, [*zero, *low, *high], kind)
        }
        Op::Reshape(_) | Op::Flatten(_) => Ok(x.f_view_copy(extents)?),
        Op::Identity(_) => Ok(x.f_alias_copy()?),
        Op::Transpose(Transpose { permutation }) => Ok(x.f_permute_copy(permutation)?),
        Op::Concat(Concat { axis }) => Ok(Tensor::f_cat(inputs, *axis)?),
        Op::Pad(Pad { pads, value }) => Ok(x.f_pad(movement::from_last(pads), "constant", *value)?),
        Op::BorderPad(BorderPad { border, pads }) => movement::border_pad(x, *border, pads, &extents),
        Op::Slice(Slice { axes, starts, stops, steps }) => movement::slice(x, axes, starts, stops, steps),
        Op::Expand(_) => Ok(x.f_expand_copy(extents, false)?),
        Op::Tile(Tile { repeats }) => Ok(x.f_repeat(repeats)?),
        Op::Gather(Gather { axis }) => movement::gather(x, inputs[1], *axis, &extents),
        Op::GatherElements(GatherElements { axis }) => Ok(x.f_gather(*axis, &movement::long(inputs[1])?, false)?),
        Op::GatherNd(GatherNd { batch }) => movement::gather_nd(x, inputs[1], *batch),
        Op::ScatterElements(ScatterElements { axis, combine }) => movement::scatter_elements(inputs, *axis, *combine),
        Op::ScatterNd(ScatterNd { combine }) => movement::scatter_nd(inputs, *combine),
        Op::OneHot(OneHot { axis, on, off, .. }) => movement::one_hot(x, *axis, [*on, *off], &extents, kind),
        Op::Trilu(Trilu { upper: true, diagonal }) => Ok(x.f_triu(*diagonal)?),
        Op::Trilu(Trilu { upper: false, diagonal }) => Ok(x.f_tril(*diagonal)?),
        Op::Rope(Rope { rotary, interleaved }) => movement::rope(inputs, *rotary, *interleaved),
    }
}

/// An axis as an index.
fn index(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(0)
}
