//! Folds batch normalisation with constant statistics into the preceding contraction. `(x · w + b - mean) · g + shift`
//! with `g = scale / sqrt(variance + epsilon)` is `x · (w g) + (b - mean) g + shift`: the weight is scaled and one bias
//! remains. Without a preceding contraction that can absorb the scale, the normalisation becomes `ScaleShift`. Random
//! weights stay random, because their values do not matter.

use super::rebuild::Rebuild;
use crate::fold;
use models::error::Result;
use models::graph::{Computed, Const, Graph, Node, ValueId};
use models::operators::{BatchNorm, BiasAdd, ConvTranspose, Op, ScaleShift};
use models::types::TensorType;
use std::collections::HashMap;

pub(super) fn fold_batch_norm(graph: &Graph) -> Result<Option<Graph>> {
    if !graph.nodes.iter().any(|node| matches!(node.op, Op::BatchNorm(_))) {
        return Ok(None);
    }
    let mut folds = Folds::find_folds(graph);
    let mut rebuild = Rebuild::new(graph)?;
    for (index, node) in graph.nodes.iter().enumerate() {
        if let Some(weight) = folds.weights.remove(&index) {
            let inputs = [rebuild.get(node.inputs[0])?, rebuild.constant_like(node.inputs[1], weight)?];
            rebuild.emit_operator(node, node.op.clone(), &inputs)?;
        } else if let Some(source) = folds.dropped_biases.remove(&index) {
            let source = rebuild.get(source)?;
            rebuild.replace_value(node.outputs[0], source);
        } else if let Some(bias) = folds.biases.remove(&index) {
            let inputs = [rebuild.get(node.inputs[0])?, rebuild.constant_like(node.inputs[2], bias)?];
            rebuild.emit_operator(node, Op::BiasAdd(BiasAdd { axis: 1 }), &inputs)?;
        } else if let Some(affine) = Affine::from_batch_norm(graph, node) {
            let scale = rebuild.constant_like(node.inputs[1], affine.scale)?;
            let shift = rebuild.constant_like(node.inputs[2], affine.shift)?;
            let inputs = [rebuild.get(node.inputs[0])?, scale, shift];
            rebuild.emit_operator(node, Op::ScaleShift(ScaleShift { axis: 1 }), &inputs)?;
        } else {
            rebuild.copy_node(node)?;
        }
    }
    rebuild.finish_graph().map(Some)
}

#[derive(Default)]
struct Folds {
    weights: HashMap<usize, Const>,
    /// Nodes of biases that were absorbed, each with the contraction output that replaces the bias's result.
    dropped_biases: HashMap<usize, ValueId>,
    biases: HashMap<usize, Const>,
}

impl Folds {
    fn find_folds(graph: &Graph) -> Folds {
        let mut folds = Folds::default();
        let producers: HashMap<ValueId, usize> =
            graph.nodes.iter().enumerate().map(|(index, node)| (node.outputs[0], index)).collect();
        let uses = count_uses(graph);
        let single_producer = |id: ValueId| producers.get(&id).copied().filter(|_| uses[id.0 as usize] == 1);
        for (index, node) in graph.nodes.iter().enumerate() {
            let Some(affine) = Affine::from_batch_norm(graph, node) else { continue };
            let Some(mut contraction) = single_producer(node.inputs[0]) else { continue };
            let mut bias = None;
            if let Node { op: Op::BiasAdd(BiasAdd { axis: 1 }), inputs, .. } = &graph.nodes[contraction] {
                let (Some(data), Some(producer)) = (constant_vector(graph, inputs[1]), single_producer(inputs[0]))
                else {
                    continue;
                };
                bias = Some((contraction, inputs[0], data));
                contraction = producer;
            }
            let Some(scaled) = scaled_weight(graph, &graph.nodes[contraction], &affine) else { continue };
            let shift = match &bias {
                Some((.., bias)) => combine_vectors([bias, &affine.scale, &affine.shift], |[b, g, s]| b * g + s),
                None => affine.shift,
            };
            folds.weights.insert(contraction, scaled);
            folds.dropped_biases.extend(bias.map(|(node, source, _)| (node, source)));
            folds.biases.insert(index, shift);
        }
        folds
    }
}

struct Affine {
    channels: TensorType,
    scale: Const,
    shift: Const,
}

impl Affine {
    /// Returns the affine form of a batch normalisation, or None unless its parameters are constant vectors.
    fn from_batch_norm(graph: &Graph, node: &Node) -> Option<Affine> {
        let Op::BatchNorm(BatchNorm { epsilon }) = node.op else { return None };
        let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|index| constant_vector(graph, node.inputs[index]));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let scale = combine_vectors([&scale, &variance], |[scale, variance]| scale / (variance + epsilon).sqrt());
        let shift = combine_vectors([&shift, &mean, &scale], |[shift, mean, scale]| shift - mean * scale);
        Some(Affine { channels: graph.value(node.inputs[1])?.ty.clone(), scale, shift })
    }
}

/// Returns the scaled constant weight of a contraction whose dimension 1 holds the output channels, or None.
fn scaled_weight(graph: &Graph, node: &Node, affine: &Affine) -> Option<Const> {
    let axis = match &node.op {
        Op::Conv(_) => 0,
        Op::ConvTranspose(ConvTranspose { groups: 1, .. }) => 1,
        Op::Dense(_) if graph.value(node.outputs[0])?.ty.rank() == 2 => 0,
        _ => return None,
    };
    let weight = graph.value(node.inputs[1])?;
    match (weight.data.as_ref()?, &affine.scale) {
        (weight, scale) if weight.random_seed().is_some() || scale.random_seed().is_some() => {
            Some(Const::Random { seed: mixed_seed([weight, scale])? })
        }
        (Const::Fill(weight), Const::Fill(scale)) => Some(Const::Fill(weight * scale)),
        (data, scale) => {
            let weight = (weight.ty.clone(), data.clone());
            let scale = (affine.channels.clone(), scale.clone());
            let zero = (affine.channels.clone(), Const::Fill(0.0));
            let computed = Computed { op: Op::ScaleShift(ScaleShift { axis }), inputs: vec![weight, scale, zero] };
            fold::limit_size(Const::Computed(Box::new(computed)))
        }
    }
}

fn constant_vector(graph: &Graph, id: ValueId) -> Option<Const> {
    let value = graph.value(id)?;
    match value.data.as_ref()? {
        data if data.random_seed().is_some() => Some(Const::Random { seed: data.random_seed()? }),
        Const::Fill(number) => Some(Const::Fill(*number)),
        data => Some(Const::Small(reference::constant_tensor(&value.ty, data).ok()?.to_numbers())),
    }
}

/// Counts the readers of each value, including the graph's outputs.
fn count_uses(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.values.len()];
    for id in graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs) {
        uses[id.0 as usize] += 1;
    }
    uses
}

/// Combines the seeds of all parts; None if no part is random.
fn mixed_seed<const N: usize>(parts: [&Const; N]) -> Option<u64> {
    let seeds = parts.iter().filter_map(|part| part.random_seed());
    seeds.reduce(|a, b| a.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(b))
}

/// Combines constants element by element. The result is random if any of them is, and uniform if all are.
fn combine_vectors<const N: usize>(parts: [&Const; N], function: impl Fn([f64; N]) -> f64) -> Const {
    if let Some(seed) = mixed_seed(parts) {
        return Const::Random { seed };
    }
    let at = |index: usize| {
        parts.map(|part| match part {
            Const::Small(numbers) => numbers[index],
            Const::Fill(number) => *number,
            _ => unreachable!("a vector is random, one number or a list"),
        })
    };
    let lengths = parts.iter().filter_map(|part| match part {
        Const::Small(numbers) => Some(numbers.len()),
        _ => None,
    });
    match lengths.min() {
        Some(length) => Const::Small((0..length).map(|index| function(at(index))).collect()),
        None => Const::Fill(function(at(0))),
    }
}
