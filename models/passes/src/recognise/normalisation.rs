//! Normalisations written in means, squares and roots.

use super::{Look, Part, Replacement, rewrite};
use crate::pattern::Match;
use crate::rewrite::rewrite_by;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{BinaryOp, LayerNorm, Op, Reduce, ReduceOp, RmsNorm};
use models::types::{Dim, TensorType};

/// `x / sqrt(v)` in any of the ways to write it.
const QUOTIENT: &str = "div(x, sqrt(v) | pow(v, 0.5)) \
                        | mul(x, rsqrt(v) | reciprocal(sqrt(v) | pow(v, 0.5)) | div(1, sqrt(v) | pow(v, 0.5)))";

/// `x / sqrt(mean(x²) + epsilon)`, and the same of `x - mean(x)`, without scale and shift.
pub(crate) fn recognise_normalisations(graph: &Graph) -> Result<Graph> {
    rewrite_by(graph, &[(QUOTIENT, normalisation)])
}

fn normalisation(look: &Look<'_>, _: &Node, found: &Match) -> Option<Replacement> {
    let x = found.get("x")?;
    let (variance, epsilon) = sum_with_number(look, found.get("v")?)?;
    let (squared, axis) = trailing_mean(look, variance)?;
    let (number, factors) = look.factors(squared);
    if number != 1.0 || factors != [x, x] || epsilon <= 0.0 {
        return None;
    }
    let ty = look.ty(x);
    let vector = TensorType { dtype: ty.dtype, shape: ty.shape[axis..].to_vec() };
    let part = |number| Part::Made(vector.clone(), Const::Fill(number));
    let axis_number = axis as i64;
    if let Some([whole, mean]) = look.binary(x, BinaryOp::Sub)
        && trailing_mean(look, mean) == Some((whole, axis))
    {
        let op = Op::LayerNorm(LayerNorm { axis: axis_number, epsilon });
        return Some(Replacement::of(op, vec![Part::Old(whole), part(1.0), part(0.0)]));
    }
    Some(Replacement::of(Op::RmsNorm(RmsNorm { axis: axis_number, epsilon }), vec![Part::Old(x), part(1.0)]))
}

fn sum_with_number(look: &Look<'_>, id: ValueId) -> Option<(ValueId, f64)> {
    look.either(id, BinaryOp::Add).find_map(|(a, b)| Some((a, look.scalar(b)?)))
}

/// What a mean over the last dimensions is taken of, and the first of them.
fn trailing_mean(look: &Look<'_>, id: ValueId) -> Option<(ValueId, usize)> {
    let node = look.node(id)?;
    let Op::Reduce(Reduce { function: ReduceOp::Mean, axes, keep: true }) = &node.op else { return None };
    let rank = look.ty(node.inputs[0]).rank() as i64;
    let first = *axes.first()?;
    let is_trailing = axes.iter().copied().eq(first..rank);
    is_trailing.then(|| Some((node.inputs[0], usize::try_from(first).ok()?)))?
}

/// A product of a normalisation without a scale, and a constant of the normalised shape, becomes that scale.
pub(crate) fn absorb_scales(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        look.either(node.outputs[0], BinaryOp::Mul).find_map(|(normalised, scale)| {
            let before = look.node(normalised)?;
            let (Op::LayerNorm(_) | Op::RmsNorm(_)) = before.op else { return None };
            let is_open = look.scalar(before.inputs[1]) == Some(1.0)
                && before.inputs.get(2).is_none_or(|&shift| look.scalar(shift) == Some(0.0));
            let scale = is_open.then(|| as_vector(look, scale, before.inputs[1]))??;
            let mut inputs = vec![Part::Old(before.inputs[0]), scale];
            inputs.extend(before.inputs.get(2).map(|&shift| Part::Old(shift)));
            Some(Replacement::of(before.op.clone(), inputs))
        })
    })
}

/// The same of a sum and a shift.
pub(crate) fn absorb_shifts(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        look.either(node.outputs[0], BinaryOp::Add).find_map(|(normalised, shift)| {
            let before = look.node(normalised)?;
            let (Op::LayerNorm(_), [x, scale, zero]) = (&before.op, before.inputs.as_slice()) else { return None };
            let shift = (look.scalar(*zero) == Some(0.0)).then(|| as_vector(look, shift, *zero))??;
            Some(Replacement::of(before.op.clone(), vec![Part::Old(*x), Part::Old(*scale), shift]))
        })
    })
}

/// A constant that broadcasts from the shape of another one, leading extents of 1 set aside.
fn as_vector(look: &Look<'_>, id: ValueId, like: ValueId) -> Option<Part> {
    let (ty, wanted) = (look.ty(id), look.ty(like));
    let data = look.data(id)?;
    let leading = ty.rank().checked_sub(wanted.rank())?;
    let fits = ty.shape[..leading].iter().all(|dim| *dim == Dim::Known(1)) && ty.shape[leading..] == wanted.shape;
    // The same elements in the same order: only the type changes.
    fits.then(|| if leading == 0 { Part::Old(id) } else { Part::Made(wanted.clone(), data.clone()) })
}
