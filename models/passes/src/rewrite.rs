//! Rebuilds a graph with some of its nodes replaced by what computes the same.

use super::rebuild::Rebuild;
use crate::look::Look;
use crate::pattern::{Match, Pattern};
use models::error::Result;
use models::graph::{Const, Graph, Node, ValueId};
use models::operators::Op;
use models::types::TensorType;

/// What computes the same as a node.
pub(super) struct Replacement {
    pub op: Op,
    pub inputs: Vec<Part>,
    /// What is done to the result, each over the one before and other inputs.
    pub then: Vec<(Op, Vec<Part>)>,
}

/// An input of a replacement.
#[derive(Clone)]
pub(super) enum Part {
    Old(ValueId),
    Made(TensorType, Const),
}

impl Replacement {
    pub fn of(op: Op, inputs: Vec<Part>) -> Replacement {
        Replacement { op, inputs, then: Vec::new() }
    }
}

/// A pattern and what its matches become; nothing where the match does not hold after all.
pub(super) type Rule = (&'static str, fn(&Look<'_>, &Node, &Match) -> Option<Replacement>);

/// Rebuilds a graph by the first of these rules that finds something at each node.
pub(super) fn rewrite_by(graph: &Graph, rules: &[Rule]) -> Result<Graph> {
    let rules: Vec<_> = rules.iter().map(|(text, replace)| (Pattern::fixed(text), replace)).collect();
    rewrite(graph, |look, node| {
        rules.iter().find_map(|(pattern, replace)| replace(look, node, &pattern.find_in(look, node.outputs[0])?))
    })
}

/// Rebuilds a graph with every node replaced for which there is a replacement.
pub(super) fn rewrite(graph: &Graph, recognise: impl Fn(&Look<'_>, &Node) -> Option<Replacement>) -> Result<Graph> {
    let look = Look::at(graph);
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        let Some(found) = recognise(&look, node) else {
            rebuild.copy(node)?;
            continue;
        };
        let inputs = ids(&mut rebuild, found.inputs)?;
        let mut made = rebuild.emit(node, found.op, &inputs)?;
        for (op, others) in found.then {
            let mut inputs = vec![made];
            inputs.extend(ids(&mut rebuild, others)?);
            made = rebuild.emit(node, op, &inputs)?;
        }
    }
    rebuild.finish()
}

fn ids(rebuild: &mut Rebuild<'_>, parts: Vec<Part>) -> Result<Vec<ValueId>> {
    let parts = parts.into_iter().map(|part| match part {
        Part::Old(id) => rebuild.get(id),
        Part::Made(ty, data) => rebuild.constant("constant", ty, data),
    });
    parts.collect()
}
