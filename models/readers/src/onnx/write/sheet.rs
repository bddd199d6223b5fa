//! The ONNX file under construction: nodes and constants so far, and the name of each value of the graph.

use crate::onnx::messages::{self, Attribute, kind};
use crate::onnx::tensor::dtype_code;
use bytes::Bytes;
use models::Graph;
use models::error::Result;
use models::graph::{Computed, Const, Node, ValueId};
use models::operators::{BiasAdd, Dequantize, Op, Requantize, Transpose};
use models::types::{DType, TensorType};
use reference::Tensor;
use std::collections::{HashMap, HashSet};

pub(super) struct Sheet<'a> {
    graph: &'a Graph,
    constants: Vec<Option<Tensor>>,
    readers: Vec<Vec<usize>>,
    names: Vec<Option<String>>,
    /// Names of constants that are written in another form than the graph's, by value and transformation.
    derived: HashMap<(ValueId, String), String>,
    nodes: Vec<messages::Node>,
    initializers: Vec<messages::Tensor>,
    taken: HashSet<String>,
    fresh: usize,
    /// Indices of nodes that are already written as part of another node.
    done: HashSet<usize>,
}

impl<'a> Sheet<'a> {
    pub fn open_sheet(graph: &'a Graph) -> Result<Sheet<'a>> {
        let mut readers = vec![Vec::new(); graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| readers[id.0 as usize].push(index));
        }
        let mut names = vec![None; graph.values.len()];
        let inputs = input_names(graph);
        let mut taken: HashSet<String> = output_names(graph).into_iter().collect();
        for (id, name) in graph.inputs.iter().zip(inputs) {
            taken.insert(name.clone());
            names[id.0 as usize] = Some(name);
        }
        Ok(Sheet {
            graph,
            constants: reference::graph_constants(graph)?,
            readers,
            names,
            derived: HashMap::new(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            taken,
            fresh: 0,
            done: HashSet::new(),
        })
    }

    pub fn ty(&self, id: ValueId) -> &'a TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    pub fn dtype(&self, id: ValueId) -> DType {
        self.ty(id).dtype
    }

    pub fn rank(&self, id: ValueId) -> usize {
        self.ty(id).rank()
    }

    pub fn extents(&self, id: ValueId) -> Vec<i64> {
        self.ty(id).extents().expect("graphs with symbols were refused")
    }

    /// Returns the name of a value in the file; writes a constant on its first use.
    pub fn value_name(&mut self, id: ValueId) -> String {
        if let Some(name) = &self.names[id.0 as usize] {
            return name.clone();
        }
        let name = match &self.graph.values[id.0 as usize].data {
            Some(Const::Computed(stored)) if matches!(stored.op, Op::Dequantize(_)) => self.write_stored(stored),
            _ => {
                let tensor = self.constants[id.0 as usize].clone();
                self.add_constant(&tensor.expect("a checked graph makes a value before it is used"))
            }
        };
        self.set_name(id, name.clone());
        name
    }

    /// Writes a quantised constant as integers and a `DequantizeLinear`, because libraries compute with the integers.
    fn write_stored(&mut self, stored: &Computed) -> String {
        let Op::Dequantize(Dequantize { axis }) = stored.op else { unreachable!("the caller passes a dequantisation") };
        let parts: Vec<String> = stored
            .inputs
            .iter()
            .map(|(ty, data)| self.add_constant(&reference::constant_tensor(ty, data).expect("it was computed once")))
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.add_node("DequantizeLinear", &parts, vec![int_attribute("axis", axis)])
    }

    pub fn value_names(&mut self, ids: &[ValueId]) -> Vec<String> {
        ids.iter().map(|id| self.value_name(*id)).collect()
    }

    pub fn set_name(&mut self, id: ValueId, name: String) {
        self.names[id.0 as usize] = Some(name);
    }

    pub fn is_done(&self, node: usize) -> bool {
        self.done.contains(&node)
    }

    /// Claims the addition of a bias along `axis` to an output that nothing else reads; returns the bias and the sum.
    pub fn take_bias(&mut self, node: &Node, axis: usize) -> Option<(ValueId, ValueId)> {
        let (reader, bias) = self.find_bias(node.outputs[0], axis)?;
        self.done.insert(reader);
        Some((bias, self.graph.nodes[reader].outputs[0]))
    }

    /// Claims the requantisation, and any bias before it, of sums that nothing else reads; returns bias and node.
    pub fn take_requantization(&mut self, sums: &Node, axis: usize) -> Option<(Option<ValueId>, &'a Node)> {
        let bias = self.find_bias(sums.outputs[0], axis);
        let biased = bias.map_or(sums.outputs[0], |(reader, _)| self.graph.nodes[reader].outputs[0]);
        let reader = self.single_reader(biased)?;
        let requantize = &self.graph.nodes[reader];
        let Op::Requantize(Requantize { to, axis: at, .. }) = requantize.op else { return None };
        let multiplier = requantize.inputs[1];
        let is_along = self.rank(multiplier) == 0 || usize::try_from(at) == Ok(axis);
        let is_same = to == self.dtype(sums.inputs[0]) && self.dtype(multiplier) == DType::F32;
        if !is_along || !is_same || !self.is_constant(multiplier) {
            return None;
        }
        self.done.extend(bias.map(|(reader, _)| reader));
        self.done.insert(reader);
        Some((bias.map(|(_, bias)| bias), requantize))
    }

    fn find_bias(&self, sums: ValueId, axis: usize) -> Option<(usize, ValueId)> {
        let reader = self.single_reader(sums)?;
        let adding = &self.graph.nodes[reader];
        let is_bias = matches!(adding.op, Op::BiasAdd(BiasAdd { axis: at }) if usize::try_from(at) == Ok(axis));
        (is_bias && self.is_constant(adding.inputs[1])).then(|| (reader, adding.inputs[1]))
    }

    /// Returns the only reader of a value, if it reads the value as its first input.
    fn single_reader(&self, id: ValueId) -> Option<usize> {
        let [reader] = self.readers[id.0 as usize][..] else { return None };
        (self.graph.nodes[reader].inputs[0] == id && !self.graph.outputs.contains(&id)).then_some(reader)
    }

    fn is_constant(&self, id: ValueId) -> bool {
        self.constants[id.0 as usize].is_some()
    }

    pub fn reshape_value(&mut self, id: ValueId, extents: &[i64]) -> String {
        if self.extents(id) == extents {
            return self.value_name(id);
        }
        let (dtype, wanted) = (self.dtype(id), extents.to_vec());
        let of_constant = |tensor: &Tensor| {
            Tensor::from_bytes(TensorType::new(dtype, &wanted), tensor.as_bytes().to_vec()).expect("as many elements")
        };
        if let Some(name) = self.derive_constant(id, format!("reshaped {extents:?}"), of_constant) {
            return name;
        }
        let name = self.value_name(id);
        self.reshape(&name, extents)
    }

    pub fn broadcast_along(&mut self, id: ValueId, axis: i64, rank: usize) -> String {
        let extents = self.extents(id);
        let axis = usize::try_from(axis).unwrap_or(0);
        // A vector along the last dimension broadcasts as it is.
        if extents.len() != 1 || axis + 1 == rank {
            return self.value_name(id);
        }
        let mut wanted = vec![1; rank - axis];
        wanted[0] = extents[0];
        self.reshape_value(id, &wanted)
    }

    pub fn transpose_value(&mut self, id: ValueId, permutation: &[i64]) -> String {
        let op = Op::Transpose(Transpose { permutation: permutation.to_vec() });
        let of_constant = |tensor: &Tensor| {
            reference::evaluate_operator(&op, std::slice::from_ref(tensor)).expect("a permutation of its dimensions")
        };
        if let Some(name) = self.derive_constant(id, format!("transposed {permutation:?}"), of_constant) {
            return name;
        }
        let name = self.value_name(id);
        self.add_node("Transpose", &[&name], vec![ints_attribute("perm", permutation)])
    }

    pub fn transpose_last(&mut self, id: ValueId) -> String {
        let rank = self.rank(id) as i64;
        let mut permutation: Vec<i64> = (0..rank).collect();
        permutation.swap(rank as usize - 1, rank as usize - 2);
        self.transpose_value(id, &permutation)
    }

    /// Writes a constant once per transformation and returns its name; None for a value computed at run time.
    fn derive_constant(&mut self, id: ValueId, how: String, make: impl Fn(&Tensor) -> Tensor) -> Option<String> {
        if let Some(name) = self.derived.get(&(id, how.clone())) {
            return Some(name.clone());
        }
        let made = make(self.constants[id.0 as usize].as_ref()?);
        let name = self.add_constant(&made);
        self.derived.insert((id, how), name.clone());
        Some(name)
    }

    pub fn add_constant(&mut self, tensor: &Tensor) -> String {
        let name = self.fresh_name();
        self.initializers.push(messages::Tensor {
            dims: tensor.tensor_type().extents().unwrap_or_default(),
            data_type: dtype_code(tensor.tensor_type().dtype),
            name: name.clone(),
            raw_data: Some(Bytes::copy_from_slice(tensor.as_bytes())),
            ..messages::Tensor::default()
        });
        name
    }

    pub fn add_integers(&mut self, numbers: &[i64]) -> String {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let ty = TensorType::new(DType::I64, &[numbers.len() as i64]);
        self.add_constant(&Tensor::from_bytes(ty, bytes).expect("as many bytes"))
    }

    pub fn add_scalar(&mut self, dtype: DType, number: f64) -> String {
        self.add_filled(dtype, &[], number)
    }

    pub fn add_filled(&mut self, dtype: DType, extents: &[i64], number: f64) -> String {
        let count = usize::try_from(extents.iter().product::<i64>()).unwrap_or(0);
        let ty = TensorType::new(dtype, extents);
        self.add_constant(&Tensor::from_numbers(ty, &vec![number; count]).expect("as many numbers"))
    }

    pub fn add_node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        let name = self.fresh_name();
        self.call_for(operator, inputs, attributes, vec![name.clone()]);
        name
    }

    pub fn call_for(&mut self, operator: &str, inputs: &[&str], attribute: Vec<Attribute>, output: Vec<String>) {
        self.nodes.push(messages::Node {
            input: inputs.iter().map(|&name| name.to_owned()).collect(),
            name: output.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default(),
            output,
            op_type: operator.to_owned(),
            attribute,
            ..messages::Node::default()
        });
    }

    pub fn reshape(&mut self, name: &str, extents: &[i64]) -> String {
        let shape = self.add_integers(extents);
        // Without `allowzero`, 0 keeps the extent of the input.
        let literal = extents.contains(&0).then(|| int_attribute("allowzero", 1));
        self.add_node("Reshape", &[name, &shape], literal.into_iter().collect())
    }

    pub fn cast(&mut self, name: &str, to: DType) -> String {
        self.add_node("Cast", &[name], vec![int_attribute("to", dtype_code(to).into())])
    }

    pub fn fresh_name(&mut self) -> String {
        loop {
            self.fresh += 1;
            let name = format!("t{}", self.fresh);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    pub fn finish_sheet(mut self) -> (Vec<messages::Node>, Vec<messages::Tensor>, Vec<String>) {
        let wanted = output_names(self.graph);
        let outputs = self.value_names(&self.graph.outputs.clone());
        let is_made: HashSet<&String> = self.nodes.iter().flat_map(|node| &node.output).collect();
        let mut renamed: HashMap<String, String> = HashMap::new();
        let mut copies = Vec::new();
        for (found, wanted) in outputs.iter().zip(&wanted) {
            // An output that is an input, a constant, or another output gets a copy.
            if is_made.contains(found) && !renamed.contains_key(found) {
                renamed.insert(found.clone(), wanted.clone());
            } else {
                copies.push((found.clone(), wanted.clone()));
            }
        }
        for (found, wanted) in copies {
            self.call_for("Identity", &[&found], Vec::new(), vec![wanted]);
        }
        for name in self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output)) {
            if let Some(wanted) = renamed.get(name) {
                name.clone_from(wanted);
            }
        }
        (self.nodes, self.initializers, wanted)
    }
}

/// Returns the names of the inputs in the file.
pub(super) fn input_names(graph: &Graph) -> Vec<String> {
    unique_names(graph, &graph.inputs, "input", HashSet::new())
}

/// Returns the names of the outputs in the file. An output that is an input has another name than that input.
pub(super) fn output_names(graph: &Graph) -> Vec<String> {
    unique_names(graph, &graph.outputs, "output", input_names(graph).into_iter().collect())
}

/// Returns a name for each value that is not taken: its own, or its kind and place.
fn unique_names(graph: &Graph, ids: &[ValueId], kind: &str, mut taken: HashSet<String>) -> Vec<String> {
    let name = |(place, id): (usize, &ValueId)| {
        let own = &graph.values[id.0 as usize].name;
        let is_free = !own.is_empty() && !taken.contains(own);
        let mut name = if is_free { own.clone() } else { format!("{kind}:{place}") };
        while !taken.insert(name.clone()) {
            name.push('\'');
        }
        name
    };
    ids.iter().enumerate().map(name).collect()
}

pub(super) fn int_attribute(name: &str, value: i64) -> Attribute {
    Attribute { name: name.to_owned(), kind: kind::INT, i: Some(value), ..Attribute::default() }
}

pub(super) fn flag_attribute(name: &str, value: bool) -> Attribute {
    int_attribute(name, value.into())
}

pub(super) fn ints_attribute(name: &str, values: &[i64]) -> Attribute {
    Attribute { name: name.to_owned(), kind: kind::INTS, ints: values.to_vec(), ..Attribute::default() }
}

pub(super) fn float_attribute(name: &str, value: f64) -> Attribute {
    Attribute { name: name.to_owned(), kind: kind::FLOAT, f: Some(value as f32), ..Attribute::default() }
}

pub(super) fn text_attribute(name: &str, value: &str) -> Attribute {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Attribute { name: name.to_owned(), kind: kind::STRING, s: Some(value), ..Attribute::default() }
}
