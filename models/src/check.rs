//! Checks the invariants of a graph, after each reader and each pass. The invariants are topological order, one
//! producer per value, stored types equal to inferred ones, and size limits. So code that handles a checked graph can
//! index without checks and add sizes without overflow.

use crate::error::{Error, Result};
use crate::graph::{Computed, Const, Graph, Node, Value, ValueId};
use crate::infer::infer_type;
use crate::shapes::check_type;
use crate::types::{Dim, TensorType, is_identifier};

/// Maximum number of operators and leaf constants in one computed constant.
pub const MAX_COMPUTED: usize = 64;

/// Size limits of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphLimits {
    /// Maximum size of one tensor in bytes.
    pub tensor_bytes: u64,
    /// Maximum number of operators.
    pub nodes: usize,
}

impl Default for GraphLimits {
    fn default() -> GraphLimits {
        GraphLimits { tensor_bytes: 4 << 30, nodes: 1 << 20 }
    }
}

impl Graph {
    /// Checks all invariants, with the default limits.
    pub fn check_default(&self) -> Result<()> {
        self.check_within(&GraphLimits::default())
    }

    /// Checks all invariants, with the given limits.
    pub fn check_within(&self, limits: &GraphLimits) -> Result<()> {
        if self.nodes.len() > limits.nodes {
            let reason = format!("{} operators exceed the limit of {}", self.nodes.len(), limits.nodes);
            return Err(self.graph_error("size".to_owned(), reason));
        }
        let mut made = vec![false; self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            check_value(value, limits)
                .map_err(|reason| self.graph_error(format!("value {index} `{}`", value.name), reason))?;
            made[index] = value.data.is_some();
        }
        for &id in &self.inputs {
            self.mark_made(id, &mut made).map_err(|reason| self.graph_error("inputs".to_owned(), reason))?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            self.check_node(node, &mut made).map_err(|reason| {
                let scope = &node.origin.scope;
                self.graph_error(
                    format!("node {index} `{}`{}{scope}", node.op.name(), space_unless_empty(scope)),
                    reason,
                )
            })?;
        }
        if let Some(index) = made.iter().position(|made| !made) {
            let place = format!("value {index} `{}`", self.values[index].name);
            return Err(self.graph_error(place, "not defined by any input, constant or operator".to_owned()));
        }
        for id in &self.outputs {
            if self.value(*id).is_none() {
                return Err(self.graph_error("outputs".to_owned(), format!("there is no value {}", id.0)));
            }
        }
        Ok(())
    }

    fn check_node(&self, node: &Node, made: &mut [bool]) -> Result<(), String> {
        let mut types = Vec::with_capacity(node.inputs.len());
        for id in &node.inputs {
            let value = self.value(*id).ok_or_else(|| format!("there is no value {}", id.0))?;
            if !made[id.0 as usize] {
                return Err(format!("uses value {} `{}` before it is defined", id.0, value.name));
            }
            types.push(&value.ty);
        }
        let inferred = infer_type(&node.op, &types).map_err(|error| error.to_string())?;
        let [output] = node.outputs.as_slice() else {
            return Err(format!("has {} outputs, must have 1", node.outputs.len()));
        };
        self.mark_made(*output, made)?;
        let stored = &self.values[output.0 as usize].ty;
        if *stored != inferred {
            return Err(format!("the output is stored as {stored}, but the shape rule gives {inferred}"));
        }
        Ok(())
    }

    fn mark_made(&self, id: ValueId, made: &mut [bool]) -> Result<(), String> {
        let slot = made.get_mut(id.0 as usize).ok_or_else(|| format!("there is no value {}", id.0))?;
        if std::mem::replace(slot, true) {
            return Err(format!("value {} `{}` is defined twice", id.0, self.values[id.0 as usize].name));
        }
        Ok(())
    }

    fn graph_error(&self, place: String, reason: String) -> Error {
        Error::Graph { graph: self.name.clone(), place, reason }
    }
}

fn check_value(value: &Value, limits: &GraphLimits) -> Result<(), String> {
    let ty = &value.ty;
    check_type(ty)?;
    for dim in &ty.shape {
        if let Dim::Symbol(name) = dim
            && !is_identifier(name)
        {
            return Err(format!(
                "the dimension symbol `{name}` must consist of letters, digits and `_` and begin with a letter"
            ));
        }
    }
    if ty.size_bytes().is_some_and(|bytes| bytes > limits.tensor_bytes) {
        return Err(format!("{ty} is larger than the limit of {} bytes", limits.tensor_bytes));
    }
    value.data.as_ref().map_or(Ok(()), |data| check_const(ty, data))
}

fn check_const(ty: &TensorType, data: &Const) -> Result<(), String> {
    if data.part_count() > MAX_COMPUTED {
        return Err(format!("the constant is computed by more than {MAX_COMPUTED} operators"));
    }
    match data {
        Const::Random { .. } | Const::Fill(_) => Ok(()),
        Const::Small(numbers) if ty.element_count() == Some(numbers.len() as u64) => Ok(()),
        Const::Small(numbers) => Err(format!("data of {} numbers does not fit {ty}", numbers.len())),
        Const::Bytes(contents) if ty.size_bytes() == Some(contents.as_bytes().len() as u64) => Ok(()),
        Const::Bytes(contents) => Err(format!("data of {} bytes does not fit {ty}", contents.as_bytes().len())),
        Const::File { length, .. } if ty.size_bytes() == Some(*length) => Ok(()),
        Const::File { path, length, .. } => {
            Err(format!("{length} bytes of the file `{}` do not fit {ty}", path.display()))
        }
        Const::Computed(computed) => check_computed(ty, computed),
    }
}

/// Checks the types of a computed constant recursively. The limit on its operators bounds the recursion.
fn check_computed(ty: &TensorType, computed: &Computed) -> Result<(), String> {
    for (ty, data) in &computed.inputs {
        check_const(ty, data)?;
    }
    let types: Vec<&TensorType> = computed.inputs.iter().map(|(ty, _)| ty).collect();
    let inferred = infer_type(&computed.op, &types).map_err(|error| error.to_string())?;
    if inferred == *ty { Ok(()) } else { Err(format!("computed data of type {inferred} does not fit {ty}")) }
}

fn space_unless_empty(text: &str) -> &'static str {
    if text.is_empty() { "" } else { " at " }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use crate::operators::{Binary, BinaryOp, Op, Unary, UnaryOp};

    fn two_nodes() -> Graph {
        let mut builder = GraphBuilder::new("two");
        let x = builder.add_input("x", TensorType::f32(&[4])).unwrap();
        let y = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[x]).unwrap();
        let z = builder.push(Op::Binary(Binary { function: BinaryOp::Add }), &[x, y]).unwrap();
        builder.finish(&[z]).unwrap()
    }

    #[track_caller]
    fn check_refused(break_it: impl FnOnce(&mut Graph), says: &str) {
        let mut graph = two_nodes();
        break_it(&mut graph);
        let error = graph.check_default().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn broken_graphs_are_refused() {
        check_refused(|graph| graph.nodes.swap(0, 1), "uses value 1 `relu` before it is defined");
        check_refused(|graph| graph.nodes[1].outputs = vec![ValueId(1)], "value 1 `relu` is defined twice");
        check_refused(|graph| graph.nodes[1].inputs[1] = ValueId(9), "there is no value 9");
        check_refused(|graph| graph.outputs[0] = ValueId(9), "there is no value 9");
        check_refused(
            |graph| graph.values[2].ty = TensorType::f32(&[5]),
            "stored as f32[5], but the shape rule gives f32[4]",
        );
        check_refused(|graph| graph.values[0].ty = TensorType::f32(&[-4]), "negative extent -4");
        check_refused(|graph| graph.values[0].ty = TensorType::f32(&[1 << 31]), "larger than the limit");
        check_refused(|graph| graph.values[0].ty.shape[0] = Dim::Symbol("a,b".to_owned()), "dimension symbol `a,b`");
        check_refused(|graph| graph.nodes.truncate(1), "not defined by any input, constant or operator");
        check_refused(|graph| graph.nodes[1].inputs.truncate(1), "takes 2 inputs, got 1");
        check_refused(|graph| graph.nodes[1].outputs.clear(), "has 0 outputs");
    }

    #[test]
    fn limits_hold() {
        let limits = GraphLimits { nodes: 1, ..GraphLimits::default() };
        let error = two_nodes().check_within(&limits).unwrap_err().to_string();
        assert!(error.contains("2 operators exceed the limit of 1"), "{error}");
    }
}
