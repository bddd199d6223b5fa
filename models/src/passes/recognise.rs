//! Finds operators that a file spells out in smaller ones.
//!
//! Each recogniser looks at one node, taken as the last of its pattern, and says what computes the same from values
//! further up. The operators in between are left alone; those that nothing else reads are dead then and dropped at the end.

mod activation;
mod contraction;
mod normalisation;
#[cfg(test)]
mod tests;

pub(super) use activation::{drop_softmax_guard, recognise_activations};
pub(super) use contraction::{absorb_pads, global_pools, mat_mul_to_dense, sums_to_biases};
pub(super) use normalisation::{absorb_scales, absorb_shifts, recognise_normalisations};

use super::rebuild::Rebuild;
use crate::error::Result;
use crate::graph::{Const, Graph, Node, ValueId};
use crate::operator::{BinaryOp, Op, UnaryOp};
use crate::reference;
use crate::types::TensorType;
use std::collections::HashMap;

/// What computes the same as a node.
struct Replacement {
    op: Op,
    inputs: Vec<Part>,
    /// A view of the result, when the node's shape is another one.
    view: Option<Op>,
}

/// An input of a replacement.
enum Part {
    /// A value of the old graph.
    Old(ValueId),
    /// A constant.
    Made(TensorType, Const),
}

impl Replacement {
    fn of(op: Op, inputs: Vec<Part>) -> Replacement {
        Replacement { op, inputs, view: None }
    }
}

/// Rebuilds a graph with every node replaced for which there is a replacement.
fn rewrite(graph: &Graph, recognise: impl Fn(&Look<'_>, &Node) -> Option<Replacement>) -> Result<Graph> {
    let look = Look::at(graph);
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let Some(found) = recognise(&look, node) else {
            rebuild.copy(node)?;
            continue;
        };
        let mut inputs = Vec::new();
        for part in found.inputs {
            inputs.push(match part {
                Part::Old(id) => rebuild.get(id)?,
                Part::Made(ty, data) => rebuild.constant("constant", ty, data)?,
            });
        }
        let made = rebuild.emit(node, found.op, &inputs)?;
        if let Some(view) = found.view {
            rebuild.emit(node, view, &[made])?;
        }
    }
    rebuild.finish()
}

/// A graph with what patterns ask of it.
struct Look<'a> {
    graph: &'a Graph,
    producers: HashMap<ValueId, &'a Node>,
}

impl<'a> Look<'a> {
    fn at(graph: &'a Graph) -> Look<'a> {
        Look { graph, producers: graph.nodes.iter().map(|node| (node.outputs[0], node)).collect() }
    }

    fn ty(&self, id: ValueId) -> &'a TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    fn data(&self, id: ValueId) -> Option<&'a Const> {
        self.graph.values[id.0 as usize].data.as_ref()
    }

    fn node(&self, id: ValueId) -> Option<&'a Node> {
        self.producers.get(&id).copied()
    }

    /// The number of a constant that is one number everywhere.
    fn scalar(&self, id: ValueId) -> Option<f64> {
        match self.data(id)? {
            Const::Fill(number) => Some(*number),
            Const::Random { .. } => None,
            data if self.ty(id).elements() == Some(1) => {
                reference::constant(self.ty(id), data).ok()?.numbers().first().copied()
            }
            _ => None,
        }
    }

    /// Whether a constant is about this number everywhere.
    fn is_about(&self, id: ValueId, number: f64) -> bool {
        self.scalar(id).is_some_and(|found| about(found, number))
    }

    fn unary(&self, id: ValueId, function: UnaryOp) -> Option<ValueId> {
        let node = self.node(id)?;
        (node.op == Op::Unary { function }).then(|| node.inputs[0])
    }

    fn binary(&self, id: ValueId, function: BinaryOp) -> Option<[ValueId; 2]> {
        let node = self.node(id)?;
        (node.op == Op::Binary { function }).then(|| [node.inputs[0], node.inputs[1]])
    }

    /// The operands of a sum or product in both orders.
    fn either(&self, id: ValueId, function: BinaryOp) -> impl Iterator<Item = (ValueId, ValueId)> + use<> {
        self.binary(id, function).into_iter().flat_map(|[a, b]| [(a, b), (b, a)])
    }

    /// A value as one number times other values: products, quotients and powers by constants, multiplied out.
    fn factors(&self, id: ValueId) -> (f64, Vec<ValueId>) {
        self.factors_within(id, 4)
    }

    fn factors_within(&self, id: ValueId, depth: usize) -> (f64, Vec<ValueId>) {
        if let Some(number) = self.scalar(id) {
            return (number, Vec::new());
        }
        let alone = (1.0, vec![id]);
        let Some(node) = self.node(id).filter(|_| depth > 0) else { return alone };
        match &node.op {
            Op::Binary { function: BinaryOp::Mul } => {
                let (a, mut left) = self.factors_within(node.inputs[0], depth - 1);
                let (b, right) = self.factors_within(node.inputs[1], depth - 1);
                left.extend(right);
                (a * b, left)
            }
            Op::Binary { function: BinaryOp::Div } => match self.scalar(node.inputs[1]) {
                Some(divisor) => {
                    let (a, left) = self.factors_within(node.inputs[0], depth - 1);
                    (a / divisor, left)
                }
                None => alone,
            },
            Op::Binary { function: BinaryOp::Pow } => match self.scalar(node.inputs[1]) {
                Some(power) if power == 2.0 || power == 3.0 => {
                    (1.0, vec![node.inputs[0]; if power == 2.0 { 2 } else { 3 }])
                }
                _ => alone,
            },
            Op::Unary { function: UnaryOp::Square } => (1.0, vec![node.inputs[0]; 2]),
            _ => alone,
        }
    }
}

/// Equal as far as 32-bit constants and different ways of writing them allow.
fn about(found: f64, number: f64) -> bool {
    (found - number).abs() <= 1e-5 * number.abs().max(1e-3)
}
