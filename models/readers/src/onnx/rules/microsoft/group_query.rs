//! Grouped-query attention with past keys and values, and rotary position embeddings.

use super::attention::{append_past, join_heads};
use crate::onnx::call::Call;
use crate::onnx::rules::attention::split_heads;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Attention, BinaryOp, Gather, Op, Rope};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits `GroupQueryAttention`; inputs: `query, key, value, past key, past value, lengths - 1, total length, cos, sin,
/// position ids, attention bias, sinks`.
/// Sequences must fill their tensors: shorter ones would shift the positions of new keys.
pub(super) fn group_query_attention(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    call.expect_int("smooth_softmax", 0)?;
    if (11..=13).any(|index| call.optional_input(index).is_some()) || call.has_output(3) {
        return unsupported("attention sinks, quantised past keys, or the scores as an output");
    }
    let [mut q, mut k, mut v] = split_projections(emit, call)?;
    let tokens = emit.extents(q)?[2];
    let past = match call.optional_input(3) {
        Some(past) => emit.extents(past)?.get(2).copied().unwrap_or(0),
        None => 0,
    };
    check_lengths(emit, call, past, past.saturating_add(tokens))?;
    if call.flag_attribute("do_rotary") {
        let places = match call.optional_input(9) {
            Some(places) => TokenPlaces::Given(places),
            None => TokenPlaces::From(past),
        };
        let angles = AngleTables {
            cos: call.input(7)?,
            sin: call.input(8)?,
            interleaved: call.flag_attribute("rotary_interleaved"),
        };
        q = rotate_pairs(emit, q, &places, &angles)?;
        k = rotate_pairs(emit, k, &places, &angles)?;
    }
    if let (Some(past_k), Some(past_v)) = (call.optional_input(3), call.optional_input(4)) {
        k = append_past(emit, past_k, k)?;
        v = append_past(emit, past_v, v)?;
    }
    let width = emit.extents(q)?[3];
    let scale = match call.float_attribute("scale", 0.0) {
        0.0 => 1.0 / (width as f64).sqrt(),
        scale => scale,
    };
    let window = Some(call.int_attribute("local_window_size", -1)).filter(|window| *window > 0);
    let softcap = Some(call.float_attribute("softcap", 0.0)).filter(|softcap| *softcap > 0.0);
    let mut inputs = vec![q, k, v];
    inputs.extend(call.optional_input(10));
    let y = emit.push(Op::Attention(Attention { causal: true, scale, window, softcap }), &inputs)?;
    Ok(vec![join_heads(emit, y)?, k, v])
}

fn split_projections(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<[ValueId; 3]> {
    let (count, groups) = (call.int_attribute("num_heads", 0), call.int_attribute("kv_num_heads", 0));
    if count < 1 || groups < 1 {
        return malformed(format!("`num_heads` is {count} and `kv_num_heads` is {groups}; both must be at least 1"));
    }
    let q = call.input(0)?;
    if let (Some(k), Some(v)) = (call.optional_input(1), call.optional_input(2)) {
        return Ok([split_heads(emit, q, count)?, split_heads(emit, k, groups)?, split_heads(emit, v, groups)?]);
    }
    let width = emit.extents(q)?.last().copied().unwrap_or(0);
    let all = count.saturating_add(groups.saturating_mul(2));
    if emit.rank(q)? != 3 || width < 1 || width % all != 0 {
        return malformed(format!("input {} cannot be split into {all} heads", emit.ty(q)?));
    }
    let size = width / all;
    let mut part = |first: i64, heads: i64| {
        let part = emit.slice(q, 2, first * size, (first + heads) * size)?;
        split_heads(emit, part, heads)
    };
    Ok([part(0, count)?, part(count, groups)?, part(count + groups, groups)?])
}

/// Checks that sequences fill the tensors. Without a past they may be shorter: causal queries do not see later padding.
fn check_lengths(emit: &Emit<'_>, call: &Call<'_>, past: i64, total: i64) -> Outcome<()> {
    for (index, shift) in [(5, 1), (6, 0)] {
        let Some(id) = call.optional_input(index) else { continue };
        let Some(known) = emit.known_numbers(id)? else { continue };
        let fits = |&length: &f64| {
            let length = (length as i64).saturating_add(shift);
            length == total || (index == 5 && past == 0 && (1..=total).contains(&length))
        };
        if !known.iter().all(fits) {
            return unsupported(format!(
                "sequences whose length differs from the {total} positions of the tensors; set the shape of the past keys to their actual length"
            ));
        }
    }
    Ok(())
}

/// Emits `RotaryEmbedding`; inputs: `input, position ids, cos, sin`.
pub(super) fn rotary_embedding(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    if call.float_attribute("scale", 1.0) != 1.0 || call.flag_attribute("is_packed_batching") {
        return unsupported("scaled positions or packed sequences");
    }
    let (x, places, cos) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let extents = emit.extents(x)?;
    let half = emit.extents(cos)?.last().copied().unwrap_or(0);
    let count = match (call.int_attribute("num_heads", 0), extents.last()) {
        (0, Some(&width)) if half > 0 => width / half.saturating_mul(2),
        (count, _) => count,
    };
    if count < 1 {
        return malformed(format!("the number of heads is {count}"));
    }
    let split = split_heads(emit, x, count)?;
    let angles = AngleTables { cos, sin: call.input(3)?, interleaved: call.flag_attribute("interleaved") };
    let places = match emit.extents(places)?[..] {
        [] | [1] => match emit.known_numbers(places)? {
            Some(first) => TokenPlaces::From(first[0] as i64),
            None => {
                let tokens = emit.extents(split)?[2];
                let numbers = emit.add_range(DType::I64, &[tokens])?;
                let first = emit.cast(places, DType::I64)?;
                let all = emit.binary(BinaryOp::Add, numbers, first)?;
                TokenPlaces::Given(emit.reshape(all, &[1, tokens])?)
            }
        },
        _ => TokenPlaces::Given(places),
    };
    let y = rotate_pairs(emit, split, &places, &angles)?;
    Ok(vec![if extents.len() == 3 { join_heads(emit, y)? } else { y }])
}

struct AngleTables {
    cos: ValueId,
    sin: ValueId,
    interleaved: bool,
}

enum TokenPlaces {
    /// Consecutive positions that start at this one.
    From(i64),
    /// Position of each token, for each sequence or shared by all.
    Given(ValueId),
}

fn rotate_pairs(emit: &mut Emit<'_>, x: ValueId, places: &TokenPlaces, angles: &AngleTables) -> Outcome<ValueId> {
    let [_, _, tokens, _] = emit.extents(x)?[..] else { return malformed("the data must have 4 dimensions") };
    let mut tables = Vec::new();
    let mut half = 0;
    for table in [angles.cos, angles.sin] {
        let [rows, columns] = emit.extents(table)?[..] else { return malformed("angles must have 2 dimensions") };
        half = columns;
        tables.push(match places {
            TokenPlaces::From(first) => {
                if *first < 0 || first.saturating_add(tokens) > rows {
                    return malformed(format!(
                        "{tokens} positions from {first} on exceed the {rows} rows of the angle table"
                    ));
                }
                let own = emit.slice(table, 0, *first, first + tokens)?;
                emit.reshape(own, &[1, 1, tokens, half])?
            }
            TokenPlaces::Given(places) => {
                let own = emit.push(Op::Gather(Gather { axis: 0 }), &[table, *places])?;
                let [n, s, half] = emit.extents(own)?[..] else {
                    return malformed("positions must have 2 dimensions");
                };
                emit.reshape(own, &[n, 1, s, half])?
            }
        });
    }
    let rotary = half.saturating_mul(2);
    emit.push(Op::Rope(Rope { rotary, interleaved: angles.interleaved }), &[x, tables[0], tables[1]])
}
