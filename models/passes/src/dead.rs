//! Removes operators with unused results. Unused inputs stay, because they are part of the model's signature.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::Graph;

pub fn drop_dead_code(graph: &Graph) -> Result<Graph> {
    let mut is_used = vec![false; graph.values.len()];
    for id in &graph.outputs {
        is_used[id.0 as usize] = true;
    }
    for node in graph.nodes.iter().rev() {
        if is_used[node.outputs[0].0 as usize] {
            node.inputs.iter().for_each(|id| is_used[id.0 as usize] = true);
        }
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in graph.nodes.iter().filter(|node| is_used[node.outputs[0].0 as usize]) {
        rebuild.copy_node(node)?;
    }
    rebuild.finish_graph()
}
