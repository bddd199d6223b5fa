//! Quantised graphs in one form, whichever tool wrote them.
//!
//! Some files spell a quantised layer as integers that become real numbers, a layer of real numbers, and integers
//! again; others name the integer layer. All become the sums of an integer layer, a bias of 32 bits and one
//! requantisation, which `fuse` makes one task: an equal layer is an equal task. Weights that are quantised at run
//! time were folded before (`fold`). Bounds that a requantisation keeps anyway, pads beside pads, and changes of scale
//! around operators that only move elements disappear.

use super::rewrite::{Part, Replacement, rewrite, rewrite_by};
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use crate::look::Look;
use crate::operator::{BinaryOp, Op, PoolMode, ResizeMode, UnaryOp};
use crate::pattern::Match;
use crate::quantise::{self, Stored};
use crate::reference::Tensor;
use crate::types::{DType, TensorType};

/// A layer between a dequantisation and a quantisation.
pub(super) fn integers(graph: &Graph) -> Result<Graph> {
    rewrite_by(graph, &[("quantize(a@relu/clip?(b@bias_add?(y@conv/dense(x@dequantize(..), #w), ..)), ..)", layer)])
}

fn layer(look: &Look<'_>, node: &Node, found: &Match) -> Option<Replacement> {
    let [a, b, y, x] = ["a", "b", "y", "x"].map(|name| found.get(name));
    let (activated, biased, product, x) = (look.node(a?)?, look.node(b?)?, look.node(y?)?, look.node(x?)?);
    if [activated, biased, product].iter().any(|inner| !look.is_read_once(inner.outputs[0])) {
        return None;
    }
    let (x_scale, x_zero) = scalar_scale(look, x)?;
    let (y_scale, y_zero) = scalar_scale(look, node)?;
    let Stored { ty, data, scales, zeros, axis } = quantise::stored(look.data(found.get("w")?)?)?;
    let w_zero = *zeros.first().filter(|first| zeros.iter().all(|zero| zero == *first))?;
    let is_narrow = |dtype: DType| matches!(dtype, DType::I8 | DType::U8);
    let Op::Quantize { to, .. } = node.op else { return None };
    let is_exact = is_narrow(look.ty(x.inputs[0]).dtype) && is_narrow(ty.dtype) && is_narrow(to);
    if !is_exact || !(scales.len() == 1 || axis == 0) || y_scale <= 0.0 {
        return None;
    }
    let (op, channel) = match &product.op {
        Op::Conv { strides, pads, dilations, groups } => {
            let (strides, pads, dilations) = (strides.clone(), pads.clone(), dilations.clone());
            (Op::QConv { strides, pads, dilations, groups: *groups, x_zero, w_zero }, 1)
        }
        Op::Dense => (Op::QDense { x_zero, w_zero }, look.ty(product.outputs[0]).rank() as i64 - 1),
        _ => return None,
    };
    let mut then = Vec::new();
    if let Op::BiasAdd { axis } = biased.op {
        let bias = biased.inputs[1];
        let (ty, data) = quantise::bias(look.ty(bias), look.data(bias)?, x_scale, &scales)?;
        then.push((Op::BiasAdd { axis }, vec![Part::Made(ty, data)]));
    }
    let (low, high) = match activated.op {
        Op::Unary { function: UnaryOp::Relu } => (Some(0.0), None),
        Op::Clip { low, high } => (Some(low), Some(high)),
        _ => (None, None),
    };
    let (low, high) = quantise::bounds(to, y_scale, y_zero, low, high)?;
    let multipliers: Vec<f64> =
        scales.iter().map(|&scale| quantise::multiplier(x_scale, scale, y_scale).into()).collect();
    let (shape, axis) = match multipliers.len() {
        1 => (vec![], 0),
        count => (vec![count as i64], channel),
    };
    let multiplier = Tensor::from_numbers(TensorType::new(DType::F32, &shape), &multipliers).ok()?;
    let multiplier = Part::Made(multiplier.ty().clone(), crate::fold::contents_of(&multiplier));
    then.push((Op::Requantize { to, axis, zero: y_zero, low, high }, vec![multiplier]));
    let inputs = vec![Part::Old(x.inputs[0]), Part::Made(ty, data)];
    Some(Replacement { op, inputs, then })
}

/// Scale and zero point of a quantisation or dequantisation that has one of each.
fn scalar_scale(look: &Look<'_>, node: &Node) -> Option<(f32, i64)> {
    let is_single = node.inputs[1..].iter().all(|&id| look.ty(id).rank() == 0);
    let zero = node.inputs.get(2).map_or(Some(0.0), |&zero| look.scalar(zero))?;
    is_single.then(|| Some((look.scalar(node.inputs[1])? as f32, zero as i64)))?
}

/// Operators that only move elements, between a dequantisation and a quantisation of the same scale, and nothing at
/// all between the two.
pub(super) fn slide(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        let Op::Quantize { to, .. } = node.op else { return None };
        let scale = scalar_scale(look, node)?;
        let stored = |id: ValueId| {
            let before = look.node(id).filter(|before| matches!(before.op, Op::Dequantize { .. }))?;
            let is_same = look.ty(before.inputs[0]).dtype == to && scalar_scale(look, before) == Some(scale);
            is_same.then(|| Part::Old(before.inputs[0]))
        };
        if let Some(x) = stored(node.inputs[0]) {
            return Some(Replacement::of(Op::Identity, vec![x]));
        }
        let moving = look.node(node.inputs[0])?;
        let op = moved(&moving.op, scale.1)?;
        let data = if matches!(op, Op::Gather { .. }) { 1 } else { moving.inputs.len() };
        let mut inputs = moving.inputs[..data].iter().map(|&id| stored(id)).collect::<Option<Vec<_>>>()?;
        inputs.extend(moving.inputs[data..].iter().map(|&id| Part::Old(id)));
        Some(Replacement::of(op, inputs))
    })
}

/// The operator on integers that moves them as the operator on real numbers does.
fn moved(op: &Op, zero: i64) -> Option<Op> {
    let is_mover = match op {
        Op::Pad { pads, value: 0.0 } => return Some(Op::Pad { pads: pads.clone(), value: zero as f64 }),
        Op::Pool { mode, .. } | Op::GlobalPool { mode } | Op::AdaptivePool { mode, .. } => *mode == PoolMode::Max,
        Op::Resize { mode, .. } => *mode == ResizeMode::Nearest,
        Op::Reshape { .. } | Op::Flatten { .. } | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. } => true,
        Op::Expand { .. } | Op::Tile { .. } | Op::BorderPad { .. } | Op::Gather { .. } => true,
        _ => false,
    };
    is_mover.then(|| op.clone())
}

/// Bounds after a requantisation, and a cast to a type that holds them, are the requantisation's own.
pub(super) fn drop_clips(graph: &Graph) -> Result<Graph> {
    rewrite_by(
        graph,
        &[("cast?(c@clip/relu/max/min?(q@requantize(sums, #multiplier), ..))", |look, node, found| {
            let before = look.node(found.get("q")?)?;
            let Op::Requantize { to, axis, zero, mut low, mut high } = before.op else { return None };
            if before.outputs == node.outputs || !look.is_read_once(before.outputs[0]) {
                return None;
            }
            let bounds = look.node(found.get("c")?)?;
            match bounds.op {
                Op::Clip { low: least, high: most } => {
                    low = low.max(least.ceil() as i64);
                    high = high.min(most.floor() as i64);
                }
                Op::Unary { function: UnaryOp::Relu } => low = low.max(0),
                Op::Binary { function } => {
                    let other = bounds.inputs.iter().find(|&&id| id != before.outputs[0])?;
                    let number = look.scalar(*other)? as i64;
                    if function == BinaryOp::Max { low = low.max(number) } else { high = high.min(number) }
                }
                _ => {}
            }
            let to = if let Op::Cast { to } = node.op { to } else { to };
            let (least, most) = to.integer_range()?;
            let fits = low <= high && [zero, low, high].iter().all(|number| (least..=most).contains(number));
            let inputs = before.inputs.iter().map(|&id| Part::Old(id)).collect();
            fits.then(|| Replacement::of(Op::Requantize { to, axis, zero, low, high }, inputs))
        })],
    )
}

/// Zero points around the data of an integer convolution are its own pads.
pub(super) fn merge_pads(graph: &Graph) -> Result<Graph> {
    rewrite_by(
        graph,
        &[("q_conv(p@pad(x), #w)", |look, node, found| {
            let Op::QConv { strides, pads, dilations, groups, x_zero, w_zero } = &node.op else { return None };
            let Op::Pad { pads: around, value } = &look.node(found.get("p")?)?.op else { return None };
            let pads = (*value == *x_zero as f64).then(|| joined(pads, around))??;
            let (strides, dilations, groups) = (strides.clone(), dilations.clone(), *groups);
            let op = Op::QConv { strides, pads, dilations, groups, x_zero: *x_zero, w_zero: *w_zero };
            Some(Replacement::of(op, vec![Part::Old(found.get("x")?), Part::Old(found.get("w")?)]))
        })],
    )
}

/// The pads of a window together with those around all dimensions of its data, when only those of the window are
/// padded.
pub(super) fn joined(pads: &[i64], around: &[i64]) -> Option<Vec<i64>> {
    let (heads, tails) = around.split_at(around.len() / 2);
    let is_spatial = around.len() == pads.len() + 4 && heads[..2].iter().chain(&tails[..2]).all(|&pad| pad == 0);
    let added = heads.get(2..)?.iter().chain(tails.get(2..)?);
    let joined = pads.iter().zip(added).map(|(own, pad)| own.checked_add(*pad).filter(|pad| *pad >= 0));
    is_spatial.then(|| joined.collect())?
}
