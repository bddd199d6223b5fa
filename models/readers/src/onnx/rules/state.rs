//! Operators that keep a state between calls, lowered to operators on explicit states.

use super::window::add_bias;
use crate::limits::MAX_STEPS;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    BinaryOp, CompareOp, Conv, Expand, GatherElements, Op, ScatterElements, ScatterOp, UnaryOp, Where,
};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits a causal depthwise convolution; inputs: `x[n, c, length], weight[c, 1, k], bias, past[n, c, k - 1]`.
pub(super) fn causal_conv(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (x, weight) = (call.input(0)?, call.input(1)?);
    let (extents, kernel) = (emit.extents(x)?, emit.extents(weight)?);
    let (&[batch, channels, _], &[_, 1, taps]) = (&extents[..], &kernel[..]) else {
        return malformed(format!("the shapes of data {extents:?} and weight {kernel:?} do not fit"));
    };
    if taps < 1 {
        return malformed("the kernel has no elements");
    }
    let before = taps - 1;
    let padded = match call.optional_input(3) {
        _ if before < 1 => x,
        Some(past) => emit.concat_parts(&[past, x], 2)?,
        None => {
            let past = emit.add_filled(emit.dtype(x)?, &[batch, channels, before], 0.0)?;
            emit.concat_parts(&[past, x], 2)?
        }
    };
    let conv = Conv { strides: vec![1], pads: vec![0, 0], dilations: vec![1], groups: channels };
    let y = emit.push(Op::Conv(conv), &[padded, weight])?;
    let y = add_bias(emit, y, call.optional_input(2))?;
    let y = match call.text_attribute("activation").unwrap_or("none") {
        "none" => y,
        "silu" | "swish" => emit.unary(UnaryOp::Silu, y)?,
        other => return malformed(format!("`activation` has the unknown value `{other}`")),
    };
    let length = emit.extents(padded)?[2];
    Ok(vec![y, emit.slice(padded, 2, length - before, length)?])
}

/// Reshapes `[n, length, heads · size]` to `[n, heads, length, size]`.
fn by_head(emit: &mut Emit<'_>, x: ValueId, heads: i64) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let [batch, length, width] = extents[..] else {
        return malformed(format!("the input must have 3 dimensions, but its shape is {extents:?}"));
    };
    if heads < 1 || width % heads != 0 {
        return malformed(format!("{width} channels cannot be split into {heads} heads"));
    }
    let x = emit.cast(x, DType::F32)?;
    let x = emit.reshape(x, &[batch, length, heads, width / heads])?;
    emit.transpose(x, &[0, 2, 1, 3])
}

/// Inputs of linear attention for all steps, as `[n, heads, length, size]`.
struct Steps {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    decay: Option<ValueId>,
    rate: Option<ValueId>,
}

impl Steps {
    fn parse_steps(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Steps> {
        let rule = call.text_attribute("update_rule").unwrap_or("gated_delta");
        let (has_decay, has_rate) = match rule {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => return malformed(format!("`update_rule` has the unknown value `{other}`")),
        };
        let (heads, shared) = (call.int_attribute("q_num_heads", 0), call.int_attribute("kv_num_heads", 0));
        if shared < 1 || heads % shared != 0 {
            return malformed(format!("{heads} query heads are not a multiple of {shared} key heads"));
        }
        let decay = if has_decay { Some(by_head(emit, call.input(4)?, shared)?) } else { None };
        let rate = if has_rate {
            let rate = call.input(5)?;
            let own = emit.extents(rate)?.last().copied().unwrap_or(0);
            Some(by_head(emit, rate, own)?)
        } else {
            None
        };
        Ok(Steps {
            q: by_head(emit, call.input(0)?, heads)?,
            k: by_head(emit, call.input(1)?, shared)?,
            v: by_head(emit, call.input(2)?, shared)?,
            decay,
            rate,
        })
    }

    fn emit_step(&self, emit: &mut Emit<'_>, state: ValueId, step: i64) -> Outcome<(ValueId, ValueId)> {
        let at = |emit: &mut Emit<'_>, x: ValueId| emit.slice(x, 2, step, step + 1);
        let (q, k, mut v) = (at(emit, self.q)?, at(emit, self.k)?, at(emit, self.v)?);
        let mut state = state;
        if let Some(decay) = self.decay {
            let decay = at(emit, decay)?;
            let kept = emit.unary(UnaryOp::Exp, decay)?;
            let kept = emit.transpose(kept, &[0, 1, 3, 2])?;
            state = emit.binary(BinaryOp::Mul, state, kept)?;
        }
        if let Some(rate) = self.rate {
            let known = emit.mat_mul(k, state)?;
            let news = emit.binary(BinaryOp::Sub, v, known)?;
            let rate = at(emit, rate)?;
            v = emit.binary(BinaryOp::Mul, rate, news)?;
        }
        let column = emit.transpose(k, &[0, 1, 3, 2])?;
        let added = emit.binary(BinaryOp::Mul, column, v)?;
        let state = emit.binary(BinaryOp::Add, state, added)?;
        let (queries, of_state) = (emit.extents(q)?, emit.extents(state)?);
        let groups = queries[1] / of_state[1].max(1);
        let q = emit.reshape(q, &[queries[0], of_state[1], groups, queries[3]])?;
        let read = emit.mat_mul(q, state)?;
        Ok((state, emit.reshape(read, &[queries[0], queries[1], 1, of_state[3]])?))
    }
}

pub(super) fn linear_attention(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let steps = Steps::parse_steps(emit, call)?;
    let (queries, keys, values) = (emit.extents(steps.q)?, emit.extents(steps.k)?, emit.extents(steps.v)?);
    let (batch, length) = (queries[0], queries[2]);
    if queries[3] != keys[3] || [keys[2], values[2]] != [length; 2] {
        return malformed(format!("the shapes of queries {queries:?}, keys {keys:?} and values {values:?} do not fit"));
    }
    if !(1..=MAX_STEPS).contains(&length) {
        return unsupported(format!("a sequence of {length} steps; 1 to {MAX_STEPS} are supported"));
    }
    let to = emit.dtype(call.input(0)?)?;
    let (mut state, to_of_state) = match call.optional_input(3) {
        Some(past) => (emit.cast(past, DType::F32)?, emit.dtype(past)?),
        None => (emit.add_filled(DType::F32, &[batch, keys[1], keys[3], values[3]], 0.0)?, to),
    };
    let mut parts = Vec::new();
    for step in 0..length {
        let (next, read) = steps.emit_step(emit, state, step)?;
        state = next;
        parts.push(read);
    }
    let read = emit.concat_parts(&parts, 2)?;
    let scale = match call.float_attribute("scale", 0.0) {
        0.0 => 1.0 / (keys[3].max(1) as f64).sqrt(),
        scale => scale,
    };
    let scaled = emit.binary_with(BinaryOp::Mul, read, scale)?;
    let y = emit.transpose(scaled, &[0, 2, 1, 3])?;
    let y = emit.reshape(y, &[batch, length, queries[1].saturating_mul(values[3])])?;
    Ok(vec![emit.cast(y, to)?, emit.cast(state, to_of_state)?])
}

fn axis_positions(emit: &mut Emit<'_>, count: i64, axis: usize, rank: usize) -> Outcome<ValueId> {
    let mut shape = vec![1; rank];
    shape[axis] = count;
    emit.add_range(DType::I64, &shape)
}

fn broadcast_samples(emit: &mut Emit<'_>, x: ValueId, axis: usize, rank: usize) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    let [count] = extents[..] else {
        return malformed(format!("shape {extents:?} must be a vector with one number per sample"));
    };
    let mut shape = vec![1; rank];
    shape[axis] = count;
    let x = emit.cast(x, DType::I64)?;
    emit.reshape(x, &shape)
}

/// Writes to a cache along one axis; inputs: `cache, update, first position of each sample`.
pub(super) fn tensor_scatter(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (cache, update) = (call.input(0)?, call.input(1)?);
    let (whole, extents) = (emit.extents(cache)?, emit.extents(update)?);
    let axis = emit.resolve_axis(call.int_attribute("axis", -2), whole.len())?;
    if axis == 0 || whole.len() != extents.len() {
        return malformed(format!("an update of shape {extents:?} along axis {axis} does not fit the shape {whole:?}"));
    }
    let mut at = axis_positions(emit, extents[axis], axis, extents.len())?;
    if let Some(first) = call.optional_input(2) {
        let first = broadcast_samples(emit, first, 0, extents.len())?;
        at = emit.binary(BinaryOp::Add, at, first)?;
    }
    match call.text_attribute("mode").unwrap_or("linear") {
        "linear" => {}
        "circular" => at = emit.binary_with(BinaryOp::Mod, at, whole[axis].max(1) as f64)?,
        other => return malformed(format!("`mode` has the unknown value `{other}`")),
    }
    let at = emit.push(Op::Expand(Expand { shape: extents }), &[at])?;
    let scatter = ScatterElements { axis: axis as i64, combine: ScatterOp::Replace };
    Ok(vec![emit.push(Op::ScatterElements(scatter), &[cache, at, update])?])
}

pub(super) fn reverse_sequence(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let rank = extents.len();
    let (time, batch) = (call.int_attribute("time_axis", 0), call.int_attribute("batch_axis", 1));
    let (time, batch) = (emit.resolve_axis(time, rank)?, emit.resolve_axis(batch, rank)?);
    if time == batch {
        return malformed(format!("`time_axis` and `batch_axis` are both {time}"));
    }
    emit.check_range(call.input(1)?, "sequence length", [0, extents[time]])?;
    let at = axis_positions(emit, extents[time], time, rank)?;
    let length = broadcast_samples(emit, call.input(1)?, batch, rank)?;
    let is_inside = emit.compare(CompareOp::Less, at, length)?;
    let behind = emit.binary(BinaryOp::Sub, length, at)?;
    let mirrored = emit.binary_with(BinaryOp::Sub, behind, 1.0)?;
    let from = emit.push(Op::Where(Where {}), &[is_inside, mirrored, at])?;
    let from = emit.push(Op::Expand(Expand { shape: extents }), &[from])?;
    Ok(vec![emit.push(Op::GatherElements(GatherElements { axis: time as i64 }), &[x, from])?])
}
