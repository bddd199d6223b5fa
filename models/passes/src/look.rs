//! A graph as those see it who look for something in it.

use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{Binary, BinaryOp, Op, Unary, UnaryOp};
use models::types::TensorType;
use std::collections::HashMap;

/// A graph with what patterns ask of it.
pub(crate) struct Look<'a> {
    pub graph: &'a Graph,
    producers: HashMap<ValueId, usize>,
    reads: Vec<usize>,
}

impl<'a> Look<'a> {
    pub fn at(graph: &'a Graph) -> Look<'a> {
        let mut reads = vec![0; graph.values.len()];
        let inputs = graph.nodes.iter().flat_map(|node| &node.inputs);
        inputs.chain(&graph.outputs).for_each(|id| reads[id.0 as usize] += 1);
        let producers = graph.nodes.iter().enumerate().map(|(index, node)| (node.outputs[0], index)).collect();
        Look { graph, producers, reads }
    }

    pub fn ty(&self, id: ValueId) -> &'a TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    pub fn data(&self, id: ValueId) -> Option<&'a Const> {
        self.graph.values[id.0 as usize].data.as_ref()
    }

    pub fn node(&self, id: ValueId) -> Option<&'a Node> {
        self.indexed(id).map(|(_, node)| node)
    }

    /// What makes a value, with its place in the graph.
    pub fn indexed(&self, id: ValueId) -> Option<(usize, &'a Node)> {
        let index = *self.producers.get(&id)?;
        Some((index, &self.graph.nodes[index]))
    }

    /// Whether what makes this value is read once and so belongs to its reader.
    pub fn is_read_once(&self, id: ValueId) -> bool {
        self.reads(id) == 1
    }

    /// How often a value is read, as a result of the graph too.
    pub fn reads(&self, id: ValueId) -> usize {
        self.reads[id.0 as usize]
    }

    /// The number of a constant that is one number everywhere.
    pub fn scalar(&self, id: ValueId) -> Option<f64> {
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
    pub fn is_about(&self, id: ValueId, number: f64) -> bool {
        self.scalar(id).is_some_and(|found| about(found, number))
    }

    pub fn unary(&self, id: ValueId, function: UnaryOp) -> Option<ValueId> {
        let node = self.node(id)?;
        (node.op == Op::Unary(Unary { function })).then(|| node.inputs[0])
    }

    pub fn binary(&self, id: ValueId, function: BinaryOp) -> Option<[ValueId; 2]> {
        let node = self.node(id)?;
        (node.op == Op::Binary(Binary { function })).then(|| [node.inputs[0], node.inputs[1]])
    }

    /// The operands of a sum or product in both orders.
    pub fn either(&self, id: ValueId, function: BinaryOp) -> impl Iterator<Item = (ValueId, ValueId)> + use<> {
        self.binary(id, function).into_iter().flat_map(|[a, b]| [(a, b), (b, a)])
    }

    /// A value as one number times other values: products, quotients and powers by constants, multiplied out.
    pub fn factors(&self, id: ValueId) -> (f64, Vec<ValueId>) {
        self.factors_within(id, 4)
    }

    fn factors_within(&self, id: ValueId, depth: usize) -> (f64, Vec<ValueId>) {
        if let Some(number) = self.scalar(id) {
            return (number, Vec::new());
        }
        let alone = (1.0, vec![id]);
        let Some(node) = self.node(id).filter(|_| depth > 0) else { return alone };
        match &node.op {
            Op::Binary(Binary { function: BinaryOp::Mul }) => {
                let (a, mut left) = self.factors_within(node.inputs[0], depth - 1);
                let (b, right) = self.factors_within(node.inputs[1], depth - 1);
                left.extend(right);
                (a * b, left)
            }
            Op::Binary(Binary { function: BinaryOp::Div }) => match self.scalar(node.inputs[1]) {
                Some(divisor) => {
                    let (a, left) = self.factors_within(node.inputs[0], depth - 1);
                    (a / divisor, left)
                }
                None => alone,
            },
            Op::Binary(Binary { function: BinaryOp::Pow }) => match self.scalar(node.inputs[1]) {
                Some(power) if power == 2.0 || power == 3.0 => {
                    (1.0, vec![node.inputs[0]; if power == 2.0 { 2 } else { 3 }])
                }
                _ => alone,
            },
            Op::Unary(Unary { function: UnaryOp::Square }) => (1.0, vec![node.inputs[0]; 2]),
            _ => alone,
        }
    }
}

/// Equal as far as 32-bit constants and different ways of writing them allow.
pub(crate) fn about(found: f64, number: f64) -> bool {
    (found - number).abs() <= 1e-5 * number.abs().max(1e-3)
}
