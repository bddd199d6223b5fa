//! Attention of grouped heads with a past, and rotated positions.

use super::attention::{join_heads, joined, split_heads};
use crate::onnx::call::Call;
use crate::onnx::rules::attention::counted;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Attention, BinaryOp, Gather, Op, Rope};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// `query, key, value, past key, past value, lengths - 1, total length, cos, sin, position ids, attention bias, sinks`
///
/// All sequences are as long as their tensors: shorter ones would put new keys at other places than the shapes say.
pub(super) fn attention(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    call.expect_int("smooth_softmax", 0)?;
    if (11..=13).any(|index| call.optional(index).is_some()) || call.has_output(3) {
        return unsupported("sinks of attention, a quantised past, or its scores as a result");
    }
    let [mut q, mut k, mut v] = parts(emit, call)?;
    let tokens = emit.extents(q)?[2];
    let past = match call.optional(3) {
        Some(past) => emit.extents(past)?.get(2).copied().unwrap_or(0),
        None => 0,
    };
    check_lengths(emit, call, past, past.saturating_add(tokens))?;
    if call.flag("do_rotary") {
        let places = match call.optional(9) {
            Some(places) => TokenPlaces::Given(places),
            None => TokenPlaces::From(past),
        };
        let turn =
            AngleTables { cos: call.input(7)?, sin: call.input(8)?, interleaved: call.flag("rotary_interleaved") };
        q = turned(emit, q, &places, &turn)?;
        k = turned(emit, k, &places, &turn)?;
    }
    if let (Some(past_k), Some(past_v)) = (call.optional(3), call.optional(4)) {
        k = joined(emit, past_k, k)?;
        v = joined(emit, past_v, v)?;
    }
    let width = emit.extents(q)?[3];
    let scale = match call.float("scale", 0.0) {
        0.0 => 1.0 / (width as f64).sqrt(),
        scale => scale,
    };
    let window = Some(call.int("local_window_size", -1)).filter(|window| *window > 0);
    let softcap = Some(call.float("softcap", 0.0)).filter(|softcap| *softcap > 0.0);
    let mut inputs = vec![q, k, v];
    inputs.extend(call.optional(10));
    let y = emit.push(Op::Attention(Attention { causal: true, scale, window, softcap }), &inputs)?;
    Ok(vec![join_heads(emit, y)?, k, v])
}

/// Queries, keys and values by heads; the three may lie in one tensor.
fn parts(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<[ValueId; 3]> {
    let (count, groups) = (call.int("num_heads", 0), call.int("kv_num_heads", 0));
    if count < 1 || groups < 1 {
        return malformed(format!("`num_heads` is {count} and `kv_num_heads` is {groups}"));
    }
    let q = call.input(0)?;
    if let (Some(k), Some(v)) = (call.optional(1), call.optional(2)) {
        return Ok([split_heads(emit, q, count)?, split_heads(emit, k, groups)?, split_heads(emit, v, groups)?]);
    }
    let width = emit.extents(q)?.last().copied().unwrap_or(0);
    let all = count.saturating_add(groups.saturating_mul(2));
    if emit.rank(q)? != 3 || width < 1 || width % all != 0 {
        return malformed(format!("{} does not hold {all} heads", emit.ty(q)?));
    }
    let size = width / all;
    let mut part = |first: i64, heads: i64| {
        let part = emit.slice(q, 2, first * size, (first + heads) * size)?;
        split_heads(emit, part, heads)
    };
    Ok([part(0, count)?, part(count, groups)?, part(count + groups, groups)?])
}

/// Lengths that are known must be those of the tensors. Without a past a sequence may be shorter: no token looks at what is
/// behind it.
fn check_lengths(emit: &Emit<'_>, call: &Call<'_>, past: i64, total: i64) -> Outcome<()> {
    for (index, shift) in [(5, 1), (6, 0)] {
        let Some(id) = call.optional(index) else { continue };
        let Some(known) = emit.numbers(id)? else { continue };
        let fits = |&length: &f64| {
            let length = (length as i64).saturating_add(shift);
            length == total || (index == 5 && past == 0 && (1..=total).contains(&length))
        };
        if !known.iter().all(fits) {
            return unsupported(format!(
                "sequences of other lengths than the {total} places of its tensors; give the past the shape of what it holds"
            ));
        }
    }
    Ok(())
}

/// `input, position ids, cos, sin`
pub(super) fn rotary(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    if call.float("scale", 1.0) != 1.0 || call.flag("is_packed_batching") {
        return unsupported("scaled positions, or sequences packed into one");
    }
    let (x, places, cos) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let extents = emit.extents(x)?;
    let half = emit.extents(cos)?.last().copied().unwrap_or(0);
    let count = match (call.int("num_heads", 0), extents.last()) {
        (0, Some(&width)) if half > 0 => width / half.saturating_mul(2),
        (count, _) => count,
    };
    if count < 1 {
        return malformed(format!("{count} heads"));
    }
    let split = split_heads(emit, x, count)?;
    let turn = AngleTables { cos, sin: call.input(3)?, interleaved: call.flag("interleaved") };
    let places = match emit.extents(places)?[..] {
        [] | [1] => match emit.numbers(places)? {
            Some(first) => TokenPlaces::From(first[0] as i64),
            None => {
                let tokens = emit.extents(split)?[2];
                let numbers = counted(emit, tokens, &[tokens])?;
                let first = emit.cast(places, DType::I64)?;
                let all = emit.binary(BinaryOp::Add, numbers, first)?;
                TokenPlaces::Given(emit.reshape(all, &[1, tokens])?)
            }
        },
        _ => TokenPlaces::Given(places),
    };
    let y = turned(emit, split, &places, &turn)?;
    Ok(vec![if extents.len() == 3 { join_heads(emit, y)? } else { y }])
}

/// Tables of angles, one row for each place.
struct AngleTables {
    cos: ValueId,
    sin: ValueId,
    interleaved: bool,
}

enum TokenPlaces {
    /// Neighbouring places from this one on.
    From(i64),
    /// One for each token of each sequence, or of all of them.
    Given(ValueId),
}

/// `x[n, h, s, d]` with pairs of elements turned by the angles of their places.
fn turned(emit: &mut Emit<'_>, x: ValueId, places: &TokenPlaces, turn: &AngleTables) -> Outcome<ValueId> {
    let [_, _, tokens, _] = emit.extents(x)?[..] else { return malformed("the data must have 4 dimensions") };
    let mut tables = Vec::new();
    let mut half = 0;
    for table in [turn.cos, turn.sin] {
        let [rows, columns] = emit.extents(table)?[..] else { return malformed("angles must have 2 dimensions") };
        half = columns;
        tables.push(match places {
            TokenPlaces::From(first) => {
                if *first < 0 || first.saturating_add(tokens) > rows {
                    return malformed(format!(
                        "{tokens} places from {first} on are not among the {rows} of the angles"
                    ));
                }
                let own = emit.slice(table, 0, *first, first + tokens)?;
                emit.reshape(own, &[1, 1, tokens, half])?
            }
            TokenPlaces::Given(places) => {
                let own = emit.push(Op::Gather(Gather { axis: 0 }), &[table, *places])?;
                let [n, s, half] = emit.extents(own)?[..] else { return malformed("places must have 2 dimensions") };
                emit.reshape(own, &[n, 1, s, half])?
            }
        });
    }
    let rotary = half.saturating_mul(2);
    emit.push(Op::Rope(Rope { rotary, interleaved: turn.interleaved }), &[x, tables[0], tables[1]])
}
