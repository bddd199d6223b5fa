//! Operators that read or write elements by index, and selections between tensors.

use super::{Call, Memory, Outputs, RuleOutput, own_output, push_output};
use crate::emit::nonzero_indices;
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{Gather, GatherElements, GatherNd, OneHot, Op, ScatterElements, ScatterNd, ScatterOp, Where};
use models::types::DType;

pub(super) fn embedding(call: &mut Call<'_, '_>) -> Outputs {
    let (table, numbers) = (call.tensor_argument("weight")?, call.tensor_argument("indices")?);
    push_output(call, Op::Gather(Gather { axis: 0 }), &[table, numbers])
}

pub(super) fn index_select(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("index")?);
    let axis = call.axis_argument(x, "dim", 0)? as i64;
    push_output(call, Op::Gather(Gather { axis }), &[x, numbers])
}

/// Gathers along one axis. In other dimensions, the index may have smaller extents than the data.
pub(super) fn gather(call: &mut Call<'_, '_>) -> Outputs {
    let (mut x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("index")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    for (at, extent) in call.emit.extents(numbers)?.into_iter().enumerate() {
        if at != axis {
            x = call.emit.slice(x, at, 0, extent)?;
        }
    }
    push_output(call, Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, numbers])
}

/// Operands of indexing: the data, indexed dimensions first, and the indices of all these: `[positions…, count]`.
struct Places {
    data: ValueId,
    numbers: ValueId,
    rank: usize,
    at: usize,
    /// Dimensions of the original data in the order of `data`.
    order: Vec<usize>,
}

/// Returns each index with the axis that it indexes. A constant mask becomes one index per axis of the mask.
fn resolve_indices(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<Vec<(usize, ValueId)>> {
    let whole = call.emit.extents(x)?;
    let (mut indexed, mut axis) = (Vec::new(), 0);
    for id in call.optional_tensors("indices")? {
        let Some(id) = id else {
            axis += 1;
            continue;
        };
        if !matches!(call.emit.dtype(id)?, DType::Bool | DType::U8) {
            indexed.push((axis, id));
            axis += 1;
            continue;
        }
        let Some(mask) = call.emit.known_numbers(id)? else {
            return unsupported("the size of the result depends on a mask; `--skip-unsupported` leaves the node out");
        };
        let extents = call.emit.extents(id)?;
        if extents.is_empty() || !whole.get(axis..).is_some_and(|rest| rest.starts_with(&extents)) {
            return malformed(format!("a mask of shape {extents:?} does not fit the shape {whole:?}"));
        }
        for places in nonzero_indices(&mask, &extents) {
            indexed.push((axis, call.emit.add_integers(&places)?));
            axis += 1;
        }
    }
    if axis > whole.len() {
        return malformed(format!("{axis} indices exceed the {} dimensions", whole.len()));
    }
    Ok(indexed)
}

/// Combines the indices of several axes; None if there are no indices.
fn index_places(call: &mut Call<'_, '_>, x: ValueId, indexed: &[(usize, ValueId)]) -> Outcome<Option<Places>> {
    let rank = call.emit.rank(x)?;
    let Some(&(first, _)) = indexed.first() else { return Ok(None) };
    // Indices of several dimensions broadcast to each other.
    let mut shape: Vec<i64> = Vec::new();
    for (_, id) in indexed {
        let own = call.emit.ty(*id)?;
        let known = models::types::TensorType::new(own.dtype, &shape);
        let both = models::shapes::broadcast_shapes(&known.shape, &own.shape).or_else(malformed)?;
        shape = models::types::TensorType { dtype: own.dtype, shape: both }.extents().unwrap_or_default();
    }
    let mut columns = Vec::new();
    for (_, id) in indexed {
        let id = call.emit.cast(*id, DType::I64)?;
        let id = call.emit.expand(id, &shape)?;
        columns.push(call.emit.reshape(id, &[shape.as_slice(), &[1]].concat())?);
    }
    let numbers = call.emit.concat_parts(&columns, shape.len())?;
    let axes: Vec<usize> = indexed.iter().map(|(axis, _)| *axis).collect();
    let rest = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = axes.iter().copied().chain(rest).collect();
    let data = call.emit.transpose(x, &order)?;
    // The result axes of adjacent indices stay at their position; those of separated indices move to the front.
    let is_together = axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    Ok(Some(Places { data, numbers, rank: shape.len(), at: if is_together { first } else { 0 }, order }))
}

pub(super) fn index_tensor(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let indexed = resolve_indices(call, x)?;
    if let [(axis, numbers)] = indexed[..] {
        return push_output(call, Op::Gather(Gather { axis: axis as i64 }), &[x, numbers]);
    }
    let Some(places) = index_places(call, x, &indexed)? else { return own_output(x) };
    let y = call.emit.push(Op::GatherNd(GatherNd { batch: 0 }), &[places.data, places.numbers])?;
    // `[places…, rest…]` becomes `[rest before, places…, rest after]`.
    let rank = call.emit.rank(y)?;
    let before = places.rank..places.rank + places.at;
    let after = places.rank + places.at..rank;
    let order: Vec<usize> = before.chain(0..places.rank).chain(after).collect();
    own_output(call.emit.transpose(y, &order)?)
}

pub(super) fn index_put(call: &mut Call<'_, '_>) -> Outputs {
    let (x, values) = (call.tensor_argument("self")?, call.tensor_argument("values")?);
    let combine = if call.flag_argument("accumulate", false)? { ScatterOp::Add } else { ScatterOp::Replace };
    let dtype = call.emit.dtype(x)?;
    let values = call.emit.cast(values, dtype)?;
    if let Some(mask) = single_mask(call, x)?
        && call.emit.ty(values)?.element_count() == Some(1)
        && combine == ScatterOp::Replace
    {
        let value = call.emit.reshape(values, &[])?;
        return push_output(call, Op::Where(Where {}), &[mask, value, x]);
    }
    let indexed = resolve_indices(call, x)?;
    let Some(places) = index_places(call, x, &indexed)? else { return unsupported("an empty list of indices") };
    // The values have the shape that the same indices would read: `[rest before, places…, rest after]`.
    let mut found = call.emit.extents(places.numbers)?;
    let count = usize::try_from(found.pop().unwrap_or(0)).unwrap_or(0);
    let rest = call.emit.extents(places.data)?[count..].to_vec();
    let shape = [&rest[..places.at], &found, &rest[places.at..]].concat();
    let values = call.emit.expand(values, &shape)?;
    let own_places = places.at..places.at + places.rank;
    let to_front: Vec<usize> = own_places.clone().chain(0..places.at).chain(own_places.end..shape.len()).collect();
    let values = call.emit.transpose(values, &to_front)?;
    let y = call.emit.push(Op::ScatterNd(ScatterNd { combine }), &[places.data, places.numbers, values])?;
    own_output(call.emit.transpose_back(y, &places.order)?)
}

/// Returns the index as a mask with the rank of the data, if it is the only index and a mask of leading dimensions.
fn single_mask(call: &mut Call<'_, '_>, x: ValueId) -> Outcome<Option<ValueId>> {
    let [Some(mask)] = call.optional_tensors("indices")?[..] else { return Ok(None) };
    let (mut extents, whole) = (call.emit.extents(mask)?, call.emit.extents(x)?);
    if call.emit.dtype(mask)? != DType::Bool || !whole.starts_with(&extents) {
        return Ok(None);
    }
    extents.resize(whole.len(), 1);
    call.emit.reshape(mask, &extents).map(Some)
}

pub(super) fn scatter_elements(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("index")?);
    let axis = call.axis_argument(x, "dim", 0)? as i64;
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
            let number = call.float_argument("value", 0.0)?;
            call.emit.add_filled(dtype, &extents, number)?
        }
    };
    let combine = match (call.operator, call.text_argument("reduce", "")?.as_str()) {
        ("scatter_add", _) | (_, "add") => ScatterOp::Add,
        (_, "") => ScatterOp::Replace,
        (_, "multiply") => ScatterOp::Mul,
        (_, other) => return unsupported(format!("`reduce` with the value `{other}`")),
    };
    push_output(call, Op::ScatterElements(ScatterElements { axis, combine }), &[x, numbers, updates])
}

pub(super) fn one_hot(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let depth = call.int_argument("num_classes", -1)?;
    if depth < 1 {
        return unsupported("the number of classes depends on input data");
    }
    push_output(call, Op::OneHot(OneHot { axis: -1, depth, on: 1.0, off: 0.0, to: DType::I64 }), &[x])
}

pub(super) fn masked_fill(call: &mut Call<'_, '_>) -> Outputs {
    let (x, mask) = (call.tensor_argument("self")?, call.tensor_argument("mask")?);
    let dtype = call.emit.dtype(x)?;
    let value = call.operand_as("value", dtype)?;
    push_output(call, Op::Where(Where {}), &[mask, value, x])
}

pub(super) fn select_where(call: &mut Call<'_, '_>) -> Outputs {
    let condition = call.operand_as("condition", DType::Bool)?;
    if !call.has_argument("self") && !call.has_argument("other") {
        return unsupported("the size of the result depends on input data");
    }
    let dtype = call.result_dtype()?;
    let (yes, no) = (call.operand_as("self", dtype)?, call.operand_as("other", dtype)?);
    push_output(call, Op::Where(Where {}), &[condition, yes, no])
}

/// Returns the results of one branch of a condition. If the predicate is not known, selects between both results.
pub(super) fn choose_branch(call: &mut Call<'_, '_>) -> Outputs {
    let (then, otherwise) = (call.tensor_list("then")?, call.tensor_list("otherwise")?);
    let predicate = match call.arguments.get("predicate") {
        Some(super::Argument::Tensor(id)) => Err(*id),
        _ => Ok(call.flag_argument("predicate", false)?),
    };
    let known = match predicate {
        Ok(flag) => Some(flag),
        Err(id) => call.emit.known_numbers(id)?.and_then(|numbers| numbers.first().map(|number| *number != 0.0)),
    };
    let mut made = Vec::new();
    for (yes, no) in then.into_iter().zip(otherwise) {
        let id = match (known, predicate) {
            (Some(true), _) => yes,
            (Some(false), _) => no,
            (None, Err(predicate)) => {
                let predicate = call.emit.cast(predicate, DType::Bool)?;
                call.emit.push(Op::Where(Where {}), &[predicate, yes, no])?
            }
            (None, Ok(_)) => return malformed("the predicate is not a boolean"),
        };
        made.push(RuleOutput { id, window: Memory::Own });
    }
    Ok(made)
}

pub(super) fn index_rows(call: &mut Call<'_, '_>, combine: ScatterOp) -> Outputs {
    let (x, numbers, mut source) =
        (call.tensor_argument("self")?, call.tensor_argument("index")?, call.tensor_argument("source")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    let alpha = call.float_argument("alpha", 1.0)?;
    let emit = &mut *call.emit;
    if alpha != 1.0 {
        source = emit.binary_with(models::operators::BinaryOp::Mul, source, alpha)?;
    }
    let mut order: Vec<usize> = (0..emit.rank(x)?.max(1)).collect();
    order.swap(0, axis);
    let count = emit.extents(numbers)?.iter().product::<i64>();
    let places = emit.reshape(numbers, &[count, 1])?;
    let places = emit.cast(places, DType::I64)?;
    let (data, updates) = (emit.transpose(x, &order)?, emit.transpose(source, &order)?);
    let y = emit.push(Op::ScatterNd(ScatterNd { combine }), &[data, places, updates])?;
    own_output(emit.transpose(y, &order)?)
}

pub(super) fn index_fill(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("index")?);
    let axis = call.axis_argument(x, "dim", 0)?;
    let dtype = call.emit.dtype(x)?;
    let value = call.operand_as("value", dtype)?;
    let emit = &mut *call.emit;
    let mut shape = emit.extents(x)?;
    let rows = emit.extents(numbers)?.iter().product();
    let Some(extent) = shape.get_mut(axis) else { return unsupported("a scalar has no rows") };
    *extent = rows;
    let source = emit.expand(value, &shape)?;
    call.arguments.insert("source", super::Argument::Tensor(source));
    index_rows(call, ScatterOp::Replace)
}

/// Gathers along a dimension by indices that broadcast; without a dimension, both operands are flattened.
pub(super) fn take_along(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("indices")?);
    let Some(axis) = call.optional_int("dim")? else {
        let count: i64 = call.emit.extents(x)?.iter().product();
        let flat = call.emit.reshape(x, &[count])?;
        let places = call.emit.extents(numbers)?.iter().product();
        let numbers = call.emit.reshape(numbers, &[places])?;
        return push_output(call, Op::Gather(Gather { axis: 0 }), &[flat, numbers]);
    };
    let emit = &mut *call.emit;
    let (mut data_shape, mut shape) = (emit.extents(x)?, emit.extents(numbers)?);
    let axis = emit.resolve_axis(axis, data_shape.len())?;
    if shape.len() != data_shape.len() {
        return malformed("`indices` and the input differ in their number of dimensions");
    }
    for at in (0..shape.len()).filter(|&at| at != axis) {
        let most = shape[at].max(data_shape[at]);
        (shape[at], data_shape[at]) = (most, most);
    }
    let (x, numbers) = (emit.expand(x, &data_shape)?, emit.expand(numbers, &shape)?);
    push_output(call, Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, numbers])
}

pub(super) fn take_flat(call: &mut Call<'_, '_>) -> Outputs {
    let (x, numbers) = (call.tensor_argument("self")?, call.tensor_argument("index")?);
    let count: i64 = call.emit.extents(x)?.iter().product();
    let flat = call.emit.reshape(x, &[count])?;
    push_output(call, Op::Gather(Gather { axis: 0 }), &[flat, numbers])
}
