//! Recognises activations that are expressed in sums and products, and removes needless guards after a softmax.

use super::{GraphLookup, Part, Replacement, is_close, rewrite_nodes};
use crate::rewrite::rewrite_by;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{Binary, BinaryOp, Clip, Identity, Op, Unary, UnaryOp};

pub(crate) fn recognise_activations(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let is_product = matches!(node.op, Op::Binary(Binary { function: BinaryOp::Mul | BinaryOp::Div }));
        let output = node.outputs[0];
        let (number, factors) = is_product.then(|| lookup.split_factors(output))?;
        let [a, b] = factors[..] else { return None };
        let (function, x) = [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
            let function = match_gated(lookup, number, x, gate)?;
            Some((function, x))
        })?;
        // An operand that is broadcast is not activated by the other operand.
        (lookup.value_type(x) == lookup.value_type(output))
            .then(|| Replacement::from_operator(Op::Unary(Unary { function }), vec![Part::Value(x)]))
    })
}

fn match_gated(lookup: &GraphLookup<'_>, number: f64, x: ValueId, gate: ValueId) -> Option<UnaryOp> {
    if is_close(number, 0.5) {
        return match_gelu(lookup, x, gate);
    }
    let node = lookup.producer_of(gate)?;
    if is_close(number, 1.0) {
        return match node.op {
            Op::Unary(Unary { function: UnaryOp::Sigmoid }) if node.inputs[0] == x => Some(UnaryOp::Silu),
            Op::Unary(Unary { function: UnaryOp::HardSigmoid }) if node.inputs[0] == x => Some(UnaryOp::HardSwish),
            Op::Unary(Unary { function: UnaryOp::Tanh }) => {
                (lookup.unary_operand(node.inputs[0], UnaryOp::Softplus)? == x).then_some(UnaryOp::Mish)
            }
            _ => None,
        };
    }
    // x · clip(x + 3, 0, 6) / 6
    let is_ramp = node.op == Op::Clip(Clip { low: 0.0, high: 6.0 })
        && lookup.operand_orders(node.inputs[0], BinaryOp::Add).any(|(a, b)| a == x && lookup.is_about(b, 3.0));
    (is_ramp && is_close(number, 1.0 / 6.0)).then_some(UnaryOp::HardSwish)
}

/// Recognises `0.5 · x · (1 + erf(x / sqrt 2))` or its tanh form, with `tanh(sqrt(2 / pi) · (x + 0.044715 x³))`.
fn match_gelu(lookup: &GraphLookup<'_>, x: ValueId, gate: ValueId) -> Option<UnaryOp> {
    let (inner, _) = lookup.operand_orders(gate, BinaryOp::Add).find(|(_, one)| lookup.is_about(*one, 1.0))?;
    if let Some(argument) = lookup.unary_operand(inner, UnaryOp::Erf) {
        let (number, factors) = lookup.split_factors(argument);
        return (is_close(number, std::f64::consts::FRAC_1_SQRT_2) && factors == [x]).then_some(UnaryOp::Gelu);
    }
    let (number, factors) = lookup.split_factors(lookup.unary_operand(inner, UnaryOp::Tanh)?);
    if !is_close(number, (2.0 / std::f64::consts::PI).sqrt()) {
        return None;
    }
    let is_part = |id: ValueId, power: usize| {
        let (number, factors) = lookup.split_factors(id);
        is_close(number, 0.044_715) && factors.len() == power && factors.iter().all(|&factor| factor == x)
    };
    let is_tanh_form = match factors[..] {
        [sum] => lookup.operand_orders(sum, BinaryOp::Add).any(|(a, b)| a == x && is_part(b, 3)),
        [a, b] => [(a, b), (b, a)].into_iter().any(|(a, sum)| {
            a == x
                && lookup.operand_orders(sum, BinaryOp::Add).any(|(one, b)| lookup.is_about(one, 1.0) && is_part(b, 2))
        }),
        _ => false,
    };
    is_tanh_form.then_some(UnaryOp::GeluTanh)
}

/// Removes `where(is_nan(y), 0, y)` after a softmax without a mask; the guard only matters for fully masked rows.
pub(crate) fn drop_softmax_guard(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_by(
        graph,
        &[("where(is_nan(y), 0, y@softmax(x))", |lookup, node, found| {
            let (x, y) = (found.get("x")?, found.get("y")?);
            let is_guard = lookup.value_type(y) == lookup.value_type(node.outputs[0]) && is_finite(lookup, x, 8);
            is_guard.then(|| Replacement::from_operator(Op::Identity(Identity {}), vec![Part::Value(y)]))
        })],
    )
}

/// Whether no mask with infinite entries is applied after the last contraction.
fn is_finite(lookup: &GraphLookup<'_>, id: ValueId, depth: usize) -> bool {
    if let Some(data) = lookup.constant_data(id) {
        return is_finite_constant(lookup, id, data);
    }
    let Some(node) = lookup.producer_of(id).filter(|_| depth > 0) else { return false };
    match node.op {
        Op::MatMul(_) | Op::Dense(_) | Op::Einsum(_) | Op::Conv(_) => true,
        Op::Binary(Binary { function: BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div })
        | Op::BiasAdd(_)
        | Op::Unary(Unary { function: UnaryOp::Tanh })
        | Op::Reshape(_)
        | Op::Transpose(_) => all_finite(lookup, node, depth),
        _ => false,
    }
}

fn all_finite(lookup: &GraphLookup<'_>, node: &Node, depth: usize) -> bool {
    node.inputs.iter().all(|&input| is_finite(lookup, input, depth - 1))
}

fn is_finite_constant(lookup: &GraphLookup<'_>, id: ValueId, data: &Const) -> bool {
    match data {
        Const::Random { .. } => true,
        data => reference::constant_tensor(lookup.value_type(id), data)
            .is_ok_and(|tensor| tensor.to_numbers().iter().all(|number| number.is_finite())),
    }
}
