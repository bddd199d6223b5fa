//! Copies a graph node by node into a new graph and maps old values to new ones; all passes use this module.

use models::builder::GraphBuilder;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::Op;
use models::types::TensorType;

pub(super) struct Rebuild<'a> {
    old: &'a Graph,
    builder: GraphBuilder,
    new_of: Vec<Option<ValueId>>,
}

impl<'a> Rebuild<'a> {
    pub(super) fn new(old: &'a Graph) -> Result<Rebuild<'a>> {
        Rebuild::with_input_types(old, &mut |id| old.values[id.0 as usize].ty.clone())
    }

    pub(super) fn with_input_types(
        old: &'a Graph,
        type_of: &mut dyn FnMut(ValueId) -> TensorType,
    ) -> Result<Rebuild<'a>> {
        let builder = GraphBuilder::new(&old.name);
        let new_of = vec![None; old.values.len()];
        let mut rebuild = Rebuild { old, builder, new_of };
        for &id in &old.inputs {
            let value = &old.values[id.0 as usize];
            let new = rebuild.builder.add_input(&value.name, type_of(id))?;
            rebuild.replace_value(id, new);
        }
        Ok(rebuild)
    }

    /// Returns the new value of an old value; a constant is copied on first use.
    pub(super) fn get(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(new) = self.new_of[id.0 as usize] {
            return Ok(new);
        }
        let data = self.old.values[id.0 as usize].data.clone();
        let new = self.constant_like(id, data.expect("a checked graph makes a value before it is used"))?;
        self.replace_value(id, new);
        Ok(new)
    }

    pub(super) fn replace_value(&mut self, old: ValueId, new: ValueId) {
        self.new_of[old.0 as usize] = Some(new);
    }

    pub(super) fn copy_node(&mut self, node: &Node) -> Result<ValueId> {
        let inputs = node.inputs.iter().map(|&id| self.get(id)).collect::<Result<Vec<_>>>()?;
        self.emit_operator(node, node.op.clone(), &inputs)
    }

    pub(super) fn emit_operator(&mut self, node: &Node, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let output = node.outputs[0];
        self.builder.set_origin(node.origin.clone());
        let new = self.builder.push_named(&self.old.values[output.0 as usize].name, op, inputs)?;
        self.replace_value(output, new);
        Ok(new)
    }

    /// Adds an operator whose result replaces no old value; it gets the origin of `node`, if given.
    pub(super) fn insert_operator(&mut self, node: Option<&Node>, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        if let Some(node) = node {
            self.builder.set_origin(node.origin.clone());
        }
        self.builder.push(op, inputs)
    }

    pub(super) fn type_of(&self, new: ValueId) -> Result<&TensorType> {
        self.builder.value_type(new)
    }

    pub(super) fn constant_like(&mut self, id: ValueId, data: Const) -> Result<ValueId> {
        let value = &self.old.values[id.0 as usize];
        self.builder.add_constant(&value.name, value.ty.clone(), data)
    }

    pub(super) fn add_constant(&mut self, name: &str, ty: TensorType, data: Const) -> Result<ValueId> {
        self.builder.add_constant(name, ty, data)
    }

    pub(super) fn constant_of(&self, new: ValueId) -> Option<(TensorType, Const)> {
        Some((self.builder.value_type(new).ok()?.clone(), self.builder.constant_data(new)?.clone()))
    }

    pub(super) fn finish_graph(mut self) -> Result<Graph> {
        let outputs = self.old.outputs.iter().map(|&id| self.get(id)).collect::<Result<Vec<_>>>()?;
        self.builder.finish(&outputs)
    }
}
