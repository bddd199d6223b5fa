//! Attention repeats a mask for rows, heads and batches by itself; what a file repeated before is not written out.

use super::{Look, Rebuild};
use models::error::Result;
use models::graph::{Graph, Node, ValueId};
use models::operators::{Op, Where};

pub(crate) fn masks_unexpanded(graph: &Graph) -> Result<Graph> {
    let look = Look::at(graph);
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let mask = matches!(node.op, Op::Attention(_)).then(|| node.inputs.get(3)).flatten();
        match mask.map(|&mask| smaller(&look, &mut rebuild, mask)).transpose()?.flatten() {
            Some(mask) => {
                let mut inputs = node.inputs[..3].iter().map(|&id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
                inputs.push(mask);
                rebuild.emit(node, node.op.clone(), &inputs)?;
            }
            None => drop(rebuild.copy(node)?),
        }
    }
    rebuild.finish()
}

/// The same mask before it was repeated; also where truths were repeated and then chose between two numbers.
fn smaller(look: &Look<'_>, rebuild: &mut Rebuild<'_>, mask: ValueId) -> Result<Option<ValueId>> {
    let Some(node) = look.node(mask) else { return Ok(None) };
    if let Some(inner) = expanded(look, node) {
        return rebuild.get(inner).map(Some);
    }
    let is_one_number = |&id: &ValueId| look.ty(id).elements() == Some(1) && look.ty(id).rank() <= look.ty(mask).rank();
    if node.op != Op::Where(Where {}) || !node.inputs[1..].iter().all(is_one_number) {
        return Ok(None);
    }
    let Some(condition) = look.node(node.inputs[0]).and_then(|node| expanded(look, node)) else { return Ok(None) };
    let inputs = [condition, node.inputs[1], node.inputs[2]];
    let inputs = inputs.into_iter().map(|id| rebuild.get(id)).collect::<Result<Vec<_>>>()?;
    rebuild.insert(Some(node), Op::Where(Where {}), &inputs).map(Some)
}

/// What an expansion repeats, where it adds no dimension.
fn expanded(look: &Look<'_>, node: &Node) -> Option<ValueId> {
    let [inner, outer] = [node.inputs[0], node.outputs[0]];
    let is_expansion = matches!(node.op, Op::Expand(_)) && look.ty(inner).rank() == look.ty(outer).rank();
    is_expansion.then_some(inner)
}
