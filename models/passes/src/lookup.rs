//! Read-only queries on a graph for pattern matching: producers, constants and the number of readers of each value.

use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{Binary, BinaryOp, Op, Unary, UnaryOp};
use models::types::TensorType;
use std::cell::OnceCell;

/// Most passes look at few values of most graphs, so the lists are computed at their first use.
pub(crate) struct GraphLookup<'a> {
    pub graph: &'a Graph,
    /// For each value, the index of the node that computes it.
    producers: OnceCell<Vec<Option<usize>>>,
    reads: OnceCell<Vec<usize>>,
}

impl<'a> GraphLookup<'a> {
    pub fn from_graph(graph: &'a Graph) -> GraphLookup<'a> {
        GraphLookup { graph, producers: OnceCell::new(), reads: OnceCell::new() }
    }

    fn producers(&self) -> &[Option<usize>] {
        self.producers.get_or_init(|| {
            let mut producers = vec![None; self.graph.values.len()];
            let nodes = self.graph.nodes.iter().enumerate();
            nodes.for_each(|(index, node)| producers[node.outputs[0].0 as usize] = Some(index));
            producers
        })
    }

    fn reads(&self) -> &[usize] {
        self.reads.get_or_init(|| {
            let mut reads = vec![0; self.graph.values.len()];
            let inputs = self.graph.nodes.iter().flat_map(|node| &node.inputs);
            inputs.chain(&self.graph.outputs).for_each(|id| reads[id.0 as usize] += 1);
            reads
        })
    }

    pub fn value_type(&self, id: ValueId) -> &'a TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    pub fn constant_data(&self, id: ValueId) -> Option<&'a Const> {
        self.graph.values[id.0 as usize].data.as_ref()
    }

    pub fn producer_of(&self, id: ValueId) -> Option<&'a Node> {
        self.indexed_producer(id).map(|(_, node)| node)
    }

    pub fn indexed_producer(&self, id: ValueId) -> Option<(usize, &'a Node)> {
        let index = self.producers()[id.0 as usize]?;
        Some((index, &self.graph.nodes[index]))
    }

    pub fn is_read_once(&self, id: ValueId) -> bool {
        self.count_reads(id) == 1
    }

    /// Counts the readers of a value; being a graph output counts as one.
    pub fn count_reads(&self, id: ValueId) -> usize {
        self.reads()[id.0 as usize]
    }

    pub fn constant_scalar(&self, id: ValueId) -> Option<f64> {
        match self.constant_data(id)? {
            Const::Fill(number) => Some(*number),
            Const::Random { .. } => None,
            data if self.value_type(id).element_count() == Some(1) => {
                reference::constant_tensor(self.value_type(id), data).ok()?.to_numbers().first().copied()
            }
            _ => None,
        }
    }

    pub fn is_about(&self, id: ValueId, number: f64) -> bool {
        self.constant_scalar(id).is_some_and(|found| is_close(found, number))
    }

    pub fn unary_operand(&self, id: ValueId, function: UnaryOp) -> Option<ValueId> {
        let node = self.producer_of(id)?;
        (node.op == Op::Unary(Unary { function })).then(|| node.inputs[0])
    }

    pub fn binary_operands(&self, id: ValueId, function: BinaryOp) -> Option<[ValueId; 2]> {
        let node = self.producer_of(id)?;
        (node.op == Op::Binary(Binary { function })).then(|| [node.inputs[0], node.inputs[1]])
    }

    pub fn operand_orders(&self, id: ValueId, function: BinaryOp) -> impl Iterator<Item = (ValueId, ValueId)> + use<> {
        self.binary_operands(id, function).into_iter().flat_map(|[a, b]| [(a, b), (b, a)])
    }

    /// Splits a value into a constant factor and other factors. Looks through products, quotients and constant powers.
    pub fn split_factors(&self, id: ValueId) -> (f64, Vec<ValueId>) {
        self.factors_within(id, 4)
    }

    fn factors_within(&self, id: ValueId, depth: usize) -> (f64, Vec<ValueId>) {
        if let Some(number) = self.constant_scalar(id) {
            return (number, Vec::new());
        }
        let alone = (1.0, vec![id]);
        let Some(node) = self.producer_of(id).filter(|_| depth > 0) else { return alone };
        match &node.op {
            Op::Binary(Binary { function: BinaryOp::Mul }) => {
                let (a, mut left) = self.factors_within(node.inputs[0], depth - 1);
                let (b, right) = self.factors_within(node.inputs[1], depth - 1);
                left.extend(right);
                (a * b, left)
            }
            Op::Binary(Binary { function: BinaryOp::Div }) => match self.constant_scalar(node.inputs[1]) {
                Some(divisor) => {
                    let (a, left) = self.factors_within(node.inputs[0], depth - 1);
                    (a / divisor, left)
                }
                None => alone,
            },
            Op::Binary(Binary { function: BinaryOp::Pow }) => match self.constant_scalar(node.inputs[1]) {
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

/// Whether two numbers are equal within a tolerance, for constants rounded to 32 bits or with few digits.
pub(crate) fn is_close(found: f64, number: f64) -> bool {
    (found - number).abs() <= 1e-5 * number.abs().max(1e-3)
}
