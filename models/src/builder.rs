//! Builds a graph operator by operator. Readers, the zoo and passes create graphs only through this builder. Each
//! output type is inferred as soon as the operator is added, so a mistake is reported where it is made.

use crate::error::{Error, Result};
use crate::graph::{Const, Graph, Node, Origin, Value, ValueId};
use crate::infer::infer_type;
use crate::operators::Op;
use crate::types::TensorType;

/// Builds a graph operator by operator.
pub struct GraphBuilder {
    graph: Graph,
    origin: Origin,
}

impl GraphBuilder {
    /// Creates a builder with an empty graph.
    pub fn new(name: &str) -> GraphBuilder {
        let graph = Graph { name: name.to_owned(), values: vec![], nodes: vec![], inputs: vec![], outputs: vec![] };
        GraphBuilder { graph, origin: Origin::default() }
    }

    /// Adds an input: a tensor that the caller provides at every run.
    pub fn add_input(&mut self, name: &str, ty: TensorType) -> Result<ValueId> {
        let id = self.add_value(name, ty, None)?;
        self.graph.inputs.push(id);
        Ok(id)
    }

    /// Adds a constant of the model.
    pub fn add_constant(&mut self, name: &str, ty: TensorType, data: Const) -> Result<ValueId> {
        self.add_value(name, ty, Some(data))
    }

    /// Sets the source location of all operators that are added after this call.
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Sets the scope, without a source operator, of all operators that are added after this call.
    pub fn set_scope(&mut self, scope: &str) {
        self.set_origin(Origin { source_op: String::new(), scope: scope.to_owned() });
    }

    /// Adds an operator. The name of its output consists of the current scope and the operator's name.
    pub fn push(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let scope = if self.origin.scope.is_empty() { "" } else { "." };
        let name = format!("{}{scope}{}", self.origin.scope, op.name());
        self.push_named(&name, op, inputs)
    }

    /// Adds an operator and gives its output this name, usually that in the source file.
    pub fn push_named(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let types = inputs.iter().map(|&id| self.value_type(id)).collect::<Result<Vec<_>>>()?;
        let op = op.with_front_axis(types.first().map_or(0, |ty| ty.rank()));
        let output = infer_type(&op, &types)?;
        let id = self.add_value(name, output, None)?;
        let origin = self.origin.clone();
        self.graph.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: vec![id], origin });
        Ok(id)
    }

    /// Returns the type of an existing value.
    pub fn value_type(&self, id: ValueId) -> Result<&TensorType> {
        self.graph.value(id).map(|value| &value.ty).ok_or_else(|| Error::Graph {
            graph: self.graph.name.clone(),
            place: format!("node {}", self.graph.nodes.len()),
            reason: format!("value {} does not belong to this graph", id.0),
        })
    }

    /// Returns the contents of a value, or None if the value is not a constant.
    pub fn constant_data(&self, id: ValueId) -> Option<&Const> {
        self.graph.value(id)?.data.as_ref()
    }

    /// Returns the id that the next added value will have.
    pub fn next_id(&self) -> ValueId {
        ValueId(u32::try_from(self.graph.values.len()).unwrap_or(u32::MAX))
    }

    /// Returns whether a value is an input or a constant, which no operator produces.
    pub fn is_source(&self, id: ValueId) -> bool {
        self.constant_data(id).is_some() || self.is_input(id)
    }

    /// Changes the name of a value, usually to that in the source file.
    pub fn rename_value(&mut self, id: ValueId, name: &str) {
        if let Some(value) = self.graph.values.get_mut(id.0 as usize) {
            name.clone_into(&mut value.name);
        }
    }

    /// Returns the name of an existing value.
    pub fn value_name(&self, id: ValueId) -> Option<&str> {
        self.graph.value(id).map(|value| value.name.as_str())
    }

    /// Returns whether a value is an input of the graph.
    pub fn is_input(&self, id: ValueId) -> bool {
        self.graph.inputs.contains(&id)
    }

    /// Checks and returns the graph.
    pub fn finish(mut self, outputs: &[ValueId]) -> Result<Graph> {
        self.graph.outputs = outputs.to_vec();
        self.graph.check_default()?;
        Ok(self.graph)
    }

    fn add_value(&mut self, name: &str, ty: TensorType, data: Option<Const>) -> Result<ValueId> {
        let id = u32::try_from(self.graph.values.len()).map_err(|_| Error::Graph {
            graph: self.graph.name.clone(),
            place: format!("value `{name}`"),
            reason: "the number of values exceeds 32 bits".to_owned(),
        })?;
        self.graph.values.push(Value { name: name.to_owned(), ty, data });
        Ok(ValueId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{Softmax, Unary, UnaryOp};

    #[test]
    fn axes_are_stored_from_the_front() {
        let mut builder = GraphBuilder::new("one");
        let x = builder.add_input("x", TensorType::f32(&[2, 3])).unwrap();
        let y = builder.push(Op::Softmax(Softmax { axis: -1, log: false }), &[x]).unwrap();
        let graph = builder.finish(&[y]).unwrap();
        assert_eq!(graph.nodes[0].op, Op::Softmax(Softmax { axis: 1, log: false }));
    }

    #[test]
    fn a_value_of_another_graph_is_an_error() {
        let mut builder = GraphBuilder::new("one");
        let error = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[ValueId(7)]).unwrap_err();
        assert_eq!(error.to_string(), "graph `one`, node 0: value 7 does not belong to this graph");
    }
}
