//! Drops operators that change nothing: identities, casts to the same type, reshapes to the same shape, empty pads.

use super::rebuild::Rebuild;
use models::error::Result;
use models::graph::{Graph, Node};
use models::operator::Op;

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
    let ty = |id: models::graph::ValueId| &graph.values[id.0 as usize].ty;
    let keeps_type = || ty(node.inputs[0]) == ty(node.outputs[0]);
    match &node.op {
        Op::Identity => true,
        Op::Cast { .. } | Op::Reshape { .. } | Op::Flatten { .. } | Op::Pad { .. } => keeps_type(),
        Op::Slice { steps, .. } => keeps_type() && steps.iter().all(|&step| step > 0),
        Op::Expand { .. } | Op::Tile { .. } | Op::BorderPad { .. } => keeps_type(),
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
        | Op::Binary { .. }
        | Op::Einsum { .. }
        | Op::Attention { .. }
        | Op::QConv { .. }
        | Op::QDense { .. }
        | Op::QMatMul { .. }
        | Op::RmsNorm { .. }
        | Op::GroupNorm { .. }
        | Op::MeanVarianceNorm { .. }
        | Op::LpNorm { .. }
        | Op::Lrn { .. }
        | Op::AdaptivePool { .. }
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ArgTop { .. }
        | Op::CumSum { .. }
        | Op::Compare { .. }
        | Op::Where
        | Op::PRelu
        | Op::Quantize { .. }
        | Op::Dequantize { .. }
        | Op::Requantize { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::ScatterElements { .. }
        | Op::ScatterNd { .. }
        | Op::OneHot { .. }
        | Op::Trilu { .. }
        | Op::Rope { .. } => false,
    }
}
