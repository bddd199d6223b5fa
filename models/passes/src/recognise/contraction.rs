//! What surrounds contractions: transposed weights, biases as sums, pads of their own, means over space.

use super::{Part, Replacement, rewrite};
use crate::fold::fold;
use crate::quantised::joined;
use models::error::Result;
use models::graph::{Const, Graph};
use models::operators::{
    BiasAdd, BinaryOp, Conv, Dense, Flatten, GlobalPool, MatMul, Op, Pad, PoolMode, QDense, QMatMul, Reduce, ReduceOp,
    Transpose,
};
use models::types::{Dim, TensorType};

/// A product with a constant matrix is a dense layer.
pub(crate) fn mat_mul_to_dense(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        let (dense, transpose_b) = match node.op {
            Op::MatMul(MatMul { transpose_a: false, transpose_b }) => (Op::Dense(Dense {}), transpose_b),
            Op::QMatMul(QMatMul { a_zero, b_zero }) => (Op::QDense(QDense { x_zero: a_zero, w_zero: b_zero }), false),
            _ => return None,
        };
        let (x, w) = (node.inputs[0], node.inputs[1]);
        let (ty, data) = (look.ty(w), look.data(w)?);
        let [k, n] = ty.shape.as_slice() else { return None };
        if transpose_b {
            return Some(Replacement::of(dense, vec![Part::Old(x), Part::Old(w)]));
        }
        let turned = match data {
            // Any values are as good as others.
            Const::Random { seed } => Const::Random { seed: *seed },
            data => fold(&Op::Transpose(Transpose { permutation: vec![1, 0] }), &[(ty, data)])?,
        };
        let ty = TensorType { dtype: ty.dtype, shape: vec![n.clone(), k.clone()] };
        Some(Replacement::of(dense, vec![Part::Old(x), Part::Made(ty, turned)]))
    })
}

/// The sum of a contraction and a constant per channel is a bias.
pub(crate) fn sums_to_biases(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        look.either(node.outputs[0], BinaryOp::Add).find_map(|(x, vector)| {
            let ty = look.ty(x);
            let axis = match look.node(x)?.op {
                Op::Dense(_) | Op::QDense(_) => ty.rank().checked_sub(1)?,
                Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) => 1,
                _ => return None,
            };
            let (data, given) = (look.data(vector)?, look.ty(vector));
            // Seen at the rank of the sum, all extents but that of the channel are 1.
            let before = ty.rank().checked_sub(given.rank())?;
            let is_per_channel = given.shape.iter().enumerate().all(|(index, dim)| match index + before == axis {
                true => *dim == ty.shape[axis],
                false => *dim == Dim::Known(1),
            });
            let is_whole = is_per_channel && (before..ty.rank()).contains(&axis);
            let bias = TensorType { dtype: given.dtype, shape: vec![ty.shape[axis].clone()] };
            let inputs = || vec![Part::Old(x), Part::Made(bias.clone(), data.clone())];
            is_whole.then(|| Replacement::of(Op::BiasAdd(BiasAdd { axis: axis as i64 }), inputs()))
        })
    })
}

/// Zeros around the data of a convolution are its own pads.
pub(crate) fn absorb_pads(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        let Op::Conv(Conv { strides, pads, dilations, groups }) = &node.op else { return None };
        let before = look.node(node.inputs[0])?;
        let Op::Pad(Pad { pads: around, value: 0.0 }) = &before.op else { return None };
        let pads = joined(pads, around)?;
        let op = Op::Conv(Conv { strides: strides.clone(), pads, dilations: dilations.clone(), groups: *groups });
        Some(Replacement::of(op, vec![Part::Old(before.inputs[0]), Part::Old(node.inputs[1])]))
    })
}

/// A mean over all spatial dimensions is a global pool. With three dimensions it more often is a part of a normalisation.
pub(crate) fn global_pools(graph: &Graph) -> Result<Graph> {
    rewrite(graph, |look, node| {
        let Op::Reduce(Reduce { function: ReduceOp::Mean, axes, keep }) = &node.op else { return None };
        let ty = look.ty(node.inputs[0]);
        let is_spatial = ty.rank() >= 4 && axes.iter().copied().eq(2..ty.rank() as i64);
        let view = if *keep { vec![] } else { vec![(Op::Flatten(Flatten { axis: 1 }), vec![])] };
        let pool = Op::GlobalPool(GlobalPool { mode: PoolMode::Average });
        is_spatial.then(|| Replacement { then: view, ..Replacement::of(pool, vec![Part::Old(node.inputs[0])]) })
    })
}
