//! Recognises attention that a file expresses in products, scales, masks and a softmax.
//! The pattern is `softmax(scale · q · kᵀ + mask) · v`. Scales may be applied to the scores, the queries, the keys or
//! several of them. Keys may be transposed, and heads of keys and values repeated. A mask may be added, or may select
//! between scores and a masking number. No other operator may read the values in between. A row that is masked
//! entirely by infinities gives NaN in the file, unless a guard makes it zero, as the attention operator does.

use super::{GraphLookup, Pattern, Rebuild};
use crate::fold::fold_operator;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{
    Attention, AttentionMask, Binary, BinaryOp, MatMul, Op, Reshape, Softmax, Transpose, Unary, UnaryOp, Where,
};
use models::types::{DType, Dim, TensorType};

const MAX_MASK_ELEMENTS: u64 = 1 << 24;
/// Maximum number of operators between the first product and the softmax.
const MAX_STEPS: usize = 12;
const GUARD: &str = "where(is_nan(y), 0, y@softmax(x))";

pub(crate) fn recognise_attention(graph: &Graph) -> Result<Option<Graph>> {
    if !graph.nodes.iter().any(|node| matches!(node.op, Op::Softmax(_))) {
        return Ok(None);
    }
    let lookup = GraphLookup::from_graph(graph);
    let guard = Pattern::from_static(GUARD);
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        match FoundAttention::match_ending_at(&lookup, &guard, node) {
            Some(found) => found.emit_attention(&lookup, &mut rebuild, node)?,
            None => drop(rebuild.copy_node(node)?),
        }
    }
    rebuild.finish_graph().map(Some)
}

struct FoundAttention {
    batch: i64,
    heads: i64,
    repeats: i64,
    q: ProductOperand,
    k: ProductOperand,
    v: ProductOperand,
    masks: Vec<Mask>,
    hidden: AttentionMask,
    scale: f64,
    softcap: Option<f64>,
}

/// Queries, keys or values; the last two dimensions are positions and head size.
#[derive(Clone)]
struct ProductOperand {
    id: ValueId,
    permutation: Option<Vec<i64>>,
    scale: f64,
    /// How often each matrix is repeated consecutively.
    repeats: i64,
    extents: [i64; 2],
}

#[derive(Clone, Copy)]
enum Mask {
    Added(ValueId),
    /// Keeps scores where a condition holds (or does not hold) and replaces all other scores by `hidden`.
    Chosen {
        condition: ValueId,
        is_seen_where_true: bool,
        hidden: f64,
    },
}

struct AttentionScores<'a> {
    product: &'a Node,
    scale: f64,
    softcap: Option<f64>,
    masks: Vec<Mask>,
    /// Batches and heads; None as long as all tensors have fewer than four dimensions.
    leading: Option<[i64; 2]>,
    /// Whether the mask of three-dimensional scores varies over the first dimension, which merges batches and heads.
    is_mask_merged: bool,
}

impl FoundAttention {
    fn match_ending_at(lookup: &GraphLookup<'_>, guard: &Pattern, node: &Node) -> Option<FoundAttention> {
        let Op::MatMul(MatMul { transpose_a: false, transpose_b }) = node.op else { return None };
        let scores = trace_scores(lookup, softmax_input(lookup, guard, node.inputs[0])?, MAX_STEPS)?;
        let Op::MatMul(MatMul { transpose_b: is_k_plain, .. }) = scores.product.op else { return None };
        let extents = lookup.value_type(scores.product.outputs[0]).extents()?;
        let (before, [rows, places]) = split_last_two(&extents)?;
        let [batch, heads] = scores.leading.unwrap_or([1, before.iter().product()]);
        if scores.is_mask_merged && batch != 1 {
            return None;
        }
        let q = ProductOperand::match_operand(lookup, scores.product.inputs[0], false, true)?;
        let k = ProductOperand::match_operand(lookup, scores.product.inputs[1], !is_k_plain, true)?;
        let v = ProductOperand::match_operand(lookup, node.inputs[1], transpose_b, false)?;
        let is_constant = |operand: &ProductOperand| lookup.constant_data(operand.id).is_some();
        let is_one_type = [q.id, k.id, v.id]
            .iter()
            .all(|&id| lookup.value_type(id).dtype == lookup.value_type(node.outputs[0]).dtype);
        // A product with a constant is a dense layer, not attention.
        if is_constant(&k) || is_constant(&v) || !is_one_type || !lookup.value_type(q.id).dtype.is_float() {
            return None;
        }
        // One matrix may serve all heads by broadcasting.
        let shared = |own: &[i64], all: &[i64]| match (own, all) {
            (own, all) if own == all => Some(1),
            (&[own, 1], &[all, heads]) if own == all => Some(heads),
            _ => None,
        };
        let leading_of = |id: ValueId| Some(split_last_two(&lookup.value_type(id).extents()?)?.0.to_vec());
        let weights = leading_of(node.inputs[0])?;
        let k_repeats = k.repeats * shared(&leading_of(scores.product.inputs[1])?, before)?;
        let v_repeats = v.repeats * shared(&leading_of(node.inputs[1])?, &weights)?;
        let fits = leading_of(scores.product.inputs[0])? == before
            && q.repeats == 1
            && k_repeats == v_repeats
            && heads % k_repeats == 0
            && q.extents == [rows, k.extents[1]]
            && k.extents[0] == places
            && v.extents[0] == places
            && places > 0;
        let inner = scores.scale * q.scale * k.scale;
        let (scale, softcap) = match scores.softcap {
            Some(softcap) => (inner * softcap, Some(softcap)),
            None => (inner, None),
        };
        let is_scaled = |number: f64| number.is_finite() && number > 0.0;
        if !fits || !is_scaled(scale) || !softcap.is_none_or(is_scaled) {
            return None;
        }
        let found: Vec<(Mask, Option<AttentionMask>)> =
            scores.masks.into_iter().map(|mask| (mask, mask.structured_mask(lookup, [rows, places]))).collect();
        let nothing = AttentionMask::fully_visible(rows.unsigned_abs(), places.unsigned_abs());
        let hiding: Vec<_> = found.into_iter().filter(|(_, found)| *found != Some(nothing)).collect();
        let (mut hidden, mut masks) = (nothing, Vec::new());
        for (mask, found) in &hiding {
            // With several masks, a finite number may not hide a position: another mask may hide the rest of its row.
            let is_hidden = hiding.len() == 1 || mask.is_endless(lookup);
            match found.filter(|_| is_hidden && hidden == nothing) {
                Some(found) => hidden = found,
                None => masks.push(*mask),
            }
        }
        // Files contain the root of the width, or the root of this root, rounded.
        let usual = 1.0 / (q.extents[1] as f64).sqrt();
        let scale = if (scale - usual).abs() <= 1e-6 * usual { usual } else { scale };
        Some(FoundAttention { batch, heads, repeats: k_repeats, q, k, v, masks, hidden, scale, softcap })
    }

    fn emit_attention(&self, lookup: &GraphLookup<'_>, rebuild: &mut Rebuild<'_>, node: &Node) -> Result<()> {
        let dtype = lookup.value_type(node.outputs[0]).dtype;
        let mut inputs = Vec::new();
        for (operand, heads) in
            [(&self.q, self.heads), (&self.k, self.heads / self.repeats), (&self.v, self.heads / self.repeats)]
        {
            inputs.push(operand.emit_operand(rebuild, node, [self.batch, heads])?);
        }
        let mut whole = None;
        for mask in &self.masks {
            let made = mask.emit_mask(lookup, rebuild, node, dtype)?;
            whole = Some(match whole {
                Some(whole) => rebuild.insert_operator(
                    Some(node),
                    Op::Binary(Binary { function: BinaryOp::Add }),
                    &[whole, made],
                )?,
                None => made,
            });
        }
        inputs.extend(whole);
        let AttentionMask { is_causal: causal, window, .. } = self.hidden;
        let op = Op::Attention(Attention { causal, scale: self.scale, window, softcap: self.softcap });
        let output = lookup.value_type(node.outputs[0]).extents().unwrap_or_default();
        if output == [self.batch, self.heads, self.q.extents[0], self.v.extents[1]] {
            rebuild.emit_operator(node, op, &inputs)?;
        } else {
            let made = rebuild.insert_operator(Some(node), op, &inputs)?;
            rebuild.emit_operator(node, Op::Reshape(Reshape { shape: output }), &[made])?;
        }
        Ok(())
    }
}

fn softmax_input(lookup: &GraphLookup<'_>, guard: &Pattern, weights: ValueId) -> Option<ValueId> {
    let node = lookup.producer_of(weights).filter(|_| lookup.is_read_once(weights))?;
    match &node.op {
        Op::Reshape(_) if keeps_matrices(lookup, node) => softmax_input(lookup, guard, node.inputs[0]),
        Op::Softmax(Softmax { axis, log: false }) => is_last(lookup, weights, *axis).then(|| node.inputs[0]),
        Op::Where(_) => {
            let found = guard.find_in(lookup, weights)?;
            let softmax = lookup.producer_of(found.get("y")?)?;
            let Op::Softmax(Softmax { axis, log: false }) = softmax.op else { return None };
            let [is_nan, y] = [node.inputs[0], softmax.outputs[0]];
            let is_inside = lookup.is_read_once(is_nan)
                && lookup.count_reads(y) == 2
                && lookup.value_type(y) == lookup.value_type(weights);
            (is_inside && is_last(lookup, y, axis)).then(|| softmax.inputs[0])
        }
        _ => None,
    }
}

fn is_last(lookup: &GraphLookup<'_>, id: ValueId, axis: i64) -> bool {
    let rank = lookup.value_type(id).rank() as i64;
    rank >= 3 && axis == rank - 1
}

fn trace_scores<'a>(lookup: &GraphLookup<'a>, id: ValueId, steps: usize) -> Option<AttentionScores<'a>> {
    let node = lookup.producer_of(id).filter(|_| steps > 0 && lookup.is_read_once(id))?;
    let before = |inner: ValueId| {
        trace_scores(lookup, inner, steps - 1).filter(|_| lookup.value_type(inner) == lookup.value_type(id))
    };
    let mut found = match &node.op {
        Op::MatMul(MatMul { transpose_a: false, .. }) => AttentionScores {
            product: node,
            scale: 1.0,
            softcap: None,
            masks: Vec::new(),
            leading: None,
            is_mask_merged: false,
        },
        Op::Reshape(_) if keeps_matrices(lookup, node) => trace_scores(lookup, node.inputs[0], steps - 1)?,
        Op::Unary(Unary { function: UnaryOp::Tanh }) => {
            let mut found = before(node.inputs[0])?;
            if found.softcap.is_some() || !found.masks.is_empty() {
                return None;
            }
            found.softcap = Some(1.0);
            found
        }
        Op::Binary(Binary { function: BinaryOp::Add }) => lookup
            .operand_orders(id, BinaryOp::Add)
            .find_map(|(inner, mask)| Some(before(inner)?.with_mask(lookup, [inner, mask], Mask::Added(mask))))?,
        Op::Binary(Binary { function: BinaryOp::Mul | BinaryOp::Div }) => {
            let (inner, number) = scaled_value(lookup, node)?;
            let mut found = before(inner)?;
            if !found.masks.is_empty() {
                return None;
            }
            *found.softcap.as_mut().unwrap_or(&mut found.scale) *= number;
            found
        }
        Op::Where(_) => {
            let [condition, one, other] = [node.inputs[0], node.inputs[1], node.inputs[2]];
            [(one, other, true), (other, one, false)].into_iter().find_map(|(inner, number, is_seen_where_true)| {
                let hidden =
                    lookup.constant_scalar(number).filter(|hidden| takes_all(lookup.value_type(id).dtype, *hidden))?;
                let mask = Mask::Chosen { condition, is_seen_where_true, hidden };
                // A finite masking number changes if another mask is added to it.
                let found = before(inner).filter(|found| found.masks.is_empty() || hidden == f64::NEG_INFINITY)?;
                Some(found.with_mask(lookup, [inner, condition], mask))
            })?
        }
        _ => return None,
    };
    match lookup.value_type(id).extents()?[..] {
        [_, _, _] => {}
        [batch, heads, _, _] if found.leading.is_none_or(|leading| leading == [batch, heads]) => {
            found.leading = Some([batch, heads]);
        }
        _ => return None,
    }
    Some(found)
}

impl AttentionScores<'_> {
    fn with_mask(mut self, lookup: &GraphLookup<'_>, [scores, given]: [ValueId; 2], mask: Mask) -> Self {
        let is_merged = lookup.value_type(scores).rank() == 3 && lookup.value_type(given).rank() == 3;
        self.is_mask_merged |= is_merged && lookup.value_type(given).shape[0] != Dim::Known(1);
        self.masks.push(mask);
        self
    }
}

/// Whether adding `hidden` to a score discards the score, so that adding it equals replacing the score by it.
fn takes_all(dtype: DType, hidden: f64) -> bool {
    hidden == f64::NEG_INFINITY || (dtype != DType::F16 && hidden <= -1e30)
}

fn scaled_value(lookup: &GraphLookup<'_>, node: &Node) -> Option<(ValueId, f64)> {
    let [one, other] = node.inputs[..] else { return None };
    let found = match node.op {
        Op::Binary(Binary { function: BinaryOp::Mul }) => lookup
            .constant_scalar(other)
            .map(|number| (one, number))
            .or_else(|| lookup.constant_scalar(one).map(|number| (other, number))),
        Op::Binary(Binary { function: BinaryOp::Div }) => {
            lookup.constant_scalar(other).map(|number| (one, 1.0 / number))
        }
        _ => None,
    };
    found.filter(|(inner, _)| lookup.value_type(*inner) == lookup.value_type(node.outputs[0]))
}

fn split_last_two(extents: &[i64]) -> Option<(&[i64], [i64; 2])> {
    let (before, last) = extents.split_last_chunk::<2>()?;
    Some((before, *last))
}

fn keeps_matrices(lookup: &GraphLookup<'_>, node: &Node) -> bool {
    let last_two = |id: ValueId| Some(split_last_two(&lookup.value_type(id).extents()?)?.1);
    let found = last_two(node.outputs[0]);
    found.is_some() && found == last_two(node.inputs[0])
}

impl ProductOperand {
    /// Matches the producers of `id`. `is_transposed`: positions are last; `takes_scale`: a scale is absorbed, too.
    fn match_operand(
        lookup: &GraphLookup<'_>,
        id: ValueId,
        is_transposed: bool,
        takes_scale: bool,
    ) -> Option<ProductOperand> {
        let (_, mut extents) = split_last_two(&lookup.value_type(id).extents()?)?;
        if is_transposed {
            extents.reverse();
        }
        let mut found = ProductOperand { id, permutation: None, scale: 1.0, repeats: 1, extents };
        let mut is_transposed = is_transposed;
        while let Some(node) = lookup.producer_of(found.id) {
            match &node.op {
                Op::Reshape(_) if keeps_matrices(lookup, node) => {}
                Op::Expand(_) | Op::Tile(_) if found.repeats == 1 => match matrix_repeats(lookup, node) {
                    Some(repeats) => found.repeats = repeats,
                    None => break,
                },
                Op::Binary(_) => {
                    match scaled_value(lookup, node).filter(|_| takes_scale && lookup.is_read_once(found.id)) {
                        Some((inner, number)) => {
                            found.scale *= number;
                            found.id = inner;
                            continue;
                        }
                        None => break,
                    }
                }
                Op::Transpose(Transpose { permutation }) if is_transposed => {
                    let mut permutation = permutation.clone();
                    let last = permutation.len() - 1;
                    permutation.swap(last - 1, last);
                    found.id = node.inputs[0];
                    is_transposed = false;
                    if (0..).zip(&permutation).any(|(index, &axis)| axis != index) {
                        found.permutation = Some(permutation);
                        break;
                    }
                    continue;
                }
                _ => break,
            }
            found.id = node.inputs[0];
        }
        if is_transposed {
            let rank = lookup.value_type(found.id).rank() as i64;
            found.permutation = Some((0..rank - 2).chain([rank - 1, rank - 2]).collect());
        }
        Some(found)
    }

    fn emit_operand(&self, rebuild: &mut Rebuild<'_>, node: &Node, [batch, heads]: [i64; 2]) -> Result<ValueId> {
        let mut value = rebuild.get(self.id)?;
        if let Some(permutation) = &self.permutation {
            value = rebuild.insert_operator(
                Some(node),
                Op::Transpose(Transpose { permutation: permutation.clone() }),
                &[value],
            )?;
        }
        let shape = vec![batch, heads, self.extents[0], self.extents[1]];
        if rebuild.type_of(value)?.extents().as_ref() == Some(&shape) {
            return Ok(value);
        }
        rebuild.insert_operator(Some(node), Op::Reshape(Reshape { shape }), &[value])
    }
}

/// Returns how often an expansion repeats each matrix; None if it does anything else.
fn matrix_repeats(lookup: &GraphLookup<'_>, node: &Node) -> Option<i64> {
    let (x, y) = (lookup.value_type(node.inputs[0]).extents()?, lookup.value_type(node.outputs[0]).extents()?);
    let last = y.len().checked_sub(3)?;
    let is_one = x.len() == y.len() && x[last] == 1 && x[..last] == y[..last] && x[last + 1..] == y[last + 1..];
    is_one.then(|| y[last])
}

impl Mask {
    /// Returns the attention attributes (such as causal) that have the effect of a constant mask, or None.
    fn structured_mask(&self, lookup: &GraphLookup<'_>, [rows, places]: [i64; 2]) -> Option<AttentionMask> {
        let nothing = AttentionMask::fully_visible(rows.unsigned_abs(), places.unsigned_abs());
        let (Mask::Added(id) | Mask::Chosen { condition: id, .. }) = *self;
        let ty = lookup.value_type(id);
        let data = lookup
            .constant_data(id)
            .filter(|_| ty.element_count().is_some_and(|elements| elements <= MAX_MASK_ELEMENTS))?;
        let numbers = reference::constant_tensor(ty, data).ok()?.to_numbers();
        let is_seen = |number: f64| match *self {
            Mask::Added(_) if number == 0.0 => Some(true),
            Mask::Added(_) => (number == f64::NEG_INFINITY || number <= masking_number(ty.dtype)).then_some(false),
            Mask::Chosen { is_seen_where_true, .. } => Some((number != 0.0) == is_seen_where_true),
        };
        let seen: Vec<bool> = numbers.into_iter().map(is_seen).collect::<Option<_>>()?;
        if seen.iter().all(|&seen| seen) {
            return Some(nothing);
        }
        // The mask must be equal for all heads and batches.
        let (_, last) = split_last_two(&ty.extents()?)?;
        if last != [rows, places] || rows > places {
            return None;
        }
        let width = seen[seen.len() - usize::try_from(places).ok()?..].iter().filter(|&&seen| seen).count() as i64;
        let is_expected = |(index, &seen): (i64, &bool)| {
            let (own, place) = (index / places % rows + places - rows, index % places);
            seen == (place <= own && place > own - width)
        };
        let window = (width < places).then_some(width);
        (width > 0 && (0..).zip(&seen).all(is_expected)).then_some(AttentionMask { is_causal: true, window, ..nothing })
    }

    /// Whether masked positions are infinite in the mask, so that they stay masked whatever is added.
    fn is_endless(&self, lookup: &GraphLookup<'_>) -> bool {
        match *self {
            Mask::Chosen { hidden, .. } => hidden == f64::NEG_INFINITY,
            Mask::Added(id) => {
                let numbers = lookup
                    .constant_data(id)
                    .and_then(|data| reference::constant_tensor(lookup.value_type(id), data).ok());
                numbers.is_some_and(|tensor| {
                    tensor.to_numbers().iter().all(|number| *number == 0.0 || number.is_infinite())
                })
            }
        }
    }

    fn emit_mask(
        &self,
        lookup: &GraphLookup<'_>,
        rebuild: &mut Rebuild<'_>,
        node: &Node,
        dtype: DType,
    ) -> Result<ValueId> {
        let (condition, is_seen_where_true, hidden) = match *self {
            Mask::Added(id) => return rebuild.get(id),
            Mask::Chosen { condition, is_seen_where_true, hidden } => (condition, is_seen_where_true, hidden),
        };
        let number = TensorType::new(dtype, &[]);
        let (open, hidden) = (Const::Fill(0.0), Const::Fill(hidden));
        let [one, other] = if is_seen_where_true { [open, hidden] } else { [hidden, open] };
        let ty = lookup.value_type(condition);
        let folded = lookup
            .constant_data(condition)
            .and_then(|data| fold_operator(&Op::Where(Where {}), &[(ty, data), (&number, &one), (&number, &other)]));
        if let Some(data) = folded {
            return rebuild.add_constant("mask", TensorType { dtype, shape: ty.shape.clone() }, data);
        }
        let condition = rebuild.get(condition)?;
        let one = rebuild.add_constant("seen", number.clone(), one)?;
        let other = rebuild.add_constant("hidden", number, other)?;
        rebuild.insert_operator(Some(node), Op::Where(Where {}), &[condition, one, other])
    }
}

/// Returns the number up to which a finite number added to scores is considered to mask them.
fn masking_number(dtype: DType) -> f64 {
    if dtype == DType::F16 { -60_000.0 } else { -1e30 }
}
