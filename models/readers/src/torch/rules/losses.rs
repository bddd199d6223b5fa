//! Loss functions: a loss for each element or sample, then its mean or sum.

use super::pointwise::log_sigmoid_of;
use super::{Call, Memory, Outputs, RuleOutput, own_output};
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, Clip, CompareOp, GatherElements, Op, Reduce, ReduceOp, Softmax, UnaryOp, Where};
use models::types::DType;

/// Bound of a logarithm in binary cross entropy, as in PyTorch.
const LOWEST_LOGARITHM: f64 = -100.0;

/// Emits the losses (`reduction` 0), their mean (1) or their sum (2).
fn reduce_losses(call: &mut Call<'_, '_>, losses: ValueId) -> Outputs {
    let function = match call.int_argument("reduction", 1)? {
        0 => return own_output(losses),
        1 => ReduceOp::Mean,
        2 => ReduceOp::Sum,
        other => return malformed(format!("`reduction` has the unknown value {other}")),
    };
    own_output(reduce_all(call.emit, function, losses)?)
}

fn reduce_all(emit: &mut Emit<'_>, function: ReduceOp, x: ValueId) -> Outcome<ValueId> {
    let axes: Vec<i64> = (0..emit.rank(x)? as i64).collect();
    if axes.is_empty() {
        return Ok(x);
    }
    emit.push(Op::Reduce(Reduce { function, axes, keep: false }), &[x])
}

fn input_and_target(call: &mut Call<'_, '_>) -> Outcome<(ValueId, ValueId)> {
    let dtype = call.result_dtype()?;
    Ok((call.operand_as("self", dtype)?, call.operand_as("target", dtype)?))
}

fn difference(call: &mut Call<'_, '_>) -> Outcome<ValueId> {
    let (x, target) = input_and_target(call)?;
    call.emit.binary(BinaryOp::Sub, x, target)
}

pub(super) fn difference_loss(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    let apart = difference(call)?;
    let losses = call.emit.unary(function, apart)?;
    reduce_losses(call, losses)
}

/// Emits `smooth_l1_loss` or `huber_loss`, which is quadratic below a limit and linear above.
pub(super) fn huber_loss(call: &mut Call<'_, '_>) -> Outputs {
    let is_smooth = call.operator == "smooth_l1_loss";
    let limit = call.float_argument(if is_smooth { "beta" } else { "delta" }, 1.0)?;
    let apart = difference(call)?;
    let emit = &mut *call.emit;
    let size = emit.unary(UnaryOp::Abs, apart)?;
    if limit == 0.0 && is_smooth {
        return reduce_losses(call, size);
    }
    let square = emit.unary(UnaryOp::Square, apart)?;
    let near = emit.binary_with(BinaryOp::Mul, square, if is_smooth { 0.5 / limit } else { 0.5 })?;
    let far = emit.binary_with(BinaryOp::Sub, size, 0.5 * limit)?;
    let far = if is_smooth { far } else { emit.binary_with(BinaryOp::Mul, far, limit)? };
    let bound = emit.add_scalar(emit.dtype(size)?, limit)?;
    let is_near = emit.compare(CompareOp::Less, size, bound)?;
    let losses = emit.push(Op::Where(Where {}), &[is_near, near, far])?;
    reduce_losses(call, losses)
}

/// Emits `log(1 + exp(-x · target))`.
pub(super) fn soft_margin_loss(call: &mut Call<'_, '_>) -> Outputs {
    let (x, target) = input_and_target(call)?;
    let product = call.emit.binary(BinaryOp::Mul, x, target)?;
    let logarithm = log_sigmoid_of(call.emit, product)?;
    let losses = call.emit.unary(UnaryOp::Neg, logarithm)?;
    reduce_losses(call, losses)
}

fn weighted(call: &mut Call<'_, '_>, losses: ValueId) -> Outputs {
    let losses = match call.optional_tensor("weight")? {
        Some(weight) => call.emit.binary(BinaryOp::Mul, losses, weight)?,
        None => losses,
    };
    reduce_losses(call, losses)
}

fn bounded_logarithm(emit: &mut Emit<'_>, function: UnaryOp, x: ValueId) -> Outcome<ValueId> {
    let logarithm = emit.unary(function, x)?;
    emit.push(Op::Clip(Clip { low: LOWEST_LOGARITHM, high: 0.0 }), &[logarithm])
}

/// Emits `(1 - target) · a - target · b`.
fn mixed(emit: &mut Emit<'_>, target: ValueId, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    let one = emit.add_scalar(emit.dtype(target)?, 1.0)?;
    let rest = emit.binary(BinaryOp::Sub, one, target)?;
    let a = emit.binary(BinaryOp::Mul, rest, a)?;
    let b = emit.binary(BinaryOp::Mul, target, b)?;
    emit.binary(BinaryOp::Sub, a, b)
}

pub(super) fn binary_cross_entropy(call: &mut Call<'_, '_>) -> Outputs {
    let (x, target) = input_and_target(call)?;
    let emit = &mut *call.emit;
    let opposite = emit.unary(UnaryOp::Neg, x)?;
    let logarithm = bounded_logarithm(emit, UnaryOp::Log, x)?;
    let of_rest = bounded_logarithm(emit, UnaryOp::Log1p, opposite)?;
    let of_rest = emit.unary(UnaryOp::Neg, of_rest)?;
    let losses = mixed(emit, target, of_rest, logarithm)?;
    weighted(call, losses)
}

/// Emits `(1 - target) · x - (1 + (pos_weight - 1) · target) · log(sigmoid(x))`.
pub(super) fn binary_cross_entropy_of_logits(call: &mut Call<'_, '_>) -> Outputs {
    let (x, target) = input_and_target(call)?;
    let positive = call.optional_tensor("pos_weight")?;
    let emit = &mut *call.emit;
    let mut logarithm = log_sigmoid_of(emit, x)?;
    if let Some(positive) = positive {
        let above = emit.binary_with(BinaryOp::Sub, positive, 1.0)?;
        let above = emit.binary(BinaryOp::Mul, target, above)?;
        let factor = emit.binary_with(BinaryOp::Add, above, 1.0)?;
        logarithm = emit.binary(BinaryOp::Mul, logarithm, factor)?;
    }
    let one = emit.add_scalar(emit.dtype(target)?, 1.0)?;
    let rest = emit.binary(BinaryOp::Sub, one, target)?;
    let rest = emit.binary(BinaryOp::Mul, rest, x)?;
    let losses = emit.binary(BinaryOp::Sub, rest, logarithm)?;
    weighted(call, losses)
}

/// Emits `target · (log(target) - x)`, which is zero where the target is zero.
pub(super) fn divergence(call: &mut Call<'_, '_>) -> Outputs {
    let (x, target) = input_and_target(call)?;
    let is_logarithm = call.flag_argument("log_target", false)?;
    let emit = &mut *call.emit;
    let (share, logarithm) = match is_logarithm {
        true => (emit.unary(UnaryOp::Exp, target)?, target),
        false => (target, emit.unary(UnaryOp::Log, target)?),
    };
    let own = emit.binary(BinaryOp::Mul, share, logarithm)?;
    let zero = emit.add_scalar(emit.dtype(share)?, 0.0)?;
    let is_zero = emit.compare(CompareOp::Equal, share, zero)?;
    let own = emit.push(Op::Where(Where {}), &[is_zero, zero, own])?;
    let crossed = emit.binary(BinaryOp::Mul, share, x)?;
    let losses = emit.binary(BinaryOp::Sub, own, crossed)?;
    reduce_losses(call, losses)
}

/// Per-sample terms of a loss of class indices: the weight of the target's class, and zero where the target is ignored.
struct Samples {
    /// Indices of classes with an extent of 1 in the dimension of classes; 0 where the target is ignored.
    target: ValueId,
    /// Weights in the shape of the target without that dimension.
    weights: ValueId,
    is_ignored: ValueId,
    axis: usize,
}

fn class_samples(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<Samples> {
    let (target, weight) = (call.tensor_argument("target")?, call.optional_tensor("weight")?);
    let ignored = call.int_argument("ignore_index", -100)?;
    let emit = &mut *call.emit;
    let (rank, mut shape) = (emit.rank(x)?, emit.extents(target)?);
    if rank == 0 || emit.rank(target)? + 1 != rank {
        return malformed(format!("a target of type {} for an input of type {}", emit.ty(target)?, emit.ty(x)?));
    }
    let axis = usize::from(rank > 1);
    let target = emit.cast(target, DType::I64)?;
    let number = emit.add_scalar(DType::I64, ignored as f64)?;
    let is_ignored = emit.compare(CompareOp::Equal, target, number)?;
    let zero = emit.add_scalar(DType::I64, 0.0)?;
    let target = emit.push(Op::Where(Where {}), &[is_ignored, zero, target])?;
    let dtype = emit.dtype(x)?;
    let ones = match weight {
        Some(weight) => {
            let count = emit.extents(target)?.iter().product();
            let flat = emit.reshape(target, &[count])?;
            let found = emit.push(Op::GatherElements(GatherElements { axis: 0 }), &[weight, flat])?;
            emit.reshape(found, &shape)?
        }
        None => emit.add_filled(dtype, &shape, 1.0)?,
    };
    let nothing = emit.add_scalar(dtype, 0.0)?;
    let weights = emit.push(Op::Where(Where {}), &[is_ignored, nothing, ones])?;
    shape.insert(axis, 1);
    Ok(Samples { target: emit.reshape(target, &shape)?, weights, is_ignored, axis })
}

/// Returns the negative likelihood of each target, times its weight.
fn likelihood_losses(emit: &mut Emit<'_>, x: ValueId, samples: &Samples) -> Outcome<ValueId> {
    let axis = samples.axis as i64;
    let found = emit.push(Op::GatherElements(GatherElements { axis }), &[x, samples.target])?;
    let found = emit.reshape(found, &emit.extents(samples.weights)?)?;
    let losses = emit.binary(BinaryOp::Mul, found, samples.weights)?;
    emit.unary(UnaryOp::Neg, losses)
}

/// Reduces losses of samples; the mean divides by the sum of the weights.
fn reduce_samples(call: &mut Call<'_, '_>, losses: ValueId, weights: ValueId) -> Outcome<[ValueId; 2]> {
    let reduction = call.int_argument("reduction", 1)?;
    let emit = &mut *call.emit;
    let total = reduce_all(emit, ReduceOp::Sum, weights)?;
    let sum = if reduction == 0 { losses } else { reduce_all(emit, ReduceOp::Sum, losses)? };
    let loss = match reduction {
        0 | 2 => sum,
        1 => emit.binary(BinaryOp::Div, sum, total)?,
        other => return malformed(format!("`reduction` has the unknown value {other}")),
    };
    Ok([loss, total])
}

/// Emits the loss and, for `nll_loss_forward`, the sum of the weights.
pub(super) fn likelihood_loss(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let samples = class_samples(call, x)?;
    let losses = likelihood_losses(call.emit, x, &samples)?;
    let made = reduce_samples(call, losses, samples.weights)?;
    Ok(made.map(|id| RuleOutput { id, window: Memory::Own }).into())
}

pub(super) fn cross_entropy(call: &mut Call<'_, '_>) -> Outputs {
    let (x, target) = (call.tensor_argument("self")?, call.tensor_argument("target")?);
    let smoothing = call.float_argument("label_smoothing", 0.0)?;
    let axis = i64::from(call.emit.rank(x)? > 1);
    let share = smoothing / call.axis_extent(x, axis as usize)? as f64;
    let logarithms = call.emit.push(Op::Softmax(Softmax { axis, log: true }), &[x])?;
    if call.emit.dtype(target)?.is_float() {
        let emit = &mut *call.emit;
        let target = emit.binary_with(BinaryOp::Mul, target, 1.0 - smoothing)?;
        let target = emit.binary_with(BinaryOp::Add, target, share)?;
        let products = emit.binary(BinaryOp::Mul, logarithms, target)?;
        let losses = class_sums(call, products, axis)?;
        return reduce_losses(call, losses);
    }
    let samples = class_samples(call, x)?;
    let mut losses = likelihood_losses(call.emit, logarithms, &samples)?;
    if smoothing != 0.0 {
        let all = class_sums(call, logarithms, axis)?;
        let emit = &mut *call.emit;
        let all = emit.binary_with(BinaryOp::Mul, all, share)?;
        let zero = emit.add_scalar(emit.dtype(all)?, 0.0)?;
        let all = emit.push(Op::Where(Where {}), &[samples.is_ignored, zero, all])?;
        losses = emit.binary_with(BinaryOp::Mul, losses, 1.0 - smoothing)?;
        losses = emit.binary(BinaryOp::Add, losses, all)?;
    }
    let [loss, _] = reduce_samples(call, losses, samples.weights)?;
    own_output(loss)
}

/// Returns the negative sum over all classes of `x` times the weights of the classes.
fn class_sums(call: &mut Call<'_, '_>, x: ValueId, axis: i64) -> Outcome<ValueId> {
    let weight = call.optional_tensor("weight")?;
    let emit = &mut *call.emit;
    let mut products = x;
    if let Some(weight) = weight {
        let mut shape = vec![1; emit.rank(x)?];
        shape[axis as usize] = emit.extents(x)?[axis as usize];
        let weight = emit.reshape(weight, &shape)?;
        products = emit.binary(BinaryOp::Mul, x, weight)?;
    }
    let sum = Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![axis], keep: false });
    let sum = emit.push(sum, &[products])?;
    emit.unary(UnaryOp::Neg, sum)
}
