//! Import rules of attention and rotary position embeddings.

use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    Attention, BinaryOp, CompareOp, Expand, Gather, MatMul, Op, Pad, Rope, Softmax, UnaryOp, Where,
};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

pub(super) fn attention(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let is_flat = emit.rank(call.input(0)?)? == 3;
    let (heads, groups) = (call.int_attribute("q_num_heads", 0), call.int_attribute("kv_num_heads", 0));
    let mut q = split_heads(emit, call.input(0)?, heads)?;
    let mut k = split_heads(emit, call.input(1)?, groups)?;
    let mut v = split_heads(emit, call.input(2)?, groups)?;
    let mut past = 0;
    if let (Some(past_k), Some(past_v)) = (call.optional_input(4), call.optional_input(5)) {
        past = emit.extents(past_k)?.get(2).copied().unwrap_or(0);
        k = emit.concat_parts(&[past_k, k], 2)?;
        v = emit.concat_parts(&[past_v, v], 2)?;
    }
    if emit.rank(k)? != 4 || emit.rank(v)? != 4 {
        return malformed(format!("the keys {} and values {} must have 4 dimensions", emit.ty(k)?, emit.ty(v)?));
    }
    let (present_k, present_v) = (k, v);
    let dtype = emit.dtype(q)?;
    let [_, _, places, width] = emit.extents(q)?[..] else { return malformed("the queries must have 4 dimensions") };
    let total = emit.extents(k)?.get(2).copied().unwrap_or(0);
    let scale = call.optional_float("scale").unwrap_or(1.0 / (width as f64).sqrt());
    let softcap = Some(call.float_attribute("softcap", 0.0)).filter(|softcap| *softcap > 0.0);
    let mask = build_mask(emit, call, [places, total], past, dtype)?;
    let mut outputs = Vec::new();
    // The fused operator does not return scores.
    let y = if call.has_output(3) {
        let precision = call.optional_int("softmax_precision").map_or(Ok(dtype), |code| {
            let code = i32::try_from(code).unwrap_or(0);
            crate::onnx::tensor::dtype_of_code(code)
                .or_else(|reason| unsupported(format!("`softmax_precision`: {reason}")))
        })?;
        if emit.extents(k)?[1] != emit.extents(q)?[1] {
            (k, v) = (repeat_heads(emit, k, q)?, repeat_heads(emit, v, q)?);
        }
        let parts = Parts { q, k, v, mask: mask.value, causal: mask.is_causal, scale, softcap, precision };
        let (y, scores) = separate_operators(emit, call, &parts)?;
        outputs = vec![present_k, present_v, scores];
        y
    } else {
        let mut inputs = vec![q, k, v];
        inputs.extend(mask.value);
        let op = Op::Attention(Attention { causal: mask.is_causal, scale, window: None, softcap });
        emit.push(op, &inputs)?
    };
    q = y;
    if is_flat {
        let [n, h, s, d] = emit.extents(q)?[..] else { return malformed("the result must have 4 dimensions") };
        let transposed = emit.transpose(q, &[0, 2, 1, 3])?;
        q = emit.reshape(transposed, &[n, s, h * d])?;
    }
    if outputs.is_empty() {
        outputs = vec![present_k, present_v];
    }
    outputs.insert(0, q);
    Ok(outputs)
}

/// Reshapes `[n, s, h · d]` to `[n, h, s, d]`; an input with four dimensions is unchanged.
pub(super) fn split_heads(emit: &mut Emit<'_>, x: ValueId, heads: i64) -> Outcome<ValueId> {
    match emit.extents(x)?[..] {
        [_, _, _, _] => Ok(x),
        [n, s, width] if heads > 0 && width % heads == 0 => {
            let split = emit.reshape(x, &[n, s, heads, width / heads])?;
            emit.transpose(split, &[0, 2, 1, 3])
        }
        _ => malformed(format!("input {} cannot be split into {heads} heads", emit.ty(x)?)),
    }
}

fn repeat_heads(emit: &mut Emit<'_>, x: ValueId, q: ValueId) -> Outcome<ValueId> {
    let [n, groups, places, width] = emit.extents(x)?[..] else { return malformed("the keys must have 4 dimensions") };
    let heads = emit.extents(q)?[1];
    if groups < 1 || heads % groups != 0 {
        return malformed(format!("{groups} key heads do not divide {heads} query heads"));
    }
    let split = emit.reshape(x, &[n, groups, 1, places, width])?;
    let wide = emit.push(Op::Expand(Expand { shape: vec![n, groups, heads / groups, places, width] }), &[split])?;
    emit.reshape(wide, &[n, heads, places, width])
}

struct Mask {
    value: Option<ValueId>,
    /// Whether the fused attention operator applies the causal mask.
    is_causal: bool,
}

fn build_mask(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    [places, total]: [i64; 2],
    past: i64,
    dtype: DType,
) -> Outcome<Mask> {
    let (left, right) = (call.int_attribute("left_window_size", -1), call.int_attribute("right_window_size", -1));
    let causal = call.flag_attribute("is_causal");
    let lengths = call.optional_input(6);
    let is_fused = causal && left < 0 && right < 0 && past == total - places && lengths.is_none();
    let mut masks = Vec::new();
    if let Some(lengths) = lengths {
        let sight = VisibleRange { causal, left, right };
        masks.push(length_mask(emit, lengths, [places, total], dtype, &sight)?);
    } else if (causal || left >= 0 || right >= 0) && !is_fused {
        masks.push(emit.constant_mask([places, total], dtype, |at, key| {
            let at = at + past;
            (causal && key > at)
                || (left >= 0 && key < at.saturating_sub(left))
                || (right >= 0 && key > at.saturating_add(right))
        })?);
    }
    if let Some(given) = call.optional_input(3) {
        let mut given = given;
        if emit.dtype(given)? == DType::Bool {
            let (open, hidden) = (emit.add_scalar(dtype, 0.0)?, emit.add_scalar(dtype, f64::NEG_INFINITY)?);
            given = emit.push(Op::Where(Where {}), &[given, open, hidden])?;
        }
        let extents = emit.extents(given)?;
        let last = extents.last().copied().unwrap_or(1);
        if last != total && last != 1 {
            // Keys beyond the end of the mask are masked.
            let mut pads = vec![0; 2 * extents.len()];
            pads[2 * extents.len() - 1] = total - last;
            given = emit.push(Op::Pad(Pad { pads, value: crate::finite_range(dtype).0 }), &[given])?;
        }
        masks.push(given);
    }
    let value = match masks[..] {
        [] => None,
        [one] => Some(one),
        [one, two, ..] => Some(emit.binary(BinaryOp::Add, one, two)?),
    };
    Ok(Mask { value, is_causal: is_fused })
}

/// Keys that a query may attend to: `left` before and `right` after its position; negative for no limit.
struct VisibleRange {
    causal: bool,
    left: i64,
    right: i64,
}

/// Masks the keys beyond each sequence's length. The queries are the last positions of their sequence.
fn length_mask(
    emit: &mut Emit<'_>,
    lengths: ValueId,
    [places, total]: [i64; 2],
    dtype: DType,
    sight: &VisibleRange,
) -> Outcome<ValueId> {
    let batch = emit.extents(lengths)?.first().copied().unwrap_or(1);
    let lengths = emit.cast(lengths, DType::I64)?;
    let lengths = emit.reshape(lengths, &[batch, 1, 1, 1])?;
    let keys = emit.add_range(DType::I64, &[1, 1, 1, total])?;
    let rows = emit.add_range(DType::I64, &[1, 1, places, 1])?;
    let ends = emit.binary_with(BinaryOp::Sub, lengths, places as f64)?;
    let own = emit.binary(BinaryOp::Add, rows, ends)?;
    let mut visible = emit.compare(CompareOp::Less, keys, lengths)?;
    let mut bound = |emit: &mut Emit<'_>, function: CompareOp, shift: i64| -> Outcome<()> {
        let limit = emit.binary_with(BinaryOp::Add, own, shift as f64)?;
        let inside = emit.compare(function, keys, limit)?;
        visible = emit.binary(BinaryOp::And, visible, inside)?;
        Ok(())
    };
    if sight.causal {
        bound(emit, CompareOp::LessOrEqual, 0)?;
    }
    if sight.left >= 0 {
        bound(emit, CompareOp::GreaterOrEqual, -sight.left)?;
    }
    if sight.right >= 0 {
        bound(emit, CompareOp::LessOrEqual, sight.right)?;
    }
    let (open, hidden) = (emit.add_scalar(dtype, 0.0)?, emit.add_scalar(dtype, f64::NEG_INFINITY)?);
    emit.push(Op::Where(Where {}), &[visible, open, hidden])
}

struct Parts {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    mask: Option<ValueId>,
    causal: bool,
    scale: f64,
    softcap: Option<f64>,
    precision: DType,
}

/// Emits attention as separate operators; returns the result and the scores that `qk_matmul_output_mode` selects.
fn separate_operators(emit: &mut Emit<'_>, call: &Call<'_>, parts: &Parts) -> Outcome<(ValueId, ValueId)> {
    let dtype = emit.dtype(parts.q)?;
    let mode = call.int_attribute("qk_matmul_output_mode", 0);
    let root = parts.scale.sqrt();
    let q = emit.binary_with(BinaryOp::Mul, parts.q, root)?;
    let k = emit.binary_with(BinaryOp::Mul, parts.k, root)?;
    let plain = emit.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: true }), &[q, k])?;
    let mut scores = plain;
    if let Some(softcap) = parts.softcap {
        let small = emit.binary_with(BinaryOp::Div, scores, softcap)?;
        let bent = emit.unary(UnaryOp::Tanh, small)?;
        scores = emit.binary_with(BinaryOp::Mul, bent, softcap)?;
    }
    let capped = scores;
    if let Some(mask) = parts.mask {
        scores = emit.binary(BinaryOp::Add, scores, mask)?;
    }
    if parts.causal {
        // Without the fused operator, a constant mask hides later positions.
        let [_, _, places, total] = emit.extents(scores)?[..] else { return malformed("scores need 4 dimensions") };
        let mask = emit.constant_mask([places, total], dtype, |at, key| key > at + total - places)?;
        scores = emit.binary(BinaryOp::Add, scores, mask)?;
    }
    let wide = emit.cast(scores, parts.precision)?;
    let weights = emit.push(Op::Softmax(Softmax { axis: 3, log: false }), &[wide])?;
    // A fully masked row has NaN weights; the result is zero.
    let is_empty = emit.unary(UnaryOp::IsNan, weights)?;
    let zero = emit.add_scalar(parts.precision, 0.0)?;
    let weights = emit.push(Op::Where(Where {}), &[is_empty, zero, weights])?;
    let weights = emit.cast(weights, dtype)?;
    let y = emit.mat_mul(weights, parts.v)?;
    let requested = match mode {
        0 => plain,
        1 => capped,
        2 => scores,
        3 => weights,
        other => return malformed(format!("`qk_matmul_output_mode` has the unknown value {other}")),
    };
    Ok((y, requested))
}

pub(super) fn rotary_embedding(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let split = match extents[..] {
        [_, _, _, _] => x,
        [n, s, width] => {
            let heads = call.int_attribute("num_heads", 0);
            if heads < 1 || width % heads != 0 {
                return malformed(format!("{heads} heads do not divide the width {width}"));
            }
            let split = emit.reshape(x, &[n, s, heads, width / heads])?;
            emit.transpose(split, &[0, 2, 1, 3])?
        }
        _ => return malformed("the data must have 3 or 4 dimensions"),
    };
    let width = emit.extents(split)?[3];
    let rotary = match call.int_attribute("rotary_embedding_dim", 0) {
        0 => width,
        rotary => rotary,
    };
    let mut tables = Vec::new();
    for index in [1, 2] {
        let mut table = call.input(index)?;
        if let Some(places) = call.optional_input(3) {
            let places = emit.cast(places, DType::I64)?;
            table = emit.push(Op::Gather(Gather { axis: 0 }), &[table, places])?;
        }
        let [n, s, half] = emit.extents(table)?[..] else { return malformed("angles must have 3 dimensions") };
        // One table for all heads.
        tables.push(emit.reshape(table, &[n, 1, s, half])?);
    }
    let op = Op::Rope(Rope { rotary, interleaved: call.flag_attribute("interleaved") });
    let mut y = emit.push(op, &[split, tables[0], tables[1]])?;
    if extents.len() == 3 {
        y = emit.transpose(y, &[0, 2, 1, 3])?;
        y = emit.reshape(y, &extents)?;
    }
    Ok(vec![y])
}
