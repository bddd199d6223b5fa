//! Constant folding: replaces operators whose inputs are all constants by constants.

use super::rebuild::Rebuild;
use crate::fold::fold_operator;
use models::error::Result;
use models::graph::{Const, Graph, ValueId};
use models::types::TensorType;

pub(super) fn fold_constants(graph: &Graph) -> Result<Option<Graph>> {
    let is_constant = |id: &ValueId| graph.values[id.0 as usize].data.is_some();
    if !graph.nodes.iter().any(|node| node.inputs.iter().all(is_constant)) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let mut constants: Vec<(TensorType, Const)> = Vec::new();
        for &input in &node.inputs {
            let input = rebuild.get(input)?;
            constants.extend(rebuild.constant_of(input));
        }
        let borrowed: Vec<(&TensorType, &Const)> = constants.iter().map(|(ty, data)| (ty, data)).collect();
        let folded = if borrowed.len() == node.inputs.len() { fold_operator(&node.op, &borrowed) } else { None };
        match folded {
            Some(data) => {
                let new = rebuild.constant_like(node.outputs[0], data)?;
                rebuild.replace_value(node.outputs[0], new);
            }
            None => drop(rebuild.copy_node(node)?),
        }
    }
    rebuild.finish_graph().map(Some)
}
