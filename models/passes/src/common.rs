//! Common-subexpression elimination: merges equal operators, and constants with equal contents.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::{Graph, ValueId};
use std::collections::HashMap;

pub(super) fn share_common_subexpressions(graph: &Graph) -> Result<Option<Graph>> {
    let constants = graph.values.iter().filter(|value| value.data.is_some()).count();
    if graph.nodes.len() < 2 && constants < 2 {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    let mut constants: HashMap<String, ValueId> = HashMap::new();
    let mut results: HashMap<(String, Vec<ValueId>), ValueId> = HashMap::new();
    for node in &graph.nodes {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &id in &node.inputs {
            let value = &graph.values[id.0 as usize];
            if let Some(data) = &value.data {
                let key = format!("{} {data:?}", value.ty);
                let shared = constants.get(&key).copied().map_or_else(|| rebuild.get(id), Ok)?;
                constants.insert(key, shared);
                rebuild.replace_value(id, shared);
            }
            inputs.push(rebuild.get(id)?);
        }
        let key = (format!("{:?}", node.op), inputs);
        match results.get(&key) {
            Some(&shared) => rebuild.replace_value(node.outputs[0], shared),
            None => {
                let output = rebuild.copy_node(node)?;
                results.insert(key, output);
            }
        }
    }
    rebuild.finish_graph().map(Some)
}
