//! Drops operators without effect: identities, casts to the same type, reshapes to the same shape, empty pads.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::{Graph, Node, ValueId};
use models::types::TensorType;

pub(super) fn drop_identities(graph: &Graph) -> Result<Option<Graph>> {
    if !graph.nodes.iter().any(|node| changes_nothing(graph, node)) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        if changes_nothing(graph, node) {
            let input = rebuild.get(node.inputs[0])?;
            rebuild.replace_value(node.outputs[0], input);
        } else {
            rebuild.copy_node(node)?;
        }
    }
    rebuild.finish_graph().map(Some)
}

fn changes_nothing(graph: &Graph, node: &Node) -> bool {
    let ty = |id: &ValueId| &graph.values[id.0 as usize].ty;
    let inputs: Vec<&TensorType> = node.inputs.iter().map(ty).collect();
    node.op.changes_nothing(&inputs, ty(&node.outputs[0]))
}
