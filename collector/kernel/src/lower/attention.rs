//! Lowers attention as one task, and rotary position embeddings. Scores, maxima, exponentials, sums and weighted values
//! are separate blocks, so that a schedule can compute them for one head, or one query, at a time.

use super::pointwise::{apply_unary, broadcast_read, convert, drop_tiny_weight, read_wide, wide_type};
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{
    Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, lowest_number, reduce_axes,
};
use job::space::Layout;
use models::operators::{Attention, Rope};
use models::{DType, Op, UnaryOp};
use schedules::tiles::filled_extent;

/// Natural logarithm of the least weight that counts. The products of such weights with values are normal numbers.
const LEAST_WEIGHT_LOG: f64 = -60.0;

/// Name of the block that converts queries of half precision; only blocked layouts have it.
pub(crate) const QUERIES_BLOCK: &str = "attention_queries";

/// Name of the block that pads the mask; only blocked layouts have it.
pub(crate) const MASK_BLOCK: &str = "attention_mask";

pub(super) fn lower_attention(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    match op {
        Op::Attention(attributes) => attend_queries(writer, attributes, inputs, output),
        Op::Rope(Rope { rotary, interleaved }) => rotate_positions(writer, *rotary, *interleaved, inputs, output),
        _ => return Ok(None),
    }
    .map(Some)
}

/// Builds the condition that query `own` attends to key position `place`; None if all queries attend to all positions.
fn sight_condition(
    attributes: &Attention,
    own: &Expression,
    place: &Expression,
    places: Option<i64>,
) -> std::result::Result<Option<Expression>, TvmError> {
    let mut seen = None;
    if attributes.causal {
        seen = Some(place.at_most(own)?);
    }
    if let (Some(window), Some(places)) = (attributes.window, places) {
        // A window beyond all places is none; the difference must fit an index.
        let first = own.sub(&index_constant(window.min(2 * places))?)?;
        seen = Some(super::movement::join_conditions(seen, place.greater(&first)?)?);
    }
    Ok(seen)
}

fn attend_queries(writer: &mut Writer, attributes: &Attention, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let dtype = wide_type(output.dtype);
    let [batch, heads, rows] = [0, 1, 2].map(|d| output.extents[d].clone());
    let places = k.extents[2].clone();
    let shared = writer.known_extent(&heads)? / writer.known_extent(&k.extents[1])?;
    let sizes = match attributes.window {
        Some(_) => Some(writer.known_extent(&places)?.max(writer.known_extent(&rows)?)),
        None => None,
    };
    // Turned keys can be read as vectors of places; zeros make these a multiple of the vector.
    let (stored, is_turned) = if let Layout::Blocked { block } = writer.layout {
        let places = writer.known_extent(&places)?;
        (Extent::Known(filled_extent(places, block)), true)
    } else {
        (places.clone(), false)
    };
    let is_padded = is_turned && !stored.is_always(writer.known_extent(&places)?);
    let source =
        |head: &Expression| if shared == 1 { Ok(head.clone()) } else { head.floor_div(&index_constant(shared)?) };
    let all = [batch.clone(), heads.clone(), rows.clone(), stored.clone()];
    let seen = |i: &[Expression], place: &Expression| {
        let earlier = match (&places, &rows) {
            (Extent::Known(places), Extent::Known(rows)) => index_constant(places - rows)?,
            (places, rows) => places.as_expression()?.sub(&rows.as_expression()?)?,
        };
        let seen = sight_condition(attributes, &i[2].add(&earlier)?, place, sizes)?;
        if !is_padded {
            return Ok(seen);
        }
        super::movement::join_conditions(seen, place.less(&places.as_expression()?)?).map(Some)
    };
    let width = loop_axis("d", &q.extents[3], true)?;
    let (keys, queries) = if is_turned {
        let keys = transpose_keys(writer, &output.block_name("attention_keys"), k, &stored, dtype)?;
        (keys, widen_queries(writer, output, q, dtype)?)
    } else {
        (k.clone(), q.clone())
    };
    let mask = match inputs.get(3) {
        Some(mask) if is_padded && !mask.extents.last().is_some_and(|last| last.is_always(1)) => {
            Some(pad_mask(writer, &output.block_name(MASK_BLOCK), mask, &stored)?)
        }
        mask => mask.cloned(),
    };
    let products = writer.add_block(&output.block_name("attention_products"), Part::Helper, (dtype, &all), |i| {
        let left = read_wide(&queries, &[i[0].clone(), i[1].clone(), i[2].clone(), width.variable.clone()])?;
        let (place, part) = (i[3].clone(), width.variable.clone());
        let at = if is_turned { [part, place] } else { [place, part] };
        let right = read_wide(&keys, &[&[i[0].clone(), source(&i[1])?], &at[..]].concat())?;
        reduce_axes(Reduction::Sum, dtype, &left.mul(&right)?, std::slice::from_ref(&width))
    })?;
    let scores = writer.add_block(&output.block_name("attention_scores"), Part::Helper, (dtype, &all), |i| {
        let mut score = products.element_at(i)?.mul(&constant(dtype, attributes.scale)?)?;
        if let Some(softcap) = attributes.softcap {
            let bent = apply_unary(UnaryOp::Tanh, &score.mul(&constant(dtype, 1.0 / softcap)?)?, dtype)?;
            score = bent.mul(&constant(dtype, softcap)?)?;
        }
        if let Some(mask) = &mask {
            score = score.add(&convert(broadcast_read(mask, i)?, mask.dtype, dtype)?)?;
        }
        match seen(i, &i[3])? {
            Some(seen) => seen.select(&score, &lowest_number(dtype)?),
            None => Ok(score),
        }
    })?;
    let row = [batch, heads, rows.clone()];
    let place = loop_axis("t", &stored, true)?;
    let at =
        |i: &[Expression], place: &Expression| -> Vec<Expression> { i[..3].iter().chain([place]).cloned().collect() };
    let largest = writer.add_block(&output.block_name("attention_largest"), Part::Helper, (dtype, &row), |i| {
        reduce_axes(Reduction::Max, dtype, &scores.element_at(&at(i, &place.variable))?, std::slice::from_ref(&place))
    })?;
    let weights = writer.add_block(&output.block_name("attention_weights"), Part::Helper, (dtype, &all), |i| {
        let difference = scores.element_at(i)?.sub(&largest.element_at(&i[..3])?)?;
        let weight = apply_unary(UnaryOp::Exp, &difference, dtype)?;
        let weight = drop_tiny_weight(&weight, &difference, LEAST_WEIGHT_LOG, dtype)?;
        // A query that sees nothing has no weight either, although its lowest scores are all equal.
        match seen(i, &i[3])? {
            Some(seen) => seen.select(&weight, &constant(dtype, 0.0)?),
            None => Ok(weight),
        }
    })?;
    let place = loop_axis("t", &stored, true)?;
    let sum = writer.add_block(&output.block_name("attention_sum"), Part::Helper, (dtype, &row), |i| {
        reduce_axes(Reduction::Sum, dtype, &weights.element_at(&at(i, &place.variable))?, std::slice::from_ref(&place))
    })?;
    let place = loop_axis("t", &places, true)?;
    let results = (dtype, &output.extents[..]);
    let weighted = writer.add_block(&output.block_name("attention_values"), Part::Anchor, results, |i| {
        let value = read_wide(v, &[i[0].clone(), source(&i[1])?, place.variable.clone(), i[3].clone()])?;
        let weight = weights.element_at(&at(i, &place.variable))?;
        reduce_axes(Reduction::Sum, dtype, &weight.mul(&value)?, std::slice::from_ref(&place))
    })?;
    writer.add_block(&output.block_name("attention"), Part::Epilogue, output.element_type(), |i| {
        let sum = sum.element_at(&i[..3])?;
        // Only a query that sees nothing has a sum of zero; any other has at least the weight of its maximum, one.
        let sum = if attributes.causal || attributes.window.is_some() || inputs.len() > 3 {
            sum.equal(&constant(dtype, 0.0)?)?.select(&constant(dtype, 1.0)?, &sum)?
        } else {
            sum
        };
        convert(weighted.element_at(i)?.div(&sum)?, dtype, output.dtype)
    })
}

/// Converts queries of half precision to `dtype` once: a tile multiplies single elements of them by vectors of keys, and
/// a conversion of one element takes as long as such a product.
fn widen_queries(writer: &mut Writer, output: &Output, queries: &Tensor, dtype: DType) -> Result<Tensor> {
    if queries.dtype == dtype {
        return Ok(queries.clone());
    }
    let name = output.block_name(QUERIES_BLOCK);
    writer.add_block(&name, Part::Helper, (dtype, &queries.extents), |i| queries.element_at(i)?.cast(dtype))
}

/// Transposes keys so that positions are the last dimension, which is padded with zeros, and converts them to `dtype`.
fn transpose_keys(writer: &mut Writer, name: &str, keys: &Tensor, stored: &Extent, dtype: DType) -> Result<Tensor> {
    let places = writer.known_extent(&keys.extents[2])?;
    let extents = [keys.extents[0].clone(), keys.extents[1].clone(), keys.extents[3].clone(), stored.clone()];
    writer.add_block(name, Part::Helper, (dtype, &extents), |i| {
        let key = read_wide(keys, &[i[0].clone(), i[1].clone(), i[3].clone(), i[2].clone()])?;
        if stored.is_always(places) {
            return Ok(key);
        }
        i[3].less(&index_constant(places)?)?.if_then_else(&key, &constant(dtype, 0.0)?)
    })
}

/// Copies a mask with its rows padded to `stored` positions. A clamped index into the mask does not work: where the
/// position is also compared with the bound, TVM removes the clamp and reads past the mask.
fn pad_mask(writer: &mut Writer, name: &str, mask: &Tensor, stored: &Extent) -> Result<Tensor> {
    let (places, leading) = mask.extents.split_last().expect("a mask has at least one dimension");
    let extents: Vec<Extent> = leading.iter().chain([stored]).cloned().collect();
    writer.add_block(name, Part::Helper, (mask.dtype, &extents), |i| {
        let place = i.last().expect("at least one dimension");
        let element = mask.element_at(i)?;
        place.less(&places.as_expression()?)?.if_then_else(&element, &constant(mask.dtype, 0.0)?)
    })
}

fn rotate_positions(
    writer: &mut Writer,
    rotary: i64,
    interleaved: bool,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Tensor> {
    let [data, cos, sin] = inputs else { unreachable!("rope has three inputs") };
    let half = rotary / 2;
    let last = writer.known_extent(output.extents.last().expect("at least one dimension"))?;
    writer.add_block(&output.block_name("rope"), output.block_part(), output.element_type(), |i| {
        let (own, leading) = i.split_last().expect("at least one dimension");
        let with = |last: Expression| -> Vec<Expression> { leading.iter().cloned().chain([last]).collect() };
        let half_index = index_constant(half)?;
        // The index of an element's pair, whether the element is the first one of the pair, and the position of the
        // other. Reads must not be inside one branch of a select, because TVM simplifies their index under the
        // branch's condition and then reads it for both branches.
        let (pair, is_first, other) = if interleaved {
            let pair = own.floor_div(&index_constant(2)?)?;
            let step = own.floor_mod(&index_constant(2)?)?;
            let other = own.add(&index_constant(1)?)?.sub(&step.mul(&index_constant(2)?)?)?;
            (pair, step.equal(&index_constant(0)?)?, other)
        } else {
            let other = own.add(&half_index)?.floor_mod(&index_constant(rotary)?)?;
            (own.floor_mod(&half_index)?, own.less(&half_index)?, other)
        };
        // Beyond the turned elements there is no angle, and perhaps no other element.
        let is_partial = rotary < last;
        let pair = if is_partial { pair.min(&index_constant(half - 1)?)? } else { pair };
        let other = if is_partial { other.min(&index_constant(last - 1)?)? } else { other };
        let place = with(pair);
        let sign = is_first.select(&constant(output.dtype, -1.0)?, &constant(output.dtype, 1.0)?)?;
        let crossed = data.element_at(&with(other))?.mul(&broadcast_read(sin, &place)?)?.mul(&sign)?;
        let turned = data.element_at(i)?.mul(&broadcast_read(cos, &place)?)?.add(&crossed)?;
        if !is_partial {
            return Ok(turned);
        }
        own.less(&index_constant(rotary)?)?.if_then_else(&turned, &data.element_at(i)?)
    })
}
