//! Drops operators and constants without use. Unused inputs stay, because they are part of the model's signature.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::Graph;

pub fn drop_dead_code(graph: &Graph) -> Result<Option<Graph>> {
    let mut is_used = vec![false; graph.values.len()];
    for id in &graph.outputs {
        is_used[id.0 as usize] = true;
    }
    for node in graph.nodes.iter().rev() {
        if is_used[node.outputs[0].0 as usize] {
            node.inputs.iter().for_each(|id| is_used[id.0 as usize] = true);
        }
    }
    if equals_copy(graph) && graph.nodes.iter().all(|node| is_used[node.outputs[0].0 as usize]) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for node in graph.nodes.iter().filter(|node| is_used[node.outputs[0].0 as usize]) {
        rebuild.copy_node(node)?;
    }
    rebuild.finish_graph().map(Some)
}

/// Returns whether a copy of all nodes would number the values in the same way: inputs first, each constant at its first
/// use, and no other values.
fn equals_copy(graph: &Graph) -> bool {
    let of_nodes = graph.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
    let mut counted = 0;
    for id in graph.inputs.iter().chain(of_nodes).chain(&graph.outputs) {
        let place = id.0 as usize;
        if place > counted {
            return false;
        }
        counted = counted.max(place + 1);
    }
    counted == graph.values.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::builder::GraphBuilder;
    use models::graph::Const;
    use models::operators::{Dense, Op, Unary, UnaryOp};
    use models::types::TensorType;

    #[test]
    fn only_a_graph_with_something_unused_is_copied() {
        let relu = || Op::Unary(Unary { function: UnaryOp::Relu });
        let ty = TensorType::f32(&[2, 2]);
        // Each case: a constant that nothing uses before or behind the used one, and an operator that nothing reads.
        for (unused_before, unused_behind, unread) in
            [(false, false, false), (true, false, false), (false, true, false), (false, false, true)]
        {
            let mut builder = GraphBuilder::new("dense");
            let x = builder.add_input("x", ty.clone()).unwrap();
            let mut constant = |name| builder.add_constant(name, ty.clone(), Const::Fill(1.0)).unwrap();
            if unused_before {
                constant("unused");
            }
            let w = constant("w");
            if unused_behind {
                constant("unused");
            }
            let y = builder.push(Op::Dense(Dense {}), &[x, w]).unwrap();
            if unread {
                builder.push(relu(), &[y]).unwrap();
            }
            let graph = builder.finish(&[y]).unwrap();
            let after = drop_dead_code(&graph).unwrap();
            assert_eq!(after.is_some(), unused_before || unused_behind || unread);
            let after = after.unwrap_or(graph);
            assert_eq!((after.values.len(), after.nodes.len()), (3, 1));
        }
    }
}
