//! Composite operators: functions, used by all readers, that build an operator of a model format from several graph
//! operators. Shape inference, cost model and lowering therefore need no additions. Recurrent steps take the product
//! with the input as an argument, because it can be computed once for all steps.

use crate::builder::GraphBuilder;
use crate::error::{Error, Result};
use crate::graph::ValueId;
use crate::operators::{BiasAdd, Binary, BinaryOp, Clip, Dense, MatMul, Op, Reshape, Slice, Transpose, Unary, UnaryOp};

/// Order in which channels and block positions are stored in the channel dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthOrder {
    /// Block position is the outer index, channel the inner one.
    BlockFirst,
    /// Channel is the outer index, block position the inner one.
    ChannelFirst,
}

/// Rearranges `x[n, c · block², h, w]` to `[n, c, h · block, w · block]`.
pub fn depth_to_space(builder: &mut GraphBuilder, x: ValueId, block: i64, order: DepthOrder) -> Result<ValueId> {
    let [channels, height, width] = image_extents(builder, x)?;
    let area = block_area(builder, x, block)?;
    let kept = channels / area;
    let (shape, permutation) = match order {
        DepthOrder::BlockFirst => (vec![0, block, block, kept, height, width], vec![0, 3, 4, 1, 5, 2]),
        DepthOrder::ChannelFirst => (vec![0, kept, block, block, height, width], vec![0, 1, 4, 2, 5, 3]),
    };
    let x = builder.push(Op::Reshape(Reshape { shape }), &[x])?;
    let x = builder.push(Op::Transpose(Transpose { permutation }), &[x])?;
    builder.push(Op::Reshape(Reshape { shape: vec![0, kept, height * block, width * block] }), &[x])
}

/// Rearranges `x[n, c, h, w]` to `[n, block² · c, h / block, w / block]`.
pub fn space_to_depth(builder: &mut GraphBuilder, x: ValueId, block: i64, order: DepthOrder) -> Result<ValueId> {
    let [channels, height, width] = image_extents(builder, x)?;
    let area = block_area(builder, x, block)?;
    let shape = vec![0, channels, height / block, block, width / block, block];
    let x = builder.push(Op::Reshape(Reshape { shape }), &[x])?;
    let permutation = match order {
        DepthOrder::BlockFirst => vec![0, 3, 5, 1, 2, 4],
        DepthOrder::ChannelFirst => vec![0, 1, 3, 5, 2, 4],
    };
    let x = builder.push(Op::Transpose(Transpose { permutation }), &[x])?;
    builder.push(Op::Reshape(Reshape { shape: vec![0, channels * area, height / block, width / block] }), &[x])
}

fn image_extents(builder: &GraphBuilder, x: ValueId) -> Result<[i64; 3]> {
    let ty = builder.value_type(x)?;
    let known = crate::types::TensorType { dtype: ty.dtype, shape: ty.shape.get(1..).unwrap_or_default().to_vec() };
    let extents = known.extents().and_then(|extents| <[i64; 3]>::try_from(extents).ok());
    extents.ok_or_else(|| tensor_error(builder, x, "must have 4 dimensions, with known channels, height and width"))
}

/// Returns the number of positions in a square block; fails if it overflows or is not positive.
fn block_area(builder: &GraphBuilder, x: ValueId, block: i64) -> Result<i64> {
    let area = block.checked_mul(block).filter(|_| block > 0);
    area.ok_or_else(|| tensor_error(builder, x, "has a block extent that is not positive or too large"))
}

fn tensor_error(builder: &GraphBuilder, x: ValueId, reason: &str) -> Error {
    let ty = builder.value_type(x).map_or_else(|error| error.to_string(), ToString::to_string);
    Error::Tensor { ty, reason: reason.to_owned() }
}

/// Multiplies operands of any rank as numpy does: a vector is a row on the left and a column on the right, and the
/// result lacks the dimension that was added for it.
pub fn mat_mul(builder: &mut GraphBuilder, a: ValueId, b: ValueId) -> Result<ValueId> {
    let (a_rank, b_rank) = (builder.value_type(a)?.rank(), builder.value_type(b)?.rank());
    let left = if a_rank == 1 { builder.push(Op::Reshape(Reshape { shape: vec![1, -1] }), &[a])? } else { a };
    let right = if b_rank == 1 { builder.push(Op::Reshape(Reshape { shape: vec![-1, 1] }), &[b])? } else { b };
    let product = builder.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: false }), &[left, right])?;
    if a_rank != 1 && b_rank != 1 {
        return Ok(product);
    }
    // The remaining dimensions: those before the last two, then the row or the column.
    let rank = builder.value_type(product)?.rank();
    let mut shape = vec![0; rank - 2];
    match (a_rank == 1, b_rank == 1) {
        (true, false) => shape.push(-1),
        (false, true) => shape.push(0),
        (_, _) => {}
    }
    builder.push(Op::Reshape(Reshape { shape }), &[product])
}

/// The part of a recurrent layer that reads the state of the previous step; the weight is `[gates · units, units]`.
#[derive(Clone, Copy, Debug)]
pub struct Recurrent {
    /// Weight of the product with the state, with one row per unit of each gate.
    pub weight: ValueId,
    /// Bias of the product with the state, with one number per unit of each gate.
    pub bias: Option<ValueId>,
    /// Width of the state.
    pub units: i64,
    /// Activations of the gates, of the candidate content, and of the memory when output. Elman layers use the first.
    pub functions: [UnaryOp; 3],
    /// Limit to which the absolute values of the sums are clipped before activations.
    pub clip: Option<f64>,
    /// Limit to which the absolute values of the memory are clipped after each step.
    pub memory_clip: Option<f64>,
    /// Peephole weights from the memory to the input, forget and output gates; one number per unit each.
    pub peepholes: Option<[ValueId; 3]>,
}

impl Recurrent {
    /// Creates a layer with sigmoid gates, hyperbolic tangent activations, no clipping and no peepholes.
    pub fn new(weight: ValueId, bias: Option<ValueId>, units: i64) -> Recurrent {
        let functions = [UnaryOp::Sigmoid, UnaryOp::Tanh, UnaryOp::Tanh];
        Recurrent { weight, bias, units, functions, clip: None, memory_clip: None, peepholes: None }
    }

    fn multiply_state(&self, builder: &mut GraphBuilder, state: ValueId) -> Result<ValueId> {
        let y = builder.push(Op::Dense(Dense {}), &[state, self.weight])?;
        match self.bias {
            Some(bias) => builder.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
            None => Ok(y),
        }
    }

    fn slice_gate(&self, builder: &mut GraphBuilder, x: ValueId, axis: i64, gate: i64) -> Result<ValueId> {
        let (start, stop) = (gate.saturating_mul(self.units), gate.saturating_add(1).saturating_mul(self.units));
        builder
            .push(Op::Slice(Slice { axes: vec![axis], starts: vec![start], stops: vec![stop], steps: vec![1] }), &[x])
    }

    fn apply_activation(&self, builder: &mut GraphBuilder, function: usize, x: ValueId) -> Result<ValueId> {
        let x = clip_absolute(builder, x, self.clip)?;
        push_unary(builder, self.functions[function], x)
    }

    fn add_peephole(&self, builder: &mut GraphBuilder, gate: usize, sum: ValueId, memory: ValueId) -> Result<ValueId> {
        let Some(peepholes) = self.peepholes else { return Ok(sum) };
        let seen = push_binary(builder, BinaryOp::Mul, memory, peepholes[gate])?;
        push_binary(builder, BinaryOp::Add, sum, seen)
    }
}

/// Limits the absolute values of a tensor.
pub fn clip_absolute(builder: &mut GraphBuilder, x: ValueId, limit: Option<f64>) -> Result<ValueId> {
    match limit {
        Some(limit) => builder.push(Op::Clip(Clip { low: -limit, high: limit }), &[x]),
        None => Ok(x),
    }
}

fn push_binary(builder: &mut GraphBuilder, function: BinaryOp, a: ValueId, b: ValueId) -> Result<ValueId> {
    builder.push(Op::Binary(Binary { function }), &[a, b])
}

fn push_unary(builder: &mut GraphBuilder, function: UnaryOp, x: ValueId) -> Result<ValueId> {
    builder.push(Op::Unary(Unary { function }), &[x])
}

/// Builds one LSTM step and returns `(state, memory)`. `from_input[batch, 4 · units]` is the product with the input,
/// including its bias. `order` gives the positions of the input, forget, content and output gates.
pub fn lstm_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    (state, memory): (ValueId, ValueId),
    recurrent: &Recurrent,
    order: [i64; 4],
) -> Result<(ValueId, ValueId)> {
    let from_state = recurrent.multiply_state(builder, state)?;
    let all = push_binary(builder, BinaryOp::Add, from_input, from_state)?;
    let mut sums = [all; 4];
    for (sum, index) in sums.iter_mut().zip(order) {
        *sum = recurrent.slice_gate(builder, all, 1, index)?;
    }
    let [input, forget, fresh, output] = sums;
    let input = recurrent.add_peephole(builder, 0, input, memory)?;
    let input = recurrent.apply_activation(builder, 0, input)?;
    let forget = recurrent.add_peephole(builder, 1, forget, memory)?;
    let forget = recurrent.apply_activation(builder, 0, forget)?;
    let fresh = recurrent.apply_activation(builder, 1, fresh)?;
    let kept = push_binary(builder, BinaryOp::Mul, forget, memory)?;
    let added = push_binary(builder, BinaryOp::Mul, input, fresh)?;
    let memory = push_binary(builder, BinaryOp::Add, kept, added)?;
    let memory = clip_absolute(builder, memory, recurrent.memory_clip)?;
    let output = recurrent.add_peephole(builder, 2, output, memory)?;
    let output = recurrent.apply_activation(builder, 0, output)?;
    let shown = push_unary(builder, recurrent.functions[2], memory)?;
    Ok((push_binary(builder, BinaryOp::Mul, output, shown)?, memory))
}

/// Where the reset gate of a GRU is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The reset scales the state before the product with the weight.
    BeforeProduct,
    /// The reset scales the product of state and weight, including the bias.
    AfterProduct,
}

/// Builds one GRU step and returns the new state. `from_input[batch, 3 · units]` is the product with the input,
/// including its bias. `order` gives the positions of the reset, update and content gates.
pub fn gru_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    state: ValueId,
    recurrent: &Recurrent,
    order: [i64; 3],
    reset_at: Reset,
) -> Result<ValueId> {
    let from_state = recurrent.multiply_state(builder, state)?;
    let mut gate = |index: usize| {
        let from_x = recurrent.slice_gate(builder, from_input, 1, order[index])?;
        let from_h = recurrent.slice_gate(builder, from_state, 1, order[index])?;
        let sum = push_binary(builder, BinaryOp::Add, from_x, from_h)?;
        recurrent.apply_activation(builder, 0, sum)
    };
    let (reset, update) = (gate(0)?, gate(1)?);
    let from_h = match reset_at {
        Reset::AfterProduct => {
            let from_h = recurrent.slice_gate(builder, from_state, 1, order[2])?;
            push_binary(builder, BinaryOp::Mul, reset, from_h)?
        }
        Reset::BeforeProduct => {
            let weight = recurrent.slice_gate(builder, recurrent.weight, 0, order[2])?;
            let bias = recurrent.bias.map(|bias| recurrent.slice_gate(builder, bias, 0, order[2])).transpose()?;
            let scaled = push_binary(builder, BinaryOp::Mul, reset, state)?;
            Recurrent { weight, bias, ..*recurrent }.multiply_state(builder, scaled)?
        }
    };
    let from_x = recurrent.slice_gate(builder, from_input, 1, order[2])?;
    let fresh = push_binary(builder, BinaryOp::Add, from_h, from_x)?;
    let fresh = recurrent.apply_activation(builder, 1, fresh)?;
    // (1 - update) · fresh + update · state, with one product less.
    let change = push_binary(builder, BinaryOp::Sub, state, fresh)?;
    let change = push_binary(builder, BinaryOp::Mul, change, update)?;
    push_binary(builder, BinaryOp::Add, change, fresh)
}

/// Builds one step of a plain (Elman) recurrent layer and returns the new state.
pub fn elman_step(
    builder: &mut GraphBuilder,
    from_input: ValueId,
    state: ValueId,
    recurrent: &Recurrent,
) -> Result<ValueId> {
    let from_state = recurrent.multiply_state(builder, state)?;
    let sum = push_binary(builder, BinaryOp::Add, from_state, from_input)?;
    recurrent.apply_activation(builder, 0, sum)
}
