//! ONNX Runtime's attention operators, with and without the input projections.

use super::fused::add_last_bias;
use crate::onnx::call::Call;
use crate::onnx::rules::attention::split_heads;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Attention, BinaryOp, CompareOp, Op, Where};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits `Attention` with one product for all heads; inputs: `input, weights, bias, mask, past, attention bias`.
pub(super) fn fused_attention(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    call.expect_int("do_rotary", 0)?;
    call.expect_int("past_present_share_buffer", 0)?;
    let (x, w, count) = (call.input(0)?, call.input(1)?, head_count(call)?);
    let joint = emit.mat_mul(x, w)?;
    let joint = add_last_bias(emit, joint, call.optional_input(2))?;
    let width = emit.extents(joint)?.last().copied().unwrap_or(0);
    let widths = match call.int_list("qkv_hidden_sizes") {
        Some(widths) if widths.len() == 3 && widths.iter().all(|&part| part > 0) => widths,
        Some(widths) => return malformed(format!("`qkv_hidden_sizes` has the invalid value {widths:?}")),
        None => vec![width / 3; 3],
    };
    if widths.iter().try_fold(0i64, |sum, &part| sum.checked_add(part)) != Some(width) {
        return malformed(format!("widths {widths:?} of queries, keys and values do not add up to {width}"));
    }
    let mut parts = Vec::new();
    let mut start = 0;
    for part in widths {
        let one = emit.slice(joint, 2, start, start + part)?;
        parts.push(split_heads(emit, one, count)?);
        start += part;
    }
    let [q, mut k, mut v] = parts[..] else { return malformed("the projection must have three parts") };
    if let Some(past) = call.optional_input(4) {
        let [two, rest @ ..] = &emit.extents(past)?[..] else {
            return malformed("the tensor of past keys and values must have 5 dimensions");
        };
        if *two != 2 {
            return malformed("the first extent of the past must be 2, for keys and values");
        }
        for (index, part) in [(0, &mut k), (1, &mut v)] {
            let one = emit.slice(past, 0, index, index + 1)?;
            let one = emit.reshape(one, rest)?;
            *part = emit.concat_parts(&[one, *part], 2)?;
        }
    }
    let masks = Masks { padding: call.optional_input(3), bias: call.optional_input(5) };
    let y = masked_attention(emit, call, [q, k, v], &masks)?;
    let mut outputs = vec![y];
    if call.has_output(1) {
        let mut shape = emit.extents(k)?;
        if emit.extents(v)? != shape {
            return unsupported("keys and values of different widths in one output tensor");
        }
        shape.insert(0, 1);
        let (k, v) = (emit.reshape(k, &shape)?, emit.reshape(v, &shape)?);
        outputs.push(emit.concat_parts(&[k, v], 0)?);
    }
    Ok(outputs)
}

/// Emits `MultiHeadAttention`; inputs: `query, key, value, bias, key padding mask, attention bias, past key and value`.
pub(super) fn multi_head(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (q, Some(k), Some(v)) = (call.input(0)?, call.optional_input(1), call.optional_input(2)) else {
        return unsupported("queries, keys and values packed in one tensor");
    };
    if call.has_output(3) || call.optional_input(8).is_some() || call.optional_input(9).is_some() {
        return unsupported("the scores as an output, or past keys in a larger buffer");
    }
    let count = head_count(call)?;
    let (mut q, mut k, mut v) = (q, k, v);
    if let Some(bias) = call.optional_input(3) {
        let widths = [q, k, v]
            .map(|part| emit.extents(part).map(|extents| (extents.len(), extents.last().copied().unwrap_or(0))));
        let mut start = 0;
        for (part, width) in [&mut q, &mut k, &mut v].into_iter().zip(widths) {
            let (3, width) = width? else { return unsupported("a bias for keys that are already split into heads") };
            let own = emit.slice(bias, 0, start, start + width)?;
            *part = add_last_bias(emit, *part, Some(own))?;
            start += width;
        }
    }
    let q = split_heads(emit, q, count)?;
    let (mut k, mut v) = (split_heads(emit, k, count)?, split_heads(emit, v, count)?);
    if call.flag_attribute("unidirectional") && emit.extents(q)?.get(2) != emit.extents(k)?.get(2) {
        // The documentation does not define which keys precede a query.
        return unsupported("`unidirectional` with different lengths of queries and keys");
    }
    if let (Some(past_k), Some(past_v)) = (call.optional_input(6), call.optional_input(7)) {
        k = append_past(emit, past_k, k)?;
        v = append_past(emit, past_v, v)?;
    }
    let masks = Masks { padding: call.optional_input(4), bias: call.optional_input(5) };
    Ok(vec![masked_attention(emit, call, [q, k, v], &masks)?, k, v])
}

/// Concatenates past and new keys or values; an empty past is dropped.
pub(super) fn append_past(emit: &mut Emit<'_>, past: ValueId, new: ValueId) -> Outcome<ValueId> {
    if emit.extents(past)?.get(2) == Some(&0) {
        return Ok(new);
    }
    emit.concat_parts(&[past, new], 2)
}

fn head_count(call: &Call<'_>) -> Outcome<i64> {
    match call.int_attribute("num_heads", 0) {
        count if count > 0 => Ok(count),
        count => malformed(format!("`num_heads` is {count}, must be at least 1")),
    }
}

pub(super) fn join_heads(emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
    let [n, h, s, d] = emit.extents(x)?[..] else { return malformed("the result must have 4 dimensions") };
    let transposed = emit.transpose(x, &[0, 2, 1, 3])?;
    emit.reshape(transposed, &[n, s, h * d])
}

struct Masks {
    /// Sequence lengths, or a mask that is 0 at padding.
    padding: Option<ValueId>,
    bias: Option<ValueId>,
}

fn masked_attention(emit: &mut Emit<'_>, call: &Call<'_>, parts: [ValueId; 3], masks: &Masks) -> Outcome<ValueId> {
    let [q, k, _] = parts;
    let [batch, _, _, width] = emit.extents(q)?[..] else { return malformed("the queries must have 4 dimensions") };
    let total = emit.extents(k)?.get(2).copied().unwrap_or(0);
    let dtype = emit.dtype(q)?;
    let scale = match call.float_attribute("scale", 0.0) {
        0.0 => 1.0 / (width as f64).sqrt(),
        scale => scale,
    };
    let mut mask = None;
    if let Some(padding) = masks.padding {
        let hidden = call.float_attribute("mask_filter_value", -10_000.0);
        mask = Some(padding_mask(emit, padding, [batch, total], dtype, hidden)?);
    }
    if let Some(bias) = masks.bias {
        mask = Some(match mask {
            Some(mask) => emit.binary(BinaryOp::Add, mask, bias)?,
            None => bias,
        });
    }
    let op =
        Op::Attention(Attention { causal: call.flag_attribute("unidirectional"), scale, window: None, softcap: None });
    let mut inputs = parts.to_vec();
    inputs.extend(mask);
    let y = emit.push(op, &inputs)?;
    join_heads(emit, y)
}

/// Builds an additive mask that is zero for valid keys and `hidden` for padding.
fn padding_mask(
    emit: &mut Emit<'_>,
    padding: ValueId,
    [batch, total]: [i64; 2],
    dtype: DType,
    hidden: f64,
) -> Outcome<ValueId> {
    let extents = emit.extents(padding)?;
    let visible = match extents[..] {
        [count] if count == batch || count == batch.saturating_mul(2) => {
            let ends = emit.slice(padding, 0, 0, batch)?;
            let mut visible = compare_keys(emit, CompareOp::Less, ends, batch, total)?;
            if count != batch {
                let starts = emit.slice(padding, 0, batch, count)?;
                let after = compare_keys(emit, CompareOp::GreaterOrEqual, starts, batch, total)?;
                visible = emit.binary(BinaryOp::And, visible, after)?;
            }
            visible
        }
        [n, keys] if keys == total => reshape_flags(emit, padding, &[n, 1, 1, keys])?,
        [n, queries, keys] if keys == total => reshape_flags(emit, padding, &[n, 1, queries, keys])?,
        _ => return unsupported(format!("a mask of type {}", emit.ty(padding)?)),
    };
    let (open, hidden) = (emit.add_scalar(dtype, 0.0)?, emit.add_scalar(dtype, hidden)?);
    emit.push(Op::Where(Where {}), &[visible, open, hidden])
}

fn compare_keys(emit: &mut Emit<'_>, function: CompareOp, bounds: ValueId, batch: i64, total: i64) -> Outcome<ValueId> {
    let bounds = emit.cast(bounds, DType::I64)?;
    let bounds = emit.reshape(bounds, &[batch, 1, 1, 1])?;
    let keys = emit.add_range(DType::I64, &[1, 1, 1, total])?;
    emit.compare(function, keys, bounds)
}

fn reshape_flags(emit: &mut Emit<'_>, mask: ValueId, shape: &[i64]) -> Outcome<ValueId> {
    let mask = emit.reshape(mask, shape)?;
    let zero = emit.add_scalar(emit.dtype(mask)?, 0.0)?;
    emit.compare(CompareOp::Greater, mask, zero)
}
