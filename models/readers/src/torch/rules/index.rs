//! Elements by their numbers, and choices between tensors.

use super::{Call, Outputs, own, push};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    Expand, Gather, GatherElements, GatherNd, OneHot, Op, ScatterElements, ScatterNd, ScatterOp, Where,
};
use models::types::DType;

pub(super) fn embedding(call: &mut Call<'_, '_>) -> Outputs {
    let (table, numbers) = (call.tensor("weight")?, call.tensor("indices")?);
    push(call, Op::Gather(Gather { axis: 0 }), &[table, numbers])
}

pub(super) fn index_select(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor("self")?, call.tensor("index")?);
    let axis = call.axis(x, "dim", 0)? as i64;
    push(call, Op::Gather(Gather { axis }), &[x, numbers])
}

/// Other dimensions of the indices may be shorter than those of the data.
pub(super) fn gather(call: &mut Call<'_, '_>) -> Outputs {
    let (mut x, numbers) = (call.tensor("self")?, call.tensor("index")?);
    let axis = call.axis(x, "dim", 0)?;
    for (at, extent) in call.emit.extents(numbers)?.into_iter().enumerate() {
        if at != axis {
            x = call.emit.slice(x, at, 0, extent)?;
        }
    }
    push(call, Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, numbers])
}

/// Dimensions that have indices, brought to the front, and the indices joined: `[places…, how many]`.
struct Places {
    /// The data with its indexed dimensions first.
    data: ValueId,
    numbers: ValueId,
    /// How many dimensions the places have.
    rank: usize,
    /// Where they stand in the result.
    at: usize,
}

fn places(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<Option<Places>> {
    let given = call.optional_tensors("indices")?;
    let indexed: Vec<(usize, ValueId)> =
        given.iter().enumerate().filter_map(|(axis, id)| id.map(|id| (axis, id))).collect();
    let rank = call.emit.rank(x)?;
    if indexed.iter().any(|(axis, _)| *axis >= rank) {
        return malformed(format!("{} indices are too many for {rank} dimensions", given.len()));
    }
    for (_, id) in &indexed {
        if matches!(call.emit.dtype(*id)?, DType::Bool | DType::U8) {
            return unsupported("the size of its result depends on a mask");
        }
    }
    let Some(&(first, _)) = indexed.first() else { return Ok(None) };
    // Indices of several dimensions broadcast to each other.
    let mut shape: Vec<i64> = Vec::new();
    for (_, id) in &indexed {
        let own = call.emit.ty(*id)?;
        let known = models::types::TensorType::new(own.dtype, &shape);
        let both = models::shapes::broadcast(&known.shape, &own.shape).or_else(malformed)?;
        shape = models::types::TensorType { dtype: own.dtype, shape: both }.extents().unwrap_or_default();
    }
    let mut columns = Vec::new();
    for (_, id) in &indexed {
        let mut id = call.emit.cast(*id, DType::I64)?;
        if call.emit.extents(id)? != shape {
            id = call.emit.push(Op::Expand(Expand { shape: shape.clone() }), &[id])?;
        }
        columns.push(call.emit.reshape(id, &[shape.as_slice(), &[1]].concat())?);
    }
    let numbers = call.emit.concat(&columns, shape.len())?;
    let axes: Vec<usize> = indexed.iter().map(|(axis, _)| *axis).collect();
    let rest = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = axes.iter().copied().chain(rest).collect();
    let data = call.emit.transpose(x, &order)?;
    // Neighbouring indices keep their place; others move to the front.
    let is_together = axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    Ok(Some(Places { data, numbers, rank: shape.len(), at: if is_together { first } else { 0 } }))
}

pub(super) fn index(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let given = call.optional_tensors("indices")?;
    let indexed: Vec<(usize, ValueId)> =
        given.iter().enumerate().filter_map(|(axis, id)| id.map(|id| (axis, id))).collect();
    if let [(axis, numbers)] = indexed[..]
        && !matches!(call.emit.dtype(numbers)?, DType::Bool | DType::U8)
    {
        return push(call, Op::Gather(Gather { axis: axis as i64 }), &[x, numbers]);
    }
    let Some(places) = places(call, x)? else { return own(x) };
    let y = call.emit.push(Op::GatherNd(GatherNd { batch: 0 }), &[places.data, places.numbers])?;
    // `[places…, rest…]` becomes `[rest before, places…, rest after]`.
    let rank = call.emit.rank(y)?;
    let before = places.rank..places.rank + places.at;
    let after = places.rank + places.at..rank;
    let order: Vec<usize> = before.chain(0..places.rank).chain(after).collect();
    own(call.emit.transpose(y, &order)?)
}

pub(super) fn index_put(call: &mut Call<'_, '_>) -> Outputs {
    let (x, values) = (call.tensor("self")?, call.tensor("values")?);
    let combine = if call.flag("accumulate", false)? { ScatterOp::Add } else { ScatterOp::Replace };
    let Some(places) = places(call, x)? else { return unsupported("it has no indices") };
    if call.emit.extents(places.data)? != call.emit.extents(x)? || places.at != 0 {
        return unsupported("its indices are not those of the first dimensions");
    }
    let mut shape = call.emit.extents(places.numbers)?;
    let count = shape.pop().unwrap_or(0);
    shape.extend(&call.emit.extents(x)?[usize::try_from(count).unwrap_or(0)..]);
    let dtype = call.emit.dtype(x)?;
    let mut values = call.emit.cast(values, dtype)?;
    if call.emit.extents(values)? != shape {
        values = call.emit.push(Op::Expand(Expand { shape }), &[values])?;
    }
    push(call, Op::ScatterNd(ScatterNd { combine }), &[x, places.numbers, values])
}

pub(super) fn scatter(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor("self")?, call.tensor("index")?);
    let axis = call.axis(x, "dim", 0)? as i64;
    let dtype = call.emit.dtype(x)?;
    let extents = call.emit.extents(numbers)?;
    let updates = match call.optional_tensor("src")? {
        Some(mut source) => {
            for (at, extent) in extents.iter().enumerate() {
                source = call.emit.slice(source, at, 0, *extent)?;
            }
            source
        }
        None => {
            let number = call.float("value", 0.0)?;
            call.emit.filled(dtype, &extents, number)?
        }
    };
    let combine = match (call.operator, call.text("reduce", "")?.as_str()) {
        ("scatter_add", _) | (_, "add") => ScatterOp::Add,
        (_, "") => ScatterOp::Replace,
        (_, "multiply") => ScatterOp::Mul,
        (_, other) => return unsupported(format!("`reduce` is `{other}`")),
    };
    push(call, Op::ScatterElements(ScatterElements { axis, combine }), &[x, numbers, updates])
}

pub(super) fn one_hot(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor("self")?;
    let depth = call.int("num_classes", -1)?;
    if depth < 1 {
        return unsupported("how many classes there are depends on the data");
    }
    push(call, Op::OneHot(OneHot { axis: -1, depth, on: 1.0, off: 0.0, to: DType::I64 }), &[x])
}

pub(super) fn masked_fill(call: &mut Call<'_, '_>) -> Outputs {
    let (x, mask) = (call.tensor("self")?, call.tensor("mask")?);
    let dtype = call.emit.dtype(x)?;
    let value = call.operand("value", dtype)?;
    push(call, Op::Where(Where {}), &[mask, value, x])
}

pub(super) fn choose(call: &mut Call<'_, '_>) -> Outputs {
    let condition = call.operand("condition", DType::Bool)?;
    if !call.has("self") && !call.has("other") {
        return unsupported("the size of its result depends on the data");
    }
    let dtype = call.result_dtype()?;
    let (yes, no) = (call.operand("self", dtype)?, call.operand("other", dtype)?);
    push(call, Op::Where(Where {}), &[condition, yes, no])
}
