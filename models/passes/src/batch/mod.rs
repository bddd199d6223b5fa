//! Changes the batch size of a graph that was written for single samples. Model files state their batch size in
//! reshapes, expansions and constants, so the pass tracks the batch dimension from the inputs through every operator.
//! It fails where an operator would combine samples, or where it has no rule.

mod arithmetic;
mod movement;
mod position;

use super::rebuild::Rebuild;
use arithmetic::single_step;
use models::einsum::Equation;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{
    Concat, Einsum, Expand, Gather, GatherElements, GatherNd, MatMul, Op, Reshape, ScatterElements,
};
use models::types::TensorType;
use position::{
    BatchPosition, Operand, Outcome, Step, batch_place, index, insert_extent, known_extents, new_values, product,
};

/// Returns the graph with a batch of `batch` samples; the first extents of its inputs must be 1.
pub fn change_batch(graph: &Graph, batch: i64) -> Result<Graph, String> {
    batch_graph(graph, batch).map(|(graph, _)| graph)
}

struct Batching<'a> {
    old: &'a Graph,
    rebuild: Rebuild<'a>,
    batch: i64,
    positions: Vec<Option<BatchPosition>>,
}

fn batch_graph(graph: &Graph, batch: i64) -> Outcome<(Graph, Vec<Option<BatchPosition>>)> {
    let mut positions = vec![None; graph.values.len()];
    let mut types = std::collections::HashMap::new();
    for &id in &graph.inputs {
        let value = &graph.values[id.0 as usize];
        let mut extents = known_extents(&value.ty)?;
        match extents.first_mut() {
            Some(first) if *first == 1 => {
                *first = batch;
                positions[id.0 as usize] = Some(BatchPosition { axis: 0, outer: 1, inner: 1 });
            }
            Some(_) => return Err(format!("input `{}` has no batch of 1", value.name)),
            None => {}
        }
        types.insert(id, TensorType::new(value.ty.dtype, &extents));
    }
    let rebuild = Rebuild::with_input_types(graph, &mut |id| types[&id].clone()).map_err(|error| error.to_string())?;
    let mut batching = Batching { old: graph, rebuild, batch, positions };
    for node in &graph.nodes {
        let name = &graph.values[node.outputs[0].0 as usize].name;
        batching.convert_node(node).map_err(|reason| format!("node `{name}` (`{}`): {reason}", node.op.name()))?;
    }
    let outputs = graph.outputs.iter().map(|id| batching.positions[id.0 as usize]).collect();
    Ok((batching.rebuild.finish_graph().map_err(|error| error.to_string())?, outputs))
}

impl Batching<'_> {
    fn convert_node(&mut self, node: &Node) -> Outcome<()> {
        let operands = node.inputs.iter().map(|&id| self.operand(id)).collect::<Outcome<Vec<_>>>()?;
        if operands.iter().all(|operand| operand.position.is_none()) {
            return self.rebuild.copy_node(node).map(drop).map_err(|error| error.to_string());
        }
        let output = known_extents(&self.old.values[node.outputs[0].0 as usize].ty)?;
        if operands.iter().flat_map(|operand| &operand.extents).chain(&output).any(|&extent| extent == 0) {
            return Err("a value has no elements".to_owned());
        }
        let position = self.convert_operator(node, &operands, &output)?;
        self.positions[node.outputs[0].0 as usize] = Some(position);
        let mut expected = output;
        expected[position.axis] *= self.batch;
        let new = self.rebuild.get(node.outputs[0]).map_err(|error| error.to_string())?;
        let found = self.rebuild.type_of(new).map_err(|error| error.to_string())?;
        let wanted = TensorType::new(self.old.values[node.outputs[0].0 as usize].ty.dtype, &expected);
        if *found == wanted { Ok(()) } else { Err(format!("the result would be {found}, not {wanted}")) }
    }

    fn operand(&mut self, id: ValueId) -> Outcome<Operand> {
        let extents = known_extents(&self.old.values[id.0 as usize].ty)?;
        let new = self.rebuild.get(id).map_err(|error| error.to_string())?;
        Ok(Operand { new, extents, position: self.positions[id.0 as usize] })
    }

    fn convert_operator(&mut self, node: &Node, operands: &[Operand], output: &[i64]) -> Outcome<BatchPosition> {
        match &node.op {
            Op::Reshape(_) | Op::Flatten(_) => {
                let operand = &operands[0];
                let prefix = batch_place(operand)?.prefix(&operand.extents);
                self.emit_view(node, operand.new, prefix, output)
            }
            Op::Binary(_) | Op::Compare(_) | Op::Where(_) | Op::PRelu(_) => {
                self.convert_broadcast(node, operands, output, 0)
            }
            Op::Rope(_) => self.convert_broadcast(node, operands, output, 2),
            Op::MatMul(MatMul { transpose_a, transpose_b }) => {
                self.convert_product(node, operands, output, (*transpose_a, *transpose_b))
            }
            Op::QMatMul(_) => self.convert_product(node, operands, output, (false, false)),
            Op::Einsum(Einsum { equation }) => self.convert_einsum(node, operands, equation),
            Op::Attention(_) => self.convert_attention(node, operands),
            Op::Concat(Concat { axis }) => self.convert_concat(node, operands, output, index(*axis)),
            Op::GatherElements(GatherElements { axis }) | Op::ScatterElements(ScatterElements { axis, .. }) => {
                self.convert_by_element(node, operands, output, index(*axis))
            }
            Op::GatherNd(GatherNd { batch }) => self.convert_gather_nd(node, operands, output, index(*batch)),
            Op::ScatterNd(_) => self.convert_scatter_nd(node, operands, output),
            Op::Gather(Gather { axis }) if operands[1].position.is_some() => {
                if operands[0].position.is_some() {
                    return self.convert_gather(node, operands, output, index(*axis));
                }
                let position = batch_place(&operands[1])?;
                self.emit_operator(node, node.op.clone(), operands, position.on_axis(position.axis + index(*axis)))
            }
            op => {
                if operands[1..].iter().any(|operand| operand.position.is_some()) {
                    return Err("the parameters differ between samples".to_owned());
                }
                let position = batch_place(&operands[0])?;
                let Step { op, axis, is_split } = single_step(op, position, operands)?;
                if !is_split {
                    return self.emit_operator(node, op, operands, position.on_axis(axis));
                }
                let mut inputs = new_values(operands);
                inputs[0] = self.split_batch(node, &operands[0])?;
                self.emit_split(node, op, &inputs, axis, output)
            }
        }
    }

    /// Converts an operator whose inputs are broadcast in all dimensions but the last `matrix` ones.
    fn convert_broadcast(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        matrix: usize,
    ) -> Outcome<BatchPosition> {
        let rank = output.len();
        let axes: Vec<usize> = operands.iter().filter_map(|operand| operand.aligned_axis(rank)).collect();
        let positions: Vec<BatchPosition> = operands.iter().filter_map(|operand| operand.position).collect();
        let (axis, position) = (axes[0], positions[0]);
        let are_alike = axes.iter().all(|&other| other == axis)
            && positions.iter().all(|other| (other.outer, other.inner) == (position.outer, position.inner));
        let unbatched = |operand: &&Operand| operand.position.is_none();
        if are_alike && axis + matrix < rank {
            if operands.iter().filter(unbatched).all(|operand| operand.padded(rank)[axis] == 1) {
                return self.emit_operator(node, node.op.clone(), operands, position.on_axis(axis));
            }
            if position.outer > 1 {
                let mut inputs = Vec::new();
                for operand in operands {
                    let is_repeated = operand.position.is_none() && operand.padded(rank)[axis] > 1;
                    let to = BatchPosition { axis: (axis + operand.rank()).saturating_sub(rank), ..position };
                    inputs.push(if is_repeated { self.align_operand(node, operand, to)? } else { operand.new });
                }
                return self.emit_values(node, node.op.clone(), &inputs, position.on_axis(axis));
            }
        }
        // The batch becomes a dimension of its own at `pivot`.
        let pivot = axes.iter().copied().min().unwrap_or(0).min(rank.saturating_sub(matrix));
        let mut inputs = Vec::new();
        for operand in operands {
            let extents = operand.padded(rank);
            let batch = match operand.position {
                None => 1,
                Some(position) => {
                    let axis = position.axis + rank - operand.rank();
                    if position.outer != 1 || product(&extents[pivot..axis]) != 1 {
                        return Err("the samples lie in different dimensions of the inputs".to_owned());
                    }
                    self.batch
                }
            };
            inputs.push(self.reshape(node, operand.new, insert_extent(&extents, pivot, batch))?);
        }
        self.emit_split(node, node.op.clone(), &inputs, pivot, output)
    }

    fn convert_product(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        (transpose_a, transpose_b): (bool, bool),
    ) -> Outcome<BatchPosition> {
        let rank = output.len();
        let [a, b] = operands else { return Err("the operator needs 2 inputs".to_owned()) };
        let rows = a.rank() - if transpose_a { 1 } else { 2 };
        let columns = b.rank() - if transpose_b { 2 } else { 1 };
        match (a.position, b.position) {
            (Some(position), None) if position.axis == rows => {
                self.emit_operator(node, node.op.clone(), operands, position.on_axis(rank - 2))
            }
            (None, Some(position)) if position.axis == columns => {
                self.emit_operator(node, node.op.clone(), operands, position.on_axis(rank - 1))
            }
            _ => self.convert_broadcast(node, operands, output, 2),
        }
    }

    fn convert_einsum(&mut self, node: &Node, operands: &[Operand], equation: &str) -> Outcome<BatchPosition> {
        let types: Vec<&TensorType> = node.inputs.iter().map(|id| &self.old.values[id.0 as usize].ty).collect();
        let equation = Equation::read_equation(equation, &types)?;
        let first = operands.iter().zip(&equation.operands).find_map(|(operand, letters)| {
            let position = operand.position?;
            Some((letters[position.axis], position))
        });
        let Some((letter, position)) = first else { return Err("no input has a batch".to_owned()) };
        let Some(axis) = equation.output.iter().position(|&other| other == letter) else {
            return Err("the equation sums over the samples".to_owned());
        };
        let mut inputs = Vec::new();
        for (operand, letters) in operands.iter().zip(&equation.operands) {
            let axes: Vec<usize> = (0..letters.len()).filter(|&axis| letters[axis] == letter).collect();
            inputs.push(match axes[..] {
                [] if operand.position.is_none() => operand.new,
                [axis] => self.align_operand(node, operand, position.on_axis(axis))?,
                _ => return Err("the samples lie in different dimensions of the inputs".to_owned()),
            });
        }
        self.emit_values(node, node.op.clone(), &inputs, position.on_axis(axis))
    }

    fn convert_attention(&mut self, node: &Node, operands: &[Operand]) -> Outcome<BatchPosition> {
        let position = operands.iter().find_map(|operand| operand.position).filter(|position| position.axis == 0);
        let Some(position) = position else { return Err("the first dimension does not hold the samples".to_owned()) };
        let mut inputs = Vec::new();
        for (input, operand) in operands.iter().enumerate() {
            let is_shared_mask = input == 3 && operand.position.is_none() && operand.padded(4)[0] == 1;
            if operand.rank() != 4 && !is_shared_mask {
                return Err("the mask has fewer than 4 dimensions".to_owned());
            }
            inputs.push(if is_shared_mask { operand.new } else { self.align_operand(node, operand, position)? });
        }
        self.emit_values(node, node.op.clone(), &inputs, position)
    }

    fn convert_concat(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        axis: usize,
    ) -> Outcome<BatchPosition> {
        let positions: Vec<BatchPosition> = operands.iter().filter_map(|operand| operand.position).collect();
        let position = positions[0];
        if axis != position.axis {
            return self.emit_aligned(node, operands, position);
        }
        if positions.iter().any(|position| position.axis != axis) {
            return Err("the samples lie in different dimensions of the inputs".to_owned());
        }
        if positions.iter().all(|position| position.outer == 1) {
            let mut inputs = Vec::new();
            for operand in operands {
                inputs.push(match operand.position {
                    Some(_) => self.split_batch(node, operand)?,
                    None => self.repeat_operand(node, operand, axis)?,
                });
            }
            return self.emit_split(node, Op::Concat(Concat { axis: axis as i64 + 1 }), &inputs, axis, output);
        }
        if positions.len() < operands.len() || positions.iter().any(|other| other.inner != position.inner) {
            return Err("the inputs hold the samples in different layouts".to_owned());
        }
        let outer = positions.iter().map(|position| position.outer).sum();
        self.emit_operator(node, node.op.clone(), operands, BatchPosition { outer, ..position })
    }

    fn convert_by_element(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        axis: usize,
    ) -> Outcome<BatchPosition> {
        let position = operands.iter().find_map(|operand| operand.position).ok_or("no input has a batch")?;
        if operands
            .iter()
            .any(|operand| operand.extents[position.axis] != position.outer * position.inner && position.axis != axis)
        {
            return Err("the inputs differ in the extent of the batch".to_owned());
        }
        if position.axis != axis {
            return self.emit_aligned(node, operands, position);
        }
        let inputs = self.in_front(node, operands)?;
        let mut op = node.op.clone();
        if let Op::GatherElements(GatherElements { axis }) | Op::ScatterElements(ScatterElements { axis, .. }) = &mut op
        {
            *axis += 1;
        }
        self.emit_split(node, op, &inputs, 0, output)
    }

    fn convert_gather(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        axis: usize,
    ) -> Outcome<BatchPosition> {
        if axis != 0 {
            return Err(format!(
                "indices and table differ between samples, and the lookup is along dimension {axis}, not 0"
            ));
        }
        let mut inputs = self.in_front(node, operands)?;
        let tuples = insert_extent(&insert_extent(&operands[1].extents, 0, self.batch), operands[1].rank() + 1, 1);
        inputs[1] = self.reshape(node, inputs[1], tuples)?;
        self.emit_split(node, Op::GatherNd(GatherNd { batch: 1 }), &inputs, 0, output)
    }

    fn convert_gather_nd(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        batch: usize,
    ) -> Outcome<BatchPosition> {
        let [x, at] = operands else { return Err("the operator needs 2 inputs".to_owned()) };
        let looked_up = batch + index(*at.extents.last().unwrap_or(&0));
        match (x.position, at.position) {
            (Some(position), None) if position.axis >= looked_up => {
                let axis = at.rank() - 1 + position.axis - looked_up;
                self.emit_operator(node, node.op.clone(), operands, position.on_axis(axis))
            }
            (None, Some(position)) if batch == 0 && position.axis + 1 < at.rank() => {
                self.emit_operator(node, node.op.clone(), operands, position)
            }
            _ => {
                let inputs = self.in_front(node, operands)?;
                self.emit_split(node, Op::GatherNd(GatherNd { batch: batch as i64 + 1 }), &inputs, 0, output)
            }
        }
    }

    /// Converts a scatter: each slice holds all samples, or the sample's number becomes an additional index.
    fn convert_scatter_nd(&mut self, node: &Node, operands: &[Operand], output: &[i64]) -> Outcome<BatchPosition> {
        let [x, at, updates] = operands else { return Err("the operator needs 3 inputs".to_owned()) };
        let looked_up = index(*at.extents.last().unwrap_or(&0));
        // The dimensions of a slice come after those of the indices in the updates, and after those looked up in `x`.
        let in_slice = match (x.position, updates.position) {
            (_, Some(position)) => (position.axis + 1).checked_sub(at.rank()).map(|axis| position.on_axis(axis)),
            (Some(position), None) => position.axis.checked_sub(looked_up).map(|axis| position.on_axis(axis)),
            (None, None) => None,
        };
        if let (Some(position), None) = (in_slice, at.position) {
            let to = position.on_axis(looked_up + position.axis);
            let x = self.align_operand(node, x, to)?;
            let updates = self.align_operand(node, updates, position.on_axis(at.rank() - 1 + position.axis))?;
            return self.emit_values(node, node.op.clone(), &[x, at.new, updates], to);
        }
        let mut inputs = self.in_front(node, operands)?;
        let mut extents = self.rebuild.type_of(inputs[1]).map_err(|error| error.to_string())?.clone();
        let dtype = extents.dtype;
        if let Some(last) = extents.shape.last_mut() {
            *last = models::types::Dim::Known(1);
        }
        let extents = known_extents(&extents)?;
        let mut along = vec![1; extents.len()];
        along[0] = self.batch;
        let samples = Const::range_along(dtype, &along, 0, 0);
        let samples = self
            .rebuild
            .add_constant("samples", TensorType::new(dtype, &along), samples)
            .map_err(|error| error.to_string())?;
        let samples = self.expand(node, samples, extents.clone())?;
        let join = Op::Concat(Concat { axis: extents.len() as i64 - 1 });
        inputs[1] = self.insert_operator(node, join, &[samples, inputs[1]])?;
        self.emit_split(node, node.op.clone(), &inputs, 0, output)
    }

    /// Returns the operands with the batch as an additional first dimension.
    fn in_front(&mut self, node: &Node, operands: &[Operand]) -> Outcome<Vec<ValueId>> {
        let mut inputs = Vec::new();
        for operand in operands {
            inputs.push(match operand.position {
                None => self.repeat_operand(node, operand, 0)?,
                Some(position) if position.prefix(&operand.extents) == 1 => {
                    self.reshape(node, operand.new, insert_extent(&operand.extents, 0, self.batch))?
                }
                Some(_) => return Err("the samples do not lie in the first dimension".to_owned()),
            });
        }
        Ok(inputs)
    }

    fn repeat_operand(&mut self, node: &Node, operand: &Operand, axis: usize) -> Outcome<ValueId> {
        let apart = self.reshape(node, operand.new, insert_extent(&operand.extents, axis, 1))?;
        self.expand(node, apart, insert_extent(&operand.extents, axis, self.batch))
    }

    fn emit_aligned(&mut self, node: &Node, operands: &[Operand], position: BatchPosition) -> Outcome<BatchPosition> {
        let align = |operand| self.align_operand(node, operand, position);
        let inputs = operands.iter().map(align).collect::<Outcome<Vec<_>>>()?;
        self.emit_values(node, node.op.clone(), &inputs, position)
    }

    fn align_operand(&mut self, node: &Node, operand: &Operand, to: BatchPosition) -> Outcome<ValueId> {
        let extents = &operand.extents;
        let different = || "the samples lie in different dimensions of the inputs".to_owned();
        if extents.get(to.axis) != Some(&(to.outer * to.inner)) {
            return Err(different());
        }
        let mut whole = extents.clone();
        whole[to.axis] *= self.batch;
        match operand.position {
            Some(position) if position == to => Ok(operand.new),
            Some(position) if position.prefix(extents) == to.prefix(extents) => self.reshape(node, operand.new, whole),
            Some(_) => Err(different()),
            None if to.is_whole() => self.expand(node, operand.new, whole),
            None => {
                let apart = |batch: i64| {
                    let mut apart = extents.clone();
                    apart.splice(to.axis..=to.axis, [to.outer, batch, to.inner]);
                    apart
                };
                let split = self.reshape(node, operand.new, apart(1))?;
                let repeated = self.expand(node, split, apart(self.batch))?;
                self.reshape(node, repeated, whole)
            }
        }
    }

    /// Returns the operand with a separate batch dimension, inserted before the dimension that held the batch.
    fn split_batch(&mut self, node: &Node, operand: &Operand) -> Outcome<ValueId> {
        let position = batch_place(operand)?;
        if position.outer != 1 {
            return Err("the samples lie inside a dimension that the operator changes".to_owned());
        }
        self.reshape(node, operand.new, insert_extent(&operand.extents, position.axis, self.batch))
    }

    /// Adds an operator whose result has a separate batch dimension at `axis`; the node's result is a view of it.
    fn emit_split(
        &mut self,
        node: &Node,
        op: Op,
        inputs: &[ValueId],
        axis: usize,
        output: &[i64],
    ) -> Outcome<BatchPosition> {
        let made = self.insert_operator(node, op, inputs)?;
        let found = self.rebuild.type_of(made).map_err(|error| error.to_string())?;
        if known_extents(found)? != insert_extent(output, axis, self.batch) {
            return Err(format!("the result would be {found}"));
        }
        self.emit_view(node, made, product(&output[..axis]), output)
    }

    /// Reshapes a value with `prefix` elements before the batch to the node's result.
    fn emit_view(&mut self, node: &Node, value: ValueId, prefix: i64, output: &[i64]) -> Outcome<BatchPosition> {
        let position =
            BatchPosition::find(output, prefix).ok_or("the samples of the result would not lie in one dimension")?;
        let mut shape = output.to_vec();
        shape[position.axis] *= self.batch;
        self.emit_values(node, Op::Reshape(Reshape { shape }), &[value], position)
    }

    fn emit_operator(
        &mut self,
        node: &Node,
        op: Op,
        operands: &[Operand],
        position: BatchPosition,
    ) -> Outcome<BatchPosition> {
        self.emit_values(node, op, &new_values(operands), position)
    }

    fn emit_values(
        &mut self,
        node: &Node,
        op: Op,
        inputs: &[ValueId],
        position: BatchPosition,
    ) -> Outcome<BatchPosition> {
        self.rebuild.emit_operator(node, op, inputs).map_err(|error| error.to_string())?;
        Ok(position)
    }

    fn insert_operator(&mut self, node: &Node, op: Op, inputs: &[ValueId]) -> Outcome<ValueId> {
        self.rebuild.insert_operator(Some(node), op, inputs).map_err(|error| error.to_string())
    }

    fn reshape(&mut self, node: &Node, value: ValueId, shape: Vec<i64>) -> Outcome<ValueId> {
        self.insert_operator(node, Op::Reshape(Reshape { shape }), &[value])
    }

    fn expand(&mut self, node: &Node, value: ValueId, shape: Vec<i64>) -> Outcome<ValueId> {
        self.insert_operator(node, Op::Expand(Expand { shape }), &[value])
    }
}

#[cfg(test)]
mod tests;
