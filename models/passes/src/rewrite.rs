//! Rebuilds a graph with some nodes replaced by equivalent operators.

use super::rebuild::Rebuild;
use crate::lookup::GraphLookup;
use crate::pattern::{Match, Pattern};
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::Op;
use models::types::TensorType;

pub(super) struct Replacement {
    pub op: Op,
    pub inputs: Vec<Part>,
    /// Operators after `op`; each reads the result of the previous one, followed by these inputs.
    pub then: Vec<(Op, Vec<Part>)>,
}

#[derive(Clone)]
pub(super) enum Part {
    Value(ValueId),
    Constant(TensorType, Const),
}

impl Replacement {
    pub fn from_operator(op: Op, inputs: Vec<Part>) -> Replacement {
        Replacement { op, inputs, then: Vec::new() }
    }
}

/// A pattern, and a function that returns the replacement of its match, or None if the match has no replacement.
pub(super) type Rule = (&'static str, fn(&GraphLookup<'_>, &Node, &Match) -> Option<Replacement>);

pub(super) fn rewrite_by(graph: &Graph, rules: &[Rule]) -> Result<Option<Graph>> {
    let rules: Vec<_> = rules.iter().map(|(text, replace)| (Pattern::from_static(text), replace)).collect();
    rewrite_nodes(graph, |lookup, node| {
        rules.iter().find_map(|(pattern, replace)| replace(lookup, node, &pattern.find_in(lookup, node.outputs[0])?))
    })
}

pub(super) fn rewrite_nodes(
    graph: &Graph,
    recognise: impl Fn(&GraphLookup<'_>, &Node) -> Option<Replacement>,
) -> Result<Option<Graph>> {
    let lookup = GraphLookup::from_graph(graph);
    let found: Vec<Option<Replacement>> = graph.nodes.iter().map(|node| recognise(&lookup, node)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut rebuild = Rebuild::new(graph)?;
    for (node, found) in graph.nodes.iter().zip(found) {
        let Some(found) = found else {
            rebuild.copy_node(node)?;
            continue;
        };
        let inputs = resolve_parts(&mut rebuild, found.inputs)?;
        let mut made = rebuild.emit_operator(node, found.op, &inputs)?;
        for (op, others) in found.then {
            let mut inputs = vec![made];
            inputs.extend(resolve_parts(&mut rebuild, others)?);
            made = rebuild.emit_operator(node, op, &inputs)?;
        }
    }
    rebuild.finish_graph().map(Some)
}

fn resolve_parts(rebuild: &mut Rebuild<'_>, parts: Vec<Part>) -> Result<Vec<ValueId>> {
    let parts = parts.into_iter().map(|part| match part {
        Part::Value(id) => rebuild.get(id),
        Part::Constant(ty, data) => rebuild.add_constant("constant", ty, data),
    });
    parts.collect()
}
