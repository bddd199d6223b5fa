//! Removes explicit repetition of attention masks: the attention operator repeats a mask for rows, heads and batches.

use super::{GraphLookup, Rebuild};
use models::error::Result;
use models::graph::{Graph, Node, ValueId};
use models::operators::{Op, Where};

pub(crate) fn masks_unexpanded(graph: &Graph) -> Result<Option<Graph>> {
    if !graph.nodes.iter().any(|node| matches!(node.op, Op::Attention(_)) && node.inputs.len() > 3) {
        return Ok(None);
    }
    let lookup = GraphLookup::from_graph(graph);
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let mask = matches!(node.op, Op::Attention(_)).then(|| node.inputs.get(3)).flatten();
        match mask.map(|&mask| unexpanded_mask(&lookup, &mut rebuild, mask)).transpose()?.flatten() {
            Some(mask) => {
                let mut inputs = node.inputs[..3].iter().map(|&id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
                inputs.push(mask);
                rebuild.emit_operator(node, node.op.clone(), &inputs)?;
            }
            None => drop(rebuild.copy_node(node)?),
        }
    }
    rebuild.finish_graph().map(Some)
}

/// Returns the mask before its repetition, also of a selection by a repeated condition; None if not repeated.
fn unexpanded_mask(lookup: &GraphLookup<'_>, rebuild: &mut Rebuild<'_>, mask: ValueId) -> Result<Option<ValueId>> {
    let Some(node) = lookup.producer_of(mask) else { return Ok(None) };
    if let Some(inner) = expansion_input(lookup, node) {
        return rebuild.get(inner).map(Some);
    }
    let is_one_number = |&id: &ValueId| {
        lookup.value_type(id).element_count() == Some(1)
            && lookup.value_type(id).rank() <= lookup.value_type(mask).rank()
    };
    if node.op != Op::Where(Where {}) || !node.inputs[1..].iter().all(is_one_number) {
        return Ok(None);
    }
    let Some(condition) = lookup.producer_of(node.inputs[0]).and_then(|node| expansion_input(lookup, node)) else {
        return Ok(None);
    };
    let inputs = [condition, node.inputs[1], node.inputs[2]];
    let inputs = inputs.into_iter().map(|id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
    rebuild.insert_operator(Some(node), Op::Where(Where {}), &inputs).map(Some)
}

fn expansion_input(lookup: &GraphLookup<'_>, node: &Node) -> Option<ValueId> {
    let [inner, outer] = [node.inputs[0], node.outputs[0]];
    let is_expansion =
        matches!(node.op, Op::Expand(_)) && lookup.value_type(inner).rank() == lookup.value_type(outer).rank();
    is_expansion.then_some(inner)
}
