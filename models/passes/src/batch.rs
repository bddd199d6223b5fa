//! Changes the batch size of a graph that was written for single samples.
//!
//! Model files state their batch size in reshapes, expansions and constants, so new input shapes alone do not change it.
//! This pass tracks the batch dimension from the inputs through every operator and changes attributes where needed.
//! The new graph computes for each sample what the old graph computes for that sample alone. The pass fails where an
//! operator would combine samples, or where it has no rule.

use super::rebuild::Rebuild;
use models::einsum::Equation;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::{
    ArgReduce, ArgTop, BiasAdd, BorderPad, Concat, CumSum, Dequantize, Einsum, Expand, Gather, GatherElements,
    GatherNd, LayerNorm, LpNorm, MatMul, MeanVarianceNorm, OneHot, Op, Pad, Quantize, Reduce, Requantize, Reshape,
    RmsNorm, ScaleShift, ScatterElements, Slice, Softmax, Tile, Transpose,
};
use models::types::TensorType;

type Outcome<T> = Result<T, String>;

const COMBINES: &str = "it combines the samples";

/// Returns the graph with a batch of `batch` samples; the first extents of its inputs must be 1.
pub fn change_batch(graph: &Graph, batch: i64) -> Result<Graph, String> {
    batch_graph(graph, batch).map(|(graph, _)| graph)
}

/// Position of the batch in a value: dimension `axis` has extent `outer * inner` for one sample, and the elements of
/// `outer * batch * inner` in this order for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    axis: usize,
    outer: i64,
    inner: i64,
}

impl Place {
    fn at(self, axis: usize) -> Place {
        Place { axis, ..self }
    }

    fn is_whole(self) -> bool {
        (self.outer, self.inner) == (1, 1)
    }

    /// Number of elements before the batch, for a value of these extents.
    fn prefix(self, extents: &[i64]) -> i64 {
        product(&extents[..self.axis]).saturating_mul(self.outer)
    }

    /// Finds the batch in a value of these extents that has `prefix` elements before it. A dimension of its own is
    /// preferred.
    fn find(extents: &[i64], prefix: i64) -> Option<Place> {
        let before = |axis: usize| product(&extents[..axis]);
        let axes = || 0..extents.len();
        if let Some(axis) = axes().find(|&axis| extents[axis] == 1 && before(axis) == prefix) {
            return Some(Place { axis, outer: 1, inner: 1 });
        }
        if let Some(axis) = axes().find(|&axis| before(axis) == prefix) {
            return Some(Place { axis, outer: 1, inner: extents[axis] });
        }
        axes().rev().find_map(|axis| {
            let outer = prefix.checked_div(before(axis)).filter(|outer| outer * before(axis) == prefix)?;
            let inner = extents[axis].checked_div(outer).filter(|inner| inner * outer == extents[axis])?;
            Some(Place { axis, outer, inner })
        })
    }
}

/// How an operator with one batched input continues.
enum Step {
    /// The operator stays, and its result has the batch in this dimension.
    Keep(Op, usize),
    /// The operator runs on a value whose batch is a dimension of its own; this is its dimension in the result.
    Split(Op, usize),
}

#[derive(Clone)]
struct Operand {
    new: ValueId,
    extents: Vec<i64>,
    place: Option<Place>,
}

impl Operand {
    fn rank(&self) -> usize {
        self.extents.len()
    }

    /// The extents with leading dimensions of extent 1 up to `rank`.
    fn padded(&self, rank: usize) -> Vec<i64> {
        let mut extents = vec![1; rank.saturating_sub(self.rank())];
        extents.extend(&self.extents);
        extents
    }

    fn aligned_axis(&self, rank: usize) -> Option<usize> {
        self.place.map(|place| place.axis + rank - self.rank())
    }
}

struct Batching<'a> {
    old: &'a Graph,
    rebuild: Rebuild<'a>,
    batch: i64,
    places: Vec<Option<Place>>,
}

fn batch_graph(graph: &Graph, batch: i64) -> Outcome<(Graph, Vec<Option<Place>>)> {
    let mut places = vec![None; graph.values.len()];
    let mut types = std::collections::HashMap::new();
    for &id in &graph.inputs {
        let value = &graph.values[id.0 as usize];
        let mut extents = known_extents(&value.ty)?;
        match extents.first_mut() {
            Some(first) if *first == 1 => {
                *first = batch;
                places[id.0 as usize] = Some(Place { axis: 0, outer: 1, inner: 1 });
            }
            Some(_) => return Err(format!("input `{}` has no batch of 1", value.name)),
            None => {}
        }
        types.insert(id, TensorType::new(value.ty.dtype, &extents));
    }
    let rebuild = Rebuild::with_input_types(graph, &mut |id| types[&id].clone()).map_err(|error| error.to_string())?;
    let mut batching = Batching { old: graph, rebuild, batch, places };
    for node in &graph.nodes {
        let name = &graph.values[node.outputs[0].0 as usize].name;
        batching.convert_node(node).map_err(|reason| format!("node `{name}` (`{}`): {reason}", node.op.name()))?;
    }
    let outputs = graph.outputs.iter().map(|id| batching.places[id.0 as usize]).collect();
    Ok((batching.rebuild.finish_graph().map_err(|error| error.to_string())?, outputs))
}

impl Batching<'_> {
    fn convert_node(&mut self, node: &Node) -> Outcome<()> {
        let operands = node.inputs.iter().map(|&id| self.operand(id)).collect::<Outcome<Vec<_>>>()?;
        if operands.iter().all(|operand| operand.place.is_none()) {
            return self.rebuild.copy_node(node).map(drop).map_err(|error| error.to_string());
        }
        let output = known_extents(&self.old.values[node.outputs[0].0 as usize].ty)?;
        if operands.iter().flat_map(|operand| &operand.extents).chain(&output).any(|&extent| extent == 0) {
            return Err("it has no elements".to_owned());
        }
        let place = self.convert_operator(node, &operands, &output)?;
        self.places[node.outputs[0].0 as usize] = Some(place);
        let mut expected = output;
        expected[place.axis] *= self.batch;
        let new = self.rebuild.get(node.outputs[0]).map_err(|error| error.to_string())?;
        let found = self.rebuild.type_of(new).map_err(|error| error.to_string())?;
        let wanted = TensorType::new(self.old.values[node.outputs[0].0 as usize].ty.dtype, &expected);
        if *found == wanted { Ok(()) } else { Err(format!("it would be {found}, not {wanted}")) }
    }

    fn operand(&mut self, id: ValueId) -> Outcome<Operand> {
        let extents = known_extents(&self.old.values[id.0 as usize].ty)?;
        let new = self.rebuild.get(id).map_err(|error| error.to_string())?;
        Ok(Operand { new, extents, place: self.places[id.0 as usize] })
    }

    fn convert_operator(&mut self, node: &Node, operands: &[Operand], output: &[i64]) -> Outcome<Place> {
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
            Op::Gather(Gather { axis }) if operands[1].place.is_some() => {
                if operands[0].place.is_some() {
                    return self.convert_gather(node, operands, output, index(*axis));
                }
                let place = batch_place(&operands[1])?;
                self.emit_operator(node, node.op.clone(), operands, place.at(place.axis + index(*axis)))
            }
            op => {
                if operands[1..].iter().any(|operand| operand.place.is_some()) {
                    return Err("its parameters differ between samples".to_owned());
                }
                let place = batch_place(&operands[0])?;
                match single_step(op, place, operands)? {
                    Step::Keep(op, axis) => self.emit_operator(node, op, operands, place.at(axis)),
                    Step::Split(op, axis) => {
                        let mut inputs = new_values(operands);
                        inputs[0] = self.split_batch(node, &operands[0])?;
                        self.emit_split(node, op, &inputs, axis, output)
                    }
                }
            }
        }
    }

    /// Operators whose inputs broadcast, except for the last `matrix` dimensions.
    fn convert_broadcast(
        &mut self,
        node: &Node,
        operands: &[Operand],
        output: &[i64],
        matrix: usize,
    ) -> Outcome<Place> {
        let rank = output.len();
        let axes: Vec<usize> = operands.iter().filter_map(|operand| operand.aligned_axis(rank)).collect();
        let places: Vec<Place> = operands.iter().filter_map(|operand| operand.place).collect();
        let (axis, place) = (axes[0], places[0]);
        let are_alike = axes.iter().all(|&other| other == axis)
            && places.iter().all(|other| (other.outer, other.inner) == (place.outer, place.inner));
        let unbatched = |operand: &&Operand| operand.place.is_none();
        if are_alike && axis + matrix < rank {
            if operands.iter().filter(unbatched).all(|operand| operand.padded(rank)[axis] == 1) {
                return self.emit_operator(node, node.op.clone(), operands, place.at(axis));
            }
            if place.outer > 1 {
                let mut inputs = Vec::new();
                for operand in operands {
                    let is_repeated = operand.place.is_none() && operand.padded(rank)[axis] > 1;
                    let to = Place { axis: (axis + operand.rank()).saturating_sub(rank), ..place };
                    inputs.push(if is_repeated { self.place_operand(node, operand, to)? } else { operand.new });
                }
                return self.emit_values(node, node.op.clone(), &inputs, place.at(axis));
            }
        }
        // The batch becomes a dimension of its own at `pivot`.
        let pivot = axes.iter().copied().min().unwrap_or(0).min(rank.saturating_sub(matrix));
        let mut inputs = Vec::new();
        for operand in operands {
            let extents = operand.padded(rank);
            let batch = match operand.place {
                None => 1,
                Some(place) => {
                    let axis = place.axis + rank - operand.rank();
                    if place.outer != 1 || product(&extents[pivot..axis]) != 1 {
                        return Err("the samples lie in different dimensions of its inputs".to_owned());
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
    ) -> Outcome<Place> {
        let rank = output.len();
        let [a, b] = operands else { return Err("it does not have 2 inputs".to_owned()) };
        let rows = a.rank() - if transpose_a { 1 } else { 2 };
        let columns = b.rank() - if transpose_b { 2 } else { 1 };
        match (a.place, b.place) {
            (Some(place), None) if place.axis == rows => {
                self.emit_operator(node, node.op.clone(), operands, place.at(rank - 2))
            }
            (None, Some(place)) if place.axis == columns => {
                self.emit_operator(node, node.op.clone(), operands, place.at(rank - 1))
            }
            _ => self.convert_broadcast(node, operands, output, 2),
        }
    }

    fn convert_einsum(&mut self, node: &Node, operands: &[Operand], equation: &str) -> Outcome<Place> {
        let types: Vec<&TensorType> = node.inputs.iter().map(|id| &self.old.values[id.0 as usize].ty).collect();
        let equation = Equation::read_equation(equation, &types)?;
        let first = operands.iter().zip(&equation.operands).find_map(|(operand, letters)| {
            let place = operand.place?;
            Some((letters[place.axis], place))
        });
        let Some((letter, place)) = first else { return Err("no input has a batch".to_owned()) };
        let Some(axis) = equation.output.iter().position(|&other| other == letter) else {
            return Err("it sums over the samples".to_owned());
        };
        let mut inputs = Vec::new();
        for (operand, letters) in operands.iter().zip(&equation.operands) {
            let axes: Vec<usize> = (0..letters.len()).filter(|&axis| letters[axis] == letter).collect();
            inputs.push(match axes[..] {
                [] if operand.place.is_none() => operand.new,
                [axis] => self.place_operand(node, operand, place.at(axis))?,
                _ => return Err("the samples lie in different dimensions of its inputs".to_owned()),
            });
        }
        self.emit_values(node, node.op.clone(), &inputs, place.at(axis))
    }

    fn convert_attention(&mut self, node: &Node, operands: &[Operand]) -> Outcome<Place> {
        let place = operands.iter().find_map(|operand| operand.place).filter(|place| place.axis == 0);
        let Some(place) = place else { return Err("its first dimension does not hold the samples".to_owned()) };
        let mut inputs = Vec::new();
        for (position, operand) in operands.iter().enumerate() {
            let is_shared_mask = position == 3 && operand.place.is_none() && operand.padded(4)[0] == 1;
            if operand.rank() != 4 && !is_shared_mask {
                return Err("its mask has fewer dimensions than 4".to_owned());
            }
            inputs.push(if is_shared_mask { operand.new } else { self.place_operand(node, operand, place)? });
        }
        self.emit_values(node, node.op.clone(), &inputs, place)
    }

    fn convert_concat(&mut self, node: &Node, operands: &[Operand], output: &[i64], axis: usize) -> Outcome<Place> {
        let places: Vec<Place> = operands.iter().filter_map(|operand| operand.place).collect();
        let place = places[0];
        if axis != place.axis {
            let inputs =
                operands.iter().map(|operand| self.place_operand(node, operand, place)).collect::<Outcome<Vec<_>>>()?;
            return self.emit_values(node, node.op.clone(), &inputs, place);
        }
        if places.iter().any(|place| place.axis != axis) {
            return Err("the samples lie in different dimensions of its inputs".to_owned());
        }
        if places.iter().all(|place| place.outer == 1) {
            let mut inputs = Vec::new();
            for operand in operands {
                inputs.push(match operand.place {
                    Some(_) => self.split_batch(node, operand)?,
                    None => {
                        let apart = self.reshape(node, operand.new, insert_extent(&operand.extents, axis, 1))?;
                        self.expand(node, apart, insert_extent(&operand.extents, axis, self.batch))?
                    }
                });
            }
            return self.emit_split(node, Op::Concat(Concat { axis: axis as i64 + 1 }), &inputs, axis, output);
        }
        if places.len() < operands.len() || places.iter().any(|other| other.inner != place.inner) {
            return Err("it joins samples of different layouts".to_owned());
        }
        let outer = places.iter().map(|place| place.outer).sum();
        self.emit_operator(node, node.op.clone(), operands, Place { outer, ..place })
    }

    fn convert_by_element(&mut self, node: &Node, operands: &[Operand], output: &[i64], axis: usize) -> Outcome<Place> {
        let place = operands.iter().find_map(|operand| operand.place).ok_or("no input has a batch")?;
        if operands.iter().any(|operand| operand.extents[place.axis] != place.outer * place.inner && place.axis != axis)
        {
            return Err("its inputs differ in the extent of the batch".to_owned());
        }
        if place.axis != axis {
            let inputs =
                operands.iter().map(|operand| self.place_operand(node, operand, place)).collect::<Outcome<Vec<_>>>()?;
            return self.emit_values(node, node.op.clone(), &inputs, place);
        }
        let inputs = self.in_front(node, operands)?;
        let mut op = node.op.clone();
        if let Op::GatherElements(GatherElements { axis }) | Op::ScatterElements(ScatterElements { axis, .. }) = &mut op
        {
            *axis += 1;
        }
        self.emit_split(node, op, &inputs, 0, output)
    }

    /// Looks up indices of each sample in a table of the same sample.
    fn convert_gather(&mut self, node: &Node, operands: &[Operand], output: &[i64], axis: usize) -> Outcome<Place> {
        if axis != 0 {
            return Err(format!("it looks up indices of samples along dimension {axis} of tables of samples"));
        }
        let mut inputs = self.in_front(node, operands)?;
        let tuples = insert_extent(&insert_extent(&operands[1].extents, 0, self.batch), operands[1].rank() + 1, 1);
        inputs[1] = self.reshape(node, inputs[1], tuples)?;
        self.emit_split(node, Op::GatherNd(GatherNd { batch: 1 }), &inputs, 0, output)
    }

    fn convert_gather_nd(&mut self, node: &Node, operands: &[Operand], output: &[i64], batch: usize) -> Outcome<Place> {
        let [x, at] = operands else { return Err("it does not have 2 inputs".to_owned()) };
        let looked_up = batch + index(*at.extents.last().unwrap_or(&0));
        match (x.place, at.place) {
            (Some(place), None) if place.axis >= looked_up => {
                let axis = at.rank() - 1 + place.axis - looked_up;
                self.emit_operator(node, node.op.clone(), operands, place.at(axis))
            }
            (None, Some(place)) if batch == 0 && place.axis + 1 < at.rank() => {
                self.emit_operator(node, node.op.clone(), operands, place)
            }
            _ => {
                let inputs = self.in_front(node, operands)?;
                self.emit_split(node, Op::GatherNd(GatherNd { batch: batch as i64 + 1 }), &inputs, 0, output)
            }
        }
    }

    /// Writes into all samples at once: slices that hold all samples, or with the number of the sample as an additional
    /// index.
    fn convert_scatter_nd(&mut self, node: &Node, operands: &[Operand], output: &[i64]) -> Outcome<Place> {
        let [x, at, updates] = operands else { return Err("it does not have 3 inputs".to_owned()) };
        let looked_up = index(*at.extents.last().unwrap_or(&0));
        // The dimensions of a slice come after those of the indices in the updates, and after those looked up in `x`.
        let in_slice = match (x.place, updates.place) {
            (_, Some(place)) => (place.axis + 1).checked_sub(at.rank()).map(|axis| place.at(axis)),
            (Some(place), None) => place.axis.checked_sub(looked_up).map(|axis| place.at(axis)),
            (None, None) => None,
        };
        if let (Some(place), None) = (in_slice, at.place) {
            let to = place.at(looked_up + place.axis);
            let x = self.place_operand(node, x, to)?;
            let updates = self.place_operand(node, updates, place.at(at.rank() - 1 + place.axis))?;
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
            let whole = insert_extent(&operand.extents, 0, self.batch);
            inputs.push(match operand.place {
                None => {
                    let apart = self.reshape(node, operand.new, insert_extent(&operand.extents, 0, 1))?;
                    self.expand(node, apart, whole)?
                }
                Some(place) if place.prefix(&operand.extents) == 1 => self.reshape(node, operand.new, whole)?,
                Some(_) => return Err("the samples do not lie in the first dimension".to_owned()),
            });
        }
        Ok(inputs)
    }

    /// Returns the operand with the batch at the given place, by a view or by repetition.
    fn place_operand(&mut self, node: &Node, operand: &Operand, to: Place) -> Outcome<ValueId> {
        let extents = &operand.extents;
        let different = || "the samples lie in different dimensions of its inputs".to_owned();
        if extents.get(to.axis) != Some(&(to.outer * to.inner)) {
            return Err(different());
        }
        let mut whole = extents.clone();
        whole[to.axis] *= self.batch;
        match operand.place {
            Some(place) if place == to => Ok(operand.new),
            Some(place) if place.prefix(extents) == to.prefix(extents) => self.reshape(node, operand.new, whole),
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

    /// Returns the operand with the batch as a dimension of its own, before the rest of the dimension that holds it.
    fn split_batch(&mut self, node: &Node, operand: &Operand) -> Outcome<ValueId> {
        let place = batch_place(operand)?;
        if place.outer != 1 {
            return Err("the samples lie inside a dimension that it changes".to_owned());
        }
        self.reshape(node, operand.new, insert_extent(&operand.extents, place.axis, self.batch))
    }

    /// Adds an operator whose result has the batch as a dimension of its own, and makes the node's result a view of it.
    fn emit_split(&mut self, node: &Node, op: Op, inputs: &[ValueId], axis: usize, output: &[i64]) -> Outcome<Place> {
        let made = self.insert_operator(node, op, inputs)?;
        let found = self.rebuild.type_of(made).map_err(|error| error.to_string())?;
        if known_extents(found)? != insert_extent(output, axis, self.batch) {
            return Err(format!("it would be {found}"));
        }
        self.emit_view(node, made, product(&output[..axis]), output)
    }

    /// Makes the node's result a view of a value that has `prefix` elements before the batch.
    fn emit_view(&mut self, node: &Node, value: ValueId, prefix: i64, output: &[i64]) -> Outcome<Place> {
        let place = Place::find(output, prefix).ok_or("the samples would not lie in one dimension")?;
        let mut shape = output.to_vec();
        shape[place.axis] *= self.batch;
        self.emit_values(node, Op::Reshape(Reshape { shape }), &[value], place)
    }

    fn emit_operator(&mut self, node: &Node, op: Op, operands: &[Operand], place: Place) -> Outcome<Place> {
        self.emit_values(node, op, &new_values(operands), place)
    }

    fn emit_values(&mut self, node: &Node, op: Op, inputs: &[ValueId], place: Place) -> Outcome<Place> {
        self.rebuild.emit_operator(node, op, inputs).map_err(|error| error.to_string())?;
        Ok(place)
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

/// Operators whose first input has the batch and whose other inputs have none.
fn single_step(op: &Op, place: Place, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (place.axis, operands[0].rank());
    let mut op = op.clone();
    let step = match &mut op {
        Op::Unary(_) | Op::Clip(_) | Op::Cast(_) | Op::Identity(_) => Step::Keep(op, a),
        Op::Softmax(Softmax { axis, .. })
        | Op::LpNorm(LpNorm { axis, .. })
        | Op::CumSum(CumSum { axis, .. })
        | Op::ArgTop(ArgTop { axis, .. })
        | Op::ScaleShift(ScaleShift { axis })
        | Op::BiasAdd(BiasAdd { axis }) => {
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::ArgReduce(ArgReduce { axis, keep, .. }) => {
            let to = a - usize::from(!*keep && index(*axis) < a);
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, to)
            } else {
                Step::Keep(op, to)
            }
        }
        Op::Reduce(Reduce { axes, keep, .. }) => {
            let before = axes.iter().filter(|&&axis| index(axis) < a).count();
            let to = if *keep { a } else { a - before };
            if axes.contains(&(a as i64)) {
                axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, to)
            } else {
                Step::Keep(op, to)
            }
        }
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, .. }) => {
            if axes.contains(&(a as i64)) {
                axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::LayerNorm(LayerNorm { axis, .. }) | Op::RmsNorm(RmsNorm { axis, .. }) => match a.cmp(&index(*axis)) {
            std::cmp::Ordering::Less => Step::Keep(op, a),
            std::cmp::Ordering::Equal => {
                *axis += 1;
                Step::Split(op, a)
            }
            std::cmp::Ordering::Greater => return Err(COMBINES.to_owned()),
        },
        Op::Pool(_) | Op::GlobalPool(_) | Op::AdaptivePool(_) | Op::Resize(_) if a < 2 => Step::Keep(op, a),
        Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) | Op::GroupNorm(_) | Op::Lrn(_) if a == 0 => {
            Step::Keep(op, a)
        }
        Op::BatchNorm(_) if a != 1 => Step::Keep(op, a),
        Op::Quantize(Quantize { axis, .. })
        | Op::Dequantize(Dequantize { axis, .. })
        | Op::Requantize(Requantize { axis, .. }) => {
            let is_scalar = operands[1..].iter().all(|operand| operand.rank() == 0);
            if !is_scalar && index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::Dense(_) | Op::QDense(_) if a + 1 < rank => Step::Keep(op, a),
        Op::Dense(_) | Op::QDense(_) => Step::Split(op, a),
        _ => return movement_step(op, place, operands),
    };
    Ok(step)
}

/// Operators of one batched input that copy elements.
fn movement_step(mut op: Op, place: Place, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (place.axis, operands[0].rank());
    let step = match &mut op {
        Op::Transpose(Transpose { permutation }) => {
            let to = permutation.iter().position(|&axis| index(axis) == a).ok_or("its permutation is incomplete")?;
            Step::Keep(op, to)
        }
        Op::Slice(slice) => match slice.axes.iter().position(|&axis| index(axis) == a) {
            None => Step::Keep(op, a),
            Some(position) if place.is_whole() => {
                if slice.starts[position] == slice.stops[position] {
                    return Err("it takes no sample".to_owned());
                }
                let Slice { axes, starts, stops, steps } = slice;
                for list in [axes, starts, stops, steps] {
                    list.remove(position);
                }
                Step::Keep(op, a)
            }
            Some(_) => {
                slice.axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, a)
            }
        },
        Op::Pad(Pad { pads, .. }) | Op::BorderPad(BorderPad { pads, .. }) => {
            if (pads[a], pads[rank + a]) == (0, 0) {
                Step::Keep(op, a)
            } else {
                pads.insert(rank + a, 0);
                pads.insert(a, 0);
                Step::Split(op, a)
            }
        }
        Op::Tile(Tile { repeats }) => {
            if repeats[a] == 1 {
                Step::Keep(op, a)
            } else {
                repeats.insert(a, 1);
                Step::Split(op, a)
            }
        }
        Op::Expand(Expand { shape }) => {
            let out_rank = rank.max(shape.len());
            let to = a + out_rank - rank;
            let mut padded = vec![1; out_rank - shape.len()];
            padded.append(shape);
            *shape = padded;
            if place.is_whole() && shape[to] > 1 {
                shape.insert(to, 1);
                Step::Split(op, to)
            } else {
                shape[to] = 1;
                Step::Keep(op, to)
            }
        }
        Op::Gather(Gather { axis }) => {
            let looked_up = operands[1].rank();
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else if index(*axis) < a {
                Step::Keep(op, a + looked_up - 1)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::OneHot(OneHot { axis, .. }) => {
            let to = a + usize::from(index(*axis) <= a);
            Step::Keep(op, to)
        }
        Op::Trilu(_) if a + 2 < rank => Step::Keep(op, a),
        Op::Trilu(_) if a + 2 == rank => Step::Split(op, a),
        _ => return Err(COMBINES.to_owned()),
    };
    Ok(step)
}

/// Moves an axis behind the additional dimension at `a`.
fn shift_axis(axis: &mut i64, a: usize) {
    if index(*axis) >= a {
        *axis += 1;
    }
}

fn batch_place(operand: &Operand) -> Outcome<Place> {
    operand.place.ok_or_else(|| "its first input is the same for all samples".to_owned())
}

fn new_values(operands: &[Operand]) -> Vec<ValueId> {
    operands.iter().map(|operand| operand.new).collect()
}

fn known_extents(ty: &TensorType) -> Outcome<Vec<i64>> {
    ty.extents().ok_or_else(|| format!("{ty} has a dimension without a number"))
}

fn insert_extent(extents: &[i64], axis: usize, extent: i64) -> Vec<i64> {
    let mut longer = extents.to_vec();
    longer.insert(axis, extent);
    longer
}

fn product(extents: &[i64]) -> i64 {
    extents.iter().fold(1, |product, &extent| product.saturating_mul(extent))
}

fn index(axis: i64) -> usize {
    usize::try_from(axis).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::builder::GraphBuilder;
    use models::operators::EXAMPLES;
    use models::task::Task;
    use models::types::DType;
    use reference::Tensor;
    use std::collections::BTreeSet;

    const BATCH: i64 = 3;

    /// Random inputs; integers are below 2, because they may be indices.
    fn small_inputs(graph: &Graph, seed: u64) -> Vec<Tensor> {
        let inputs = reference::graph_inputs(graph, seed).unwrap();
        let small = |tensor: Tensor| {
            let ty = tensor.tensor_type().clone();
            if !matches!(ty.dtype, DType::I32 | DType::I64) {
                return tensor;
            }
            let numbers: Vec<f64> = tensor.to_numbers().iter().map(|number| number.rem_euclid(2.0)).collect();
            Tensor::from_numbers(ty, &numbers).unwrap()
        };
        inputs.into_iter().map(small).collect()
    }

    /// Checks that the graph of a batch computes for each sample what the graph of one sample computes.
    fn check_samples(graph: &Graph) -> Outcome<Graph> {
        let (changed, places) = batch_graph(graph, BATCH)?;
        let samples: Vec<Vec<Tensor>> = (0..BATCH as u64).map(|seed| small_inputs(graph, seed)).collect();
        let inputs: Vec<Tensor> = changed
            .inputs
            .iter()
            .enumerate()
            .map(|(input, id)| {
                let numbers: Vec<f64> = samples.iter().flat_map(|sample| sample[input].to_numbers()).collect();
                Tensor::from_numbers(changed.values[id.0 as usize].ty.clone(), &numbers).unwrap()
            })
            .collect();
        let found = reference::evaluate_graph(&changed, &inputs).unwrap();
        for (number, sample) in samples.iter().enumerate() {
            let expected = reference::evaluate_graph(graph, sample).unwrap();
            for ((expected, found), place) in expected.iter().zip(&found).zip(&places) {
                let place = place.expect("the output depends on the input");
                let rest =
                    expected.to_numbers().len() / place.prefix(&expected.tensor_type().extents().unwrap()) as usize;
                let of_sample = |chunk: &[f64]| chunk[number * rest..(number + 1) * rest].to_vec();
                let found: Vec<f64> = found.to_numbers().chunks(rest * BATCH as usize).flat_map(of_sample).collect();
                for (a, b) in found.iter().zip(expected.to_numbers()) {
                    let is_close = (a - b).abs() <= 1e-5 * b.abs().max(1.0) || a.to_bits() == b.to_bits();
                    assert!(is_close || (a.is_nan() && b.is_nan()), "{a} is not {b}:\n{}", changed.to_text());
                }
                assert_eq!(found.len(), expected.to_numbers().len());
            }
        }
        Ok(changed)
    }

    /// Builds a graph of one operator. The parameters in `batched` are computed from inputs with a first dimension of 1,
    /// which becomes part of dimension `axis`, after `outer` elements; the others are constants.
    fn operator_graph(task: &Task, batched: &[usize], axis: usize, outer: i64) -> Option<Graph> {
        let mut builder = GraphBuilder::new("one");
        let mut values = Vec::new();
        for (number, parameter) in task.parameters.iter().enumerate() {
            let extents = parameter.ty.extents()?;
            let name = format!("p{number}");
            if !batched.contains(&number) {
                let count = parameter.ty.element_count()?;
                // Positive, because variances and scales must be; indices below 2.
                let number = |index: u64| {
                    if parameter.ty.dtype.is_float() { 0.5 + (index % 7) as f64 / 4.0 } else { (index % 2) as f64 }
                };
                let data = Const::Small((0..count).map(number).collect());
                values.push(builder.add_constant(&name, parameter.ty.clone(), data).ok()?);
                continue;
            }
            if *extents.get(axis)? % outer != 0 {
                return None;
            }
            let apart = [&extents[..axis], &[outer, extents[axis] / outer], &extents[axis + 1..]].concat();
            let given = TensorType::new(parameter.ty.dtype, &insert_extent(&apart, 0, 1));
            let x = builder.add_input(&name, given).ok()?;
            let mut permutation: Vec<i64> = (1..=apart.len() as i64).collect();
            permutation.insert(axis + 1, 0);
            let x = builder.push(Op::Transpose(Transpose { permutation }), &[x]).ok()?;
            values.push(builder.push(Op::Reshape(Reshape { shape: extents }), &[x]).ok()?);
        }
        let y = builder.push(task.steps[0].op.clone(), &values).ok()?;
        builder.finish(&[y]).ok()
    }

    #[test]
    fn every_operator_computes_the_same_for_each_sample() {
        let mut converted = BTreeSet::new();
        for (name, texts) in EXAMPLES {
            for text in *texts {
                let task = Task::from_text(text).unwrap();
                for subset in 1u32..1 << task.parameters.len() {
                    let batched: Vec<usize> =
                        (0..task.parameters.len()).filter(|parameter| subset >> parameter & 1 == 1).collect();
                    for (axis, outer) in (0..4).flat_map(|axis| [(axis, 1), (axis, 2), (axis, 3)]) {
                        let graph = operator_graph(&task, &batched, axis, outer);
                        if graph.is_some_and(|graph| check_samples(&graph).is_ok()) {
                            converted.insert((*name, batched.clone()));
                        }
                    }
                }
            }
        }
        let is_missing = |name: &&str| !converted.contains(&(*name, vec![0]));
        let missing: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).filter(is_missing).collect();
        assert_eq!(missing, [""; 0]);
        for several in [
            ("Gather", vec![1]),
            ("Gather", vec![0, 1]),
            ("GatherElements", vec![0, 1]),
            ("GatherNd", vec![0, 1]),
            ("ScatterElements", vec![0, 1, 2]),
            ("ScatterNd", vec![2]),
            ("ScatterNd", vec![0, 1, 2]),
            ("Attention", vec![0, 1, 2]),
            ("Concat", vec![1]),
            ("Einsum", vec![0, 1]),
            ("MatMul", vec![0, 1]),
            ("Where", vec![0, 2]),
        ] {
            assert!(converted.contains(&several), "{several:?}");
        }
    }

    fn graph(text: &str) -> Graph {
        Graph::from_text(text).unwrap()
    }

    #[test]
    fn reshapes_expansions_and_constants_of_one_sample_follow_the_batch() {
        let changed = check_samples(&graph(
            r#"
            graph "tokens"
            input %0 "x": f32[1,3,4,4]
            constant %1 "w": f32[6,3,2,2] = random(1)
            %2 "patches": f32[1,6,2,2] = conv(%0, %1) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[2,2]
            %3 "flat": f32[1,6,4] = reshape(%2) shape=[1,6,4]
            %4 "turned": f32[1,4,6] = transpose(%3) permutation=[0,2,1]
            %12 "rows": f32[4,6] = reshape(%4) shape=[4,6]
            %5 "tokens": f32[1,4,6] = reshape(%12) shape=[1,4,6]
            constant %6 "class": f32[1,1,6] = random(2)
            %7 "all": f32[1,5,6] = concat(%6, %5) axis=1
            constant %8 "places": f32[1,5,6] = random(3)
            %9 "sum": f32[1,5,6] = binary(%7, %8) function="add"
            constant %10 "first": i64[] = list(0)
            %11 "y": f32[1,6] = gather(%9, %10) axis=1
            output %11
            "#,
        ))
        .unwrap();
        let value = |name: &str| &changed.values.iter().find(|value| value.name == name).unwrap().ty;
        assert_eq!(value("rows").extents(), Some(vec![12, 6]));
        assert_eq!(value("all").extents(), Some(vec![3, 5, 6]));
        assert_eq!(value("y").extents(), Some(vec![3, 6]));
    }

    #[test]
    fn windows_with_a_mask_keep_the_mask_of_each_window() {
        check_samples(&graph(
            r#"
            graph "windows"
            input %0 "x": f32[1,4,4,2]
            %1 "apart": f32[2,2,2,2,2] = reshape(%0) shape=[2,2,2,2,2]
            %2 "windows": f32[2,2,2,2,2] = transpose(%1) permutation=[0,2,1,3,4]
            %3 "tokens": f32[4,4,2] = reshape(%2) shape=[4,4,2]
            %4 "scores": f32[4,4,4] = mat_mul(%3, %3) transpose_a=false transpose_b=true
            constant %5 "mask": f32[4,4,4] = random(1)
            %6 "masked": f32[4,4,4] = binary(%4, %5) function="add"
            %7 "shares": f32[4,4,4] = softmax(%6) axis=2 log=false
            %8 "seen": f32[4,4,2] = mat_mul(%7, %3) transpose_a=false transpose_b=false
            output %8
            "#,
        ))
        .unwrap();
    }

    #[test]
    fn samples_that_an_operator_would_combine_are_refused() {
        let refusal = |text: &str| batch_graph(&graph(text), BATCH).unwrap_err();
        let error = refusal(
            r#"
            graph "statistics"
            input %0 "x": f32[1,2,2,2]
            %1 "turned": f32[2,1,2,2] = transpose(%0) permutation=[1,0,2,3]
            constant %2 "w": f32[2,1,1,1] = random(1)
            %3 "y": f32[2,2,2,2] = conv(%1, %2) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1]
            output %3
            "#,
        );
        assert_eq!(error, "node `y` (`conv`): it combines the samples");
        let error = refusal(
            "graph \"two\"\ninput %0 \"x\": f32[2,2]\n%1 \"y\": f32[2,2] = unary(%0) function=\"relu\"\noutput %1",
        );
        assert_eq!(error, "input `x` has no batch of 1");
    }
}
