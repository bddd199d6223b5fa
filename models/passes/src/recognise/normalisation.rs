//! Recognises normalisations that are expressed in means, squares and roots.

use super::{GraphLookup, Part, Replacement, rewrite_nodes};
use crate::pattern::Match;
use crate::rewrite::rewrite_by;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{BinaryOp, LayerNorm, Op, Reduce, ReduceOp, RmsNorm};
use models::types::{Dim, TensorType};

const QUOTIENT: &str = "div(x, sqrt(v) | pow(v, 0.5)) \
                        | mul(x, rsqrt(v) | reciprocal(sqrt(v) | pow(v, 0.5)) | div(1, sqrt(v) | pow(v, 0.5)))";

/// Recognises `x / sqrt(mean(x²) + epsilon)`, also of `x - mean(x)`. Scale and shift are absorbed later.
pub(crate) fn recognise_normalisations(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(graph, &[(QUOTIENT, match_normalisation)])
}

fn match_normalisation(lookup: &GraphLookup<'_>, _: &Node, found: &Match) -> Option<Replacement> {
    let x = found.get("x")?;
    let (variance, epsilon) = sum_with_number(lookup, found.get("v")?)?;
    let (squared, axis) = trailing_mean(lookup, variance)?;
    let (number, factors) = lookup.split_factors(squared);
    if number != 1.0 || factors != [x, x] || epsilon <= 0.0 {
        return None;
    }
    let ty = lookup.value_type(x);
    let vector = TensorType { dtype: ty.dtype, shape: ty.shape[axis..].to_vec() };
    let part = |number| Part::Constant(vector.clone(), Const::Fill(number));
    let axis_number = axis as i64;
    if let Some([whole, mean]) = lookup.binary_operands(x, BinaryOp::Sub)
        && trailing_mean(lookup, mean) == Some((whole, axis))
    {
        let op = Op::LayerNorm(LayerNorm { axis: axis_number, epsilon });
        return Some(Replacement::from_operator(op, vec![Part::Value(whole), part(1.0), part(0.0)]));
    }
    Some(Replacement::from_operator(
        Op::RmsNorm(RmsNorm { axis: axis_number, epsilon }),
        vec![Part::Value(x), part(1.0)],
    ))
}

fn sum_with_number(lookup: &GraphLookup<'_>, id: ValueId) -> Option<(ValueId, f64)> {
    lookup.operand_orders(id, BinaryOp::Add).find_map(|(a, b)| Some((a, lookup.constant_scalar(b)?)))
}

/// Returns the input of a mean over the last dimensions, and the first of these dimensions.
fn trailing_mean(lookup: &GraphLookup<'_>, id: ValueId) -> Option<(ValueId, usize)> {
    let node = lookup.producer_of(id)?;
    let Op::Reduce(Reduce { function: ReduceOp::Mean, axes, keep: true }) = &node.op else { return None };
    let rank = lookup.value_type(node.inputs[0]).rank() as i64;
    let first = *axes.first()?;
    let is_trailing = axes.iter().copied().eq(first..rank);
    is_trailing.then(|| Some((node.inputs[0], usize::try_from(first).ok()?)))?
}

/// Absorbs a product with a constant of the normalised shape into a normalisation that has no scale yet.
pub(crate) fn absorb_scales(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        lookup.operand_orders(node.outputs[0], BinaryOp::Mul).find_map(|(normalised, scale)| {
            let before = lookup.producer_of(normalised)?;
            let (Op::LayerNorm(_) | Op::RmsNorm(_)) = before.op else { return None };
            let is_open = lookup.constant_scalar(before.inputs[1]) == Some(1.0)
                && before.inputs.get(2).is_none_or(|&shift| lookup.constant_scalar(shift) == Some(0.0));
            let scale = is_open.then(|| as_vector(lookup, scale, before.inputs[1]))??;
            let mut inputs = vec![Part::Value(before.inputs[0]), scale];
            inputs.extend(before.inputs.get(2).map(|&shift| Part::Value(shift)));
            Some(Replacement::from_operator(before.op.clone(), inputs))
        })
    })
}

pub(crate) fn absorb_shifts(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        lookup.operand_orders(node.outputs[0], BinaryOp::Add).find_map(|(normalised, shift)| {
            let before = lookup.producer_of(normalised)?;
            let (Op::LayerNorm(_), [x, scale, zero]) = (&before.op, before.inputs.as_slice()) else { return None };
            let shift = (lookup.constant_scalar(*zero) == Some(0.0)).then(|| as_vector(lookup, shift, *zero))??;
            Some(Replacement::from_operator(before.op.clone(), vec![Part::Value(*x), Part::Value(*scale), shift]))
        })
    })
}

/// Removes leading extents of 1 from a constant, so that it has the shape of `like`; None if it does not fit.
fn as_vector(lookup: &GraphLookup<'_>, id: ValueId, like: ValueId) -> Option<Part> {
    let (ty, wanted) = (lookup.value_type(id), lookup.value_type(like));
    let data = lookup.constant_data(id)?;
    let leading = ty.rank().checked_sub(wanted.rank())?;
    let fits = ty.shape[..leading].iter().all(|dim| *dim == Dim::Known(1)) && ty.shape[leading..] == wanted.shape;
    // The same elements in the same order: only the type changes.
    fits.then(|| if leading == 0 { Part::Value(id) } else { Part::Constant(wanted.clone(), data.clone()) })
}
