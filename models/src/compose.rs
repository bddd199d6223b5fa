//! Operators of sources that are a few of ours: rewrites that every reader would otherwise do on its own.
//!
//! Each function adds plain operators to a graph, so shapes, work and lowering need nothing new. Recurrent steps take
//! the product with the input from outside, where it is one product for all steps.

use crate::builder::GraphBuilder;
use crate::error::{Error, Result};
use crate::graph::ValueId;
use crate::operators::{BiasAdd, Binary, BinaryOp, Clip, Dense, MatMul, Op, Reshape, Slice, Transpose, Unary, UnaryOp};

/// In which order channels hold the places of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthOrder {
    /// Place in the block outside, channel inside.
    BlockFirst,
    /// Channel outside, place in the block inside.
    ChannelFirst,
}

/// `x[n, c · block², h, w]` as `[n, c, h · block, w · block]`.
pub fn depth_to_space(builder: &mut GraphBuilder, x: ValueId, block: i64, order: DepthOrder) -> Result<ValueId> {
    let [channels, height, width] = image(builder, x)?;
    let area = area_of(builder, x, block)?;
    let kept = channels / area;
    let (shape, permutation) = match order {
        DepthOrder::BlockFirst => (vec![0, block, block, kept, height, width], vec![0, 3, 4, 1, 5, 2]),
        DepthOrder::ChannelFirst => (vec![0, kept, block, block, height, width], vec![0, 1, 4, 2, 5, 3]),
    };
    let x = builder.push(Op::Reshape(Reshape { shape }), &[x])?;
    let x = builder.push(Op::Transpose(Transpose { permutation }), &[x])?;
    builder.push(Op::Reshape(Reshape { shape: vec![0, kept, height * block, width * block] }), &[x])
}

/// `x[n, c, h, w]` as `[n, block² · c, h / block, w / block]`.
pub fn space_to_depth(builder: &mut GraphBuilder, x: ValueId, block: i64, order: DepthOrder) -> Result<ValueId> {
    let [channels, height, width] = image(builder, x)?;
    let area = area_of(builder, x, block)?;
    let shape = vec![0, channels, height / block, block, width / block, block];
    let x = builder.push(Op::Reshape(Reshape { shape }), &[x])?;
    let permutation = match order {
        DepthOrder::BlockFirst => vec![0, 3, 5, 1, 2, 4],
        DepthOrder::ChannelFirst => vec![0, 1, 3, 5, 2, 4],
    };
    let x = builder.push(Op::Transpose(Transpose { permutation }), &[x])?;
    builder.push(Op::Reshape(Reshape { shape: vec![0, channels * area, height / block, width / block] }), &[x])
}

/// Extents of channel, height and width.
fn image(builder: &GraphBuilder, x: ValueId) -> Result<[i64; 3]> {
    let ty = builder.ty(x)?;
    let known = crate::types::TensorType { dtype: ty.dtype, shape: ty.shape.get(1..).unwrap_or_default().to_vec() };
    let extents = known.extents().and_then(|extents| <[i64; 3]>::try_from(extents).ok());
    extents.ok_or_else(|| refused(builder, x, "must be an image of four dimensions, the last three numbers"))
}

/// Places of a block, of which a tensor cannot have too many.
fn area_of(builder: &GraphBuilder, x: ValueId, block: i64) -> Result<i64> {
    let area = block.checked_mul(block).filter(|_| block > 0);
    area.ok_or_else(|| refused(builder, x, "cannot be cut into blocks of this extent"))
}

fn refused(builder: &GraphBuilder, x: ValueId, reason: &str) -> Error {
    let ty = builder.ty(x).map_or_else(|error| error.to_string(), ToString::to_string);
    Error::Tensor { ty, reason: reason.to_owned() }
}

/// The product numpy makes of operands of any rank: a vector on the left is a row, on the right a column, and the
/// dimension that made it a matrix is dropped again.
pub fn mat_mul(builder: &mut GraphBuilder, a: ValueId, b: ValueId) -> Result<ValueId> {
    let (a_rank, b_rank) = (builder.ty(a)?.rank(), builder.ty(b)?.rank());
    let left = if a_rank == 1 { builder.push(Op::Reshape(Reshape { shape: vec![1, -1] }), &[a])? } else { a };
    let right = if b_rank == 1 { builder.push(Op::Reshape(Reshape { shape: vec![-1, 1] }), &[b])? } else { b };
    let product = builder.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: false }), &[left, right])?;
    if a_rank != 1 && b_rank != 1 {
        return Ok(product);
    }
    // The dimensions that stay, by place: those before the last two, then the row or the column.
    let rank = builder.ty(product)?.rank();
    let mut shape = vec![0; rank - 2];
    match (a_rank == 1, b_rank == 1) {
        (true, false) => shape.push(-1),
        (false, true) => shape.push(0),
        (_, _) => {}
    }
    builder.push(Op::Reshape(Reshape { shape }), &[product])
}

/// The part of a recurrent layer that reads its state: `weight[gates · units, units]`.
#[derive(Clone, Copy, Debug)]
pub struct Recurrent {
    /// One row per unit of each gate.
    pub weight: ValueId,
    /// One number per unit of each gate.
    pub bias: Option<ValueId>,
    /// Width of the state.
    pub units: i64,
    /// What bends the gates, the fresh content, and what of a memory is shown; a plain layer has only the first.
    pub functions: [UnaryOp; 3],
    /// Sums are kept within this distance of zero before they are bent.
    pub clip: Option<f64>,
    /// What the gates for input, forgetting and output see of the memory, one number per unit each.
    pub peepholes: Option<[ValueId; 3]>,
}

impl Recurrent {
    /// A layer as it is usually meant: sigmoid gates and tangents.
    pub fn new(weight: ValueId, bias: Option<ValueId>, units: i64) -> Recurrent {
        let functions = [UnaryOp::Sigmoid, UnaryOp::Tanh, UnaryOp::Tanh];
        Recurrent { weight, bias, units, functions, clip: None, peepholes: None }
    }

    fn of_state(&self, builder: &mut GraphBuilder, state: ValueId) -> Result<ValueId> {
        let y = builder.push(Op::Dense(Dense {}), &[state, self.weight])?;
        match self.bias {
            Some(bias) => builder.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
            None => Ok(y),
        }
    }

    /// One gate of all that were computed together.
    fn gate(&self, builder: &mut GraphBuilder, x: ValueId, axis: i64, gate: i64) -> Result<ValueId> {
        let (start, stop) = (gate.saturating_mul(self.units), gate.saturating_add(1).saturating_mul(self.units));
        builder
            .push(Op::Slice(Slice { axes: vec![axis], starts: vec![start], stops: vec![stop], steps: vec![1] }), &[x])
    }

    fn bend(&self, builder: &mut GraphBuilder, function: usize, x: ValueId) -> Result<ValueId> {
        let x = match self.clip {
            Some(clip) => builder.push(Op::Clip(Clip { low: -clip, high: clip }), &[x])?,
            None => x,
        };
        unary(builder, self.functions[function], x)
    }

    /// A sum with what its gate sees of the memory.
    fn peep(&self, builder: &mut GraphBuilder, gate: usize, sum: ValueId, memory: ValueId) -> Result<ValueId> {
        let Some(peepholes) = self.peepholes else { return Ok(sum) };
        let seen = binary(builder, BinaryOp::Mul, memory, peepholes[gate])?;
        binary(builder, BinaryOp::Add, sum, seen)
    }
}

fn binary(builder: &mut GraphBuilder, function: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
    builder.push(Op::Binary(Binary { function }), &[a, b])
}

fn unary(builder: &mut GraphBuilder, function: UnaryOp, x: ValueId) -> Result<ValueId> {
    builder.push(Op::Unary(Unary { function }), &[x])
}

/// One step of a long short-term memory, as `(state, memory)`. `from_input[batch, 4 · units]` holds the product with the
/// input and its bias; `order` says where the gates for input, forgetting, fresh content and output stand.
pub fn lstm_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    (state, memory): (ValueId, ValueId),
    recurrent: &Recurrent,
    order: [i64; 4],
) -> Result<(ValueId, ValueId)> {
    let from_state = recurrent.of_state(builder, state)?;
    let all = binary(builder, BinaryOp::Add, from_input, from_state)?;
    let mut sums = [all; 4];
    for (sum, index) in sums.iter_mut().zip(order) {
        *sum = recurrent.gate(builder, all, 1, index)?;
    }
    let [input, forget, fresh, output] = sums;
    let input = recurrent.peep(builder, 0, input, memory)?;
    let input = recurrent.bend(builder, 0, input)?;
    let forget = recurrent.peep(builder, 1, forget, memory)?;
    let forget = recurrent.bend(builder, 0, forget)?;
    let fresh = recurrent.bend(builder, 1, fresh)?;
    let kept = binary(builder, BinaryOp::Mul, forget, memory)?;
    let added = binary(builder, BinaryOp::Mul, input, fresh)?;
    let memory = binary(builder, BinaryOp::Add, kept, added)?;
    let output = recurrent.peep(builder, 2, output, memory)?;
    let output = recurrent.bend(builder, 0, output)?;
    let shown = unary(builder, recurrent.functions[2], memory)?;
    Ok((binary(builder, BinaryOp::Mul, output, shown)?, memory))
}

/// Where the reset of a gated unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// It scales the state, which is then multiplied with the weight.
    BeforeProduct,
    /// It scales the product of the state and the weight, bias included.
    AfterProduct,
}

/// One step of a gated recurrent unit. `from_input[batch, 3 · units]` holds the product with the input and its bias;
/// `order` says where reset, update and fresh content stand.
pub fn gru_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    state: ValueId,
    recurrent: &Recurrent,
    order: [i64; 3],
    reset_at: Reset,
) -> Result<ValueId> {
    let from_state = recurrent.of_state(builder, state)?;
    let mut gate = |index: usize| {
        let from_x = recurrent.gate(builder, from_input, 1, order[index])?;
        let from_h = recurrent.gate(builder, from_state, 1, order[index])?;
        let sum = binary(builder, BinaryOp::Add, from_x, from_h)?;
        recurrent.bend(builder, 0, sum)
    };
    let (reset, update) = (gate(0)?, gate(1)?);
    let from_h = match reset_at {
        Reset::AfterProduct => {
            let from_h = recurrent.gate(builder, from_state, 1, order[2])?;
            binary(builder, BinaryOp::Mul, reset, from_h)?
        }
        Reset::BeforeProduct => {
            let weight = recurrent.gate(builder, recurrent.weight, 0, order[2])?;
            let bias = recurrent.bias.map(|bias| recurrent.gate(builder, bias, 0, order[2])).transpose()?;
            let scaled = binary(builder, BinaryOp::Mul, reset, state)?;
            Recurrent { weight, bias, ..*recurrent }.of_state(builder, scaled)?
        }
    };
    let from_x = recurrent.gate(builder, from_input, 1, order[2])?;
    let fresh = binary(builder, BinaryOp::Add, from_h, from_x)?;
    let fresh = recurrent.bend(builder, 1, fresh)?;
    // (1 - update) · fresh + update · state, with one product less.
    let change = binary(builder, BinaryOp::Sub, state, fresh)?;
    let change = binary(builder, BinaryOp::Mul, change, update)?;
    binary(builder, BinaryOp::Add, change, fresh)
}

/// One step of a plain recurrent layer.
pub fn elman_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    state: ValueId,
    recurrent: &Recurrent,
) -> Result<ValueId> {
    let from_state = recurrent.of_state(builder, state)?;
    let sum = binary(builder, BinaryOp::Add, from_state, from_input)?;
    recurrent.bend(builder, 0, sum)
}
