//! Drops operators that change nothing: identities, casts to the same type, reshapes to the same shape, empty pads.

use super::rebuild::Rebuild;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::operator::Op;

pub(super) fn drop_identities(graph: &Graph) -> Result<Graph> {
    let mut rebuild = Rebuild::new(graph)?;
    for node in &graph.nodes {
        if changes_nothing(graph, node) {
            let input = rebuild.get(node.inputs[0])?;
            rebuild.replace(node.outputs[0], input);
        } else {
            rebuild.copy(node)?;
        }
    }
    rebuild.finish()
}

fn changes_nothing(graph: &Graph, node: &Node) -> bool {
    let ty = |id: crate::graph::ValueId| &graph.values[id.0 as usize].ty;
    let keeps_type = || ty(node.inputs[0]) == ty(node.outputs[0]);
    match &node.op {
        Op::Identity => true,
        Op::Cast { .. } | Op::Reshape { .. } | Op::Flatten { .. } | Op::Pad { .. } | Op::Slice { .. } => keeps_type(),
        // At the same extents every mode reads each element where it is.
        Op::Resize { .. } => keeps_type(),
        Op::Transpose { permutation } => permutation.iter().zip(0..).all(|(&axis, index)| axis == index),
        Op::Concat { .. } => node.inputs.len() == 1,
        Op::Conv { .. }
        | Op::ConvTranspose { .. }
        | Op::MatMul { .. }
        | Op::Dense
        | Op::BatchNorm { .. }
        | Op::ScaleShift { .. }
        | Op::LayerNorm { .. }
        | Op::Softmax { .. }
        | Op::Pool { .. }
        | Op::GlobalPool { .. }
        | Op::BiasAdd { .. }
        | Op::Unary { .. }
        | Op::Clip { .. }
        | Op::Binary { .. } => false,
    }
}
