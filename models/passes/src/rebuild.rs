//! The loop all passes share: walk the old graph in order and build the new one, remembering what became of each value.

use models::builder::GraphBuilder;
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::Op;
use models::types::TensorType;

/// A new graph on its way out of an old one. Constants come along when they are first used.
pub(super) struct Rebuild<'a> {
    old: &'a Graph,
    builder: GraphBuilder,
    new_of: Vec<Option<ValueId>>,
}

impl<'a> Rebuild<'a> {
    pub(super) fn new(old: &'a Graph) -> Result<Rebuild<'a>> {
        let builder = GraphBuilder::new(&old.name);
        let new_of = vec![None; old.values.len()];
        let mut rebuild = Rebuild { old, builder, new_of };
        for &id in &old.inputs {
            let value = &old.values[id.0 as usize];
            let new = rebuild.builder.input(&value.name, value.ty.clone())?;
            rebuild.replace(id, new);
        }
        Ok(rebuild)
    }

    /// What an old value has become. The old graph is in order, so only constants can be missing.
    pub(super) fn get(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(new) = self.new_of[id.0 as usize] {
            return Ok(new);
        }
        let data = self.old.values[id.0 as usize].data.clone();
        let new = self.constant_like(id, data.expect("a checked graph makes a value before it is used"))?;
        self.replace(id, new);
        Ok(new)
    }

    /// Uses of the old value now mean the new one.
    pub(super) fn replace(&mut self, old: ValueId, new: ValueId) {
        self.new_of[old.0 as usize] = Some(new);
    }

    /// The node as it was, over what its inputs have become.
    pub(super) fn copy(&mut self, node: &Node) -> Result<ValueId> {
        let inputs = node.inputs.iter().map(|&id| self.get(id)).collect::<Result<Vec<_>>>()?;
        self.emit(node, node.op.clone(), &inputs)
    }

    /// Another operator in the place of a node.
    pub(super) fn emit(&mut self, node: &Node, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        let output = node.outputs[0];
        self.builder.set_origin(node.origin.clone());
        let new = self.builder.push_named(&self.old.values[output.0 as usize].name, op, inputs)?;
        self.replace(output, new);
        Ok(new)
    }

    /// An operator before those of a node.
    pub(super) fn insert(&mut self, node: Option<&Node>, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        if let Some(node) = node {
            self.builder.set_origin(node.origin.clone());
        }
        self.builder.push(op, inputs)
    }

    pub(super) fn ty(&self, new: ValueId) -> Result<&TensorType> {
        self.builder.ty(new)
    }

    /// A constant of the type of an old value with other contents.
    pub(super) fn constant_like(&mut self, id: ValueId, data: Const) -> Result<ValueId> {
        let value = &self.old.values[id.0 as usize];
        self.builder.constant(&value.name, value.ty.clone(), data)
    }

    /// A constant that the old graph does not have.
    pub(super) fn constant(&mut self, name: &str, ty: TensorType, data: Const) -> Result<ValueId> {
        self.builder.constant(name, ty, data)
    }

    /// Type and contents of a new value that is a constant.
    pub(super) fn constant_of(&self, new: ValueId) -> Option<(TensorType, Const)> {
        Some((self.builder.ty(new).ok()?.clone(), self.builder.data(new)?.clone()))
    }

    pub(super) fn finish(mut self) -> Result<Graph> {
        let outputs = self.old.outputs.iter().map(|&id| self.get(id)).collect::<Result<Vec<_>>>()?;
        self.builder.finish(&outputs)
    }
}
