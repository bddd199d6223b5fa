//! Recognises operators around contractions: transposed weights, biases as sums, separate pads, spatial means.

use super::{Part, Replacement, rewrite_nodes};
use crate::fold::fold_operator;
use crate::quantised::join_pads;
use models::error::Result;
use models::graph::{Const, Graph};
use models::operators::{
    BiasAdd, BinaryOp, Conv, Dense, Flatten, GlobalPool, MatMul, Op, Pad, PoolMode, QDense, QMatMul, Reduce, ReduceOp,
    Transpose,
};
use models::types::{Dim, TensorType};

pub(crate) fn mat_mul_to_dense(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let (dense, transpose_b) = match node.op {
            Op::MatMul(MatMul { transpose_a: false, transpose_b }) => (Op::Dense(Dense {}), transpose_b),
            Op::QMatMul(QMatMul { a_zero, b_zero }) => (Op::QDense(QDense { x_zero: a_zero, w_zero: b_zero }), false),
            _ => return None,
        };
        let (x, w) = (node.inputs[0], node.inputs[1]);
        let (ty, data) = (lookup.value_type(w), lookup.constant_data(w)?);
        let [k, n] = ty.shape.as_slice() else { return None };
        if transpose_b {
            return Some(Replacement::from_operator(dense, vec![Part::Value(x), Part::Value(w)]));
        }
        let transposed = match data {
            // Random contents stay random, because any values will do.
            Const::Random { seed } => Const::Random { seed: *seed },
            data => fold_operator(&Op::Transpose(Transpose { permutation: vec![1, 0] }), &[(ty, data)])?,
        };
        let ty = TensorType { dtype: ty.dtype, shape: vec![n.clone(), k.clone()] };
        Some(Replacement::from_operator(dense, vec![Part::Value(x), Part::Constant(ty, transposed)]))
    })
}

pub(crate) fn sums_to_biases(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        lookup.operand_orders(node.outputs[0], BinaryOp::Add).find_map(|(x, vector)| {
            let ty = lookup.value_type(x);
            let axis = match lookup.producer_of(x)?.op {
                Op::Dense(_) | Op::QDense(_) => ty.rank().checked_sub(1)?,
                Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) => 1,
                _ => return None,
            };
            let (data, given) = (lookup.constant_data(vector)?, lookup.value_type(vector));
            // At the rank of the sum, all extents except that of the channel must be 1.
            let before = ty.rank().checked_sub(given.rank())?;
            let is_per_channel = given.shape.iter().enumerate().all(|(index, dim)| match index + before == axis {
                true => *dim == ty.shape[axis],
                false => *dim == Dim::Known(1),
            });
            let is_whole = is_per_channel && (before..ty.rank()).contains(&axis);
            let bias = TensorType { dtype: given.dtype, shape: vec![ty.shape[axis].clone()] };
            let inputs = || vec![Part::Value(x), Part::Constant(bias.clone(), data.clone())];
            is_whole.then(|| Replacement::from_operator(Op::BiasAdd(BiasAdd { axis: axis as i64 }), inputs()))
        })
    })
}

pub(crate) fn absorb_pads(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let Op::Conv(Conv { strides, pads, dilations, groups }) = &node.op else { return None };
        let before = lookup.producer_of(node.inputs[0])?;
        let Op::Pad(Pad { pads: around, value: 0.0 }) = &before.op else { return None };
        let pads = join_pads(pads, around)?;
        let op = Op::Conv(Conv { strides: strides.clone(), pads, dilations: dilations.clone(), groups: *groups });
        Some(Replacement::from_operator(op, vec![Part::Value(before.inputs[0]), Part::Value(node.inputs[1])]))
    })
}

/// Turns a mean over all spatial dimensions into a pool. Means of 3-D tensors, mostly of normalisations, are kept.
pub(crate) fn global_pools(graph: &Graph) -> Result<Option<Graph>> {
    rewrite_nodes(graph, |lookup, node| {
        let Op::Reduce(Reduce { function: ReduceOp::Mean, axes, keep }) = &node.op else { return None };
        let ty = lookup.value_type(node.inputs[0]);
        let is_spatial = ty.rank() >= 4 && axes.iter().copied().eq(2..ty.rank() as i64);
        let view = if *keep { vec![] } else { vec![(Op::Flatten(Flatten { axis: 1 }), vec![])] };
        let pool = Op::GlobalPool(GlobalPool { mode: PoolMode::Average });
        is_spatial
            .then(|| Replacement { then: view, ..Replacement::from_operator(pool, vec![Part::Value(node.inputs[0])]) })
    })
}
