//! Reductions over whole dimensions, sorting, norms and running extremes.

use super::pointwise::log_of_sum;
use super::{Call, Memory, Outputs, RuleOutput, own_output, push_output};
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;
use models::operators::{
    ArgReduce, ArgTop, BinaryOp, CompareOp, CumSum, GatherElements, Identity, Op, Reduce, ReduceOp, UnaryOp, Where,
};
use models::types::DType;

/// Maximum extent of running products and extremes, which are unrolled element by element.
const MAX_RUNNING: i64 = 1024;

pub(super) fn reduce(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let dtype = call.result_dtype()?;
    if dtype == DType::Bool && matches!(function, ReduceOp::Max | ReduceOp::Min) {
        return reduce_flags(call, function);
    }
    let x = call.emit.cast(x, dtype)?;
    own_output(reduce_input(call, function, x)?)
}

fn reduce_input(call: &mut Call<'_, '_>, function: ReduceOp, x: ValueId) -> Outcome<ValueId> {
    let axes = call.axis_list(x, "dim")?;
    if axes.is_empty() {
        // A scalar has no dimension to reduce.
        return call.emit.push(Op::Identity(Identity {}), &[x]);
    }
    let keep = call.flag_argument("keepdim", false)?;
    call.emit.push(Op::Reduce(Reduce { function, axes, keep }), &[x])
}

fn reduce_flags(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.operand_as("self", DType::Bool)?;
    let x = call.emit.cast(x, DType::I32)?;
    let y = reduce_input(call, function, x)?;
    own_output(call.emit.cast(y, DType::Bool)?)
}

pub(super) fn any_set(call: &mut Call<'_, '_>) -> Outputs {
    reduce_flags(call, ReduceOp::Max)
}

pub(super) fn all_set(call: &mut Call<'_, '_>) -> Outputs {
    reduce_flags(call, ReduceOp::Min)
}

pub(super) fn arg_reduce(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    let x = call.tensor_argument("self")?;
    if let Some(axis) = call.optional_int("dim")? {
        let axis = call.emit.resolve_axis(axis, call.emit.rank(x)?.max(1))? as i64;
        let keep = call.flag_argument("keepdim", false)?;
        return push_output(call, Op::ArgReduce(ArgReduce { largest, axis, keep, last: false }), &[x]);
    }
    let count = call.emit.extents(x)?.iter().product();
    let flat = call.emit.reshape(x, &[count])?;
    push_output(call, Op::ArgReduce(ArgReduce { largest, axis: 0, keep: false, last: false }), &[flat])
}

/// Emits `topk` or `sort`: values and indices of the largest or smallest elements, or of all in order.
pub(super) fn top_elements(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    if call.emit.rank(x)? == 0 {
        return unsupported("sorting a scalar");
    }
    let axis = call.axis_argument(x, "dim", -1)?;
    let (count, largest) = match call.operator {
        "topk" => (call.int_argument("k", 1)?, call.flag_argument("largest", true)?),
        _ => (call.axis_extent(x, axis)?, call.flag_argument("descending", false)?),
    };
    let axis = axis as i64;
    let place = call.emit.push(Op::ArgTop(ArgTop { count, axis, largest }), &[x])?;
    if call.operator == "argsort" {
        return own_output(place);
    }
    let value = call.emit.push(Op::GatherElements(GatherElements { axis }), &[x, place])?;
    Ok([value, place].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

/// Emits `max` or `min`: of all elements, of one dimension with the index, or of two tensors element by element.
pub(super) fn extreme_value(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    if call.has_argument("other") {
        return super::pointwise::binary(call, if largest { BinaryOp::Max } else { BinaryOp::Min });
    }
    let function = if largest { ReduceOp::Max } else { ReduceOp::Min };
    if !call.has_argument("dim") {
        return reduce(call, function);
    }
    let x = call.tensor_argument("self")?;
    let value = reduce(call, function)?[0].id;
    let axis = call.axis_argument(x, "dim", 0)? as i64;
    let x = if call.emit.dtype(x)? == DType::Bool { call.emit.cast(x, DType::U8)? } else { x };
    let keep = call.flag_argument("keepdim", false)?;
    let place = call.emit.push(Op::ArgReduce(ArgReduce { largest, axis, keep, last: false }), &[x])?;
    Ok([value, place].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

pub(super) fn variance_or_deviation(call: &mut Call<'_, '_>, has_root: bool) -> Outputs {
    own_output(spread_and_mean(call, has_root)?.0)
}

pub(super) fn spread_with_mean(call: &mut Call<'_, '_>, has_root: bool) -> Outputs {
    let (y, mean) = spread_and_mean(call, has_root)?;
    let shape = call.emit.extents(y)?;
    let mean = call.emit.reshape(mean, &shape)?;
    Ok([y, mean].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

/// Returns variance or standard deviation, and the mean; reduced dimensions are kept with extent 1.
fn spread_and_mean(call: &mut Call<'_, '_>, has_root: bool) -> Outcome<(ValueId, ValueId)> {
    let x = call.tensor_argument("self")?;
    let axes = call.axis_list(x, "dim")?;
    let correction = match call.arguments.get("unbiased") {
        Some(_) => f64::from(u8::from(call.flag_argument("unbiased", true)?)),
        None => call.float_argument("correction", 1.0)?,
    };
    let extents = call.emit.extents(x)?;
    let count: i64 = axes.iter().map(|&axis| extents[axis as usize]).product();
    if count as f64 <= correction {
        return unsupported(format!("the variance of too few elements: {count}"));
    }
    let mean = call.emit.push(Op::Reduce(Reduce { function: ReduceOp::Mean, axes: axes.clone(), keep: true }), &[x])?;
    let apart = call.emit.binary(BinaryOp::Sub, x, mean)?;
    let squares = call.emit.unary(UnaryOp::Square, apart)?;
    let sum = reduce_input(call, ReduceOp::Sum, squares)?;
    let mut y = call.emit.binary_with(BinaryOp::Div, sum, count as f64 - correction)?;
    if has_root {
        y = call.emit.unary(UnaryOp::Sqrt, y)?;
    }
    Ok((y, mean))
}

pub(super) fn vector_norm(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let name = if call.arguments.contains_key("ord") { "ord" } else { "p" };
    if let Some(super::Argument::Text(order)) = call.arguments.get("ord")
        && order != "fro"
    {
        return unsupported(format!("a norm of order `{order}`"));
    }
    let is_text = matches!(call.arguments.get("ord"), Some(super::Argument::Text(_)));
    let order = if is_text { 2.0 } else { call.float_argument(name, 2.0)? };
    if call.operator == "linalg_norm" && call.has_argument("ord") && !is_text && call.axis_list(x, "dim")?.len() != 1 {
        return unsupported("a matrix norm");
    }
    let dtype = call.result_dtype()?;
    let x = call.emit.cast(x, dtype)?;
    own_output(norm_of_order(call, x, order)?)
}

/// Emits the Frobenius norm of the last two dimensions, or of others.
pub(super) fn matrix_norm(call: &mut Call<'_, '_>) -> Outputs {
    if !matches!(call.arguments.get("ord"), None | Some(super::Argument::Text(_))) {
        return unsupported("a matrix norm other than the Frobenius norm");
    }
    if !call.has_argument("dim") {
        call.arguments.insert("dim", super::Argument::Ints(vec![-2, -1]));
    }
    vector_norm(call)
}

fn norm_of_order(call: &mut Call<'_, '_>, x: ValueId, order: f64) -> Outcome<ValueId> {
    if order == 2.0 || order == 1.0 {
        return reduce_input(call, if order == 2.0 { ReduceOp::L2 } else { ReduceOp::L1 }, x);
    }
    if order == 0.0 {
        let zero = call.emit.add_scalar(call.emit.dtype(x)?, 0.0)?;
        let is_something = call.emit.compare(CompareOp::NotEqual, x, zero)?;
        let ones = call.emit.cast(is_something, call.emit.dtype(x)?)?;
        return reduce_input(call, ReduceOp::Sum, ones);
    }
    let sizes = call.emit.unary(UnaryOp::Abs, x)?;
    if order.is_infinite() {
        return reduce_input(call, if order > 0.0 { ReduceOp::Max } else { ReduceOp::Min }, sizes);
    }
    let powers = call.emit.binary_with(BinaryOp::Pow, sizes, order)?;
    let sum = reduce_input(call, ReduceOp::Sum, powers)?;
    call.emit.binary_with(BinaryOp::Pow, sum, 1.0 / order)
}

pub(super) fn pairwise_distance(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (call.tensor_argument("x1")?, call.tensor_argument("x2")?);
    let (order, epsilon) = (call.float_argument("p", 2.0)?, call.float_argument("eps", 1e-6)?);
    let apart = call.emit.binary(BinaryOp::Sub, a, b)?;
    let apart = call.emit.binary_with(BinaryOp::Add, apart, epsilon)?;
    call.arguments.insert("dim", super::Argument::Int(-1));
    own_output(norm_of_order(call, apart, order)?)
}

pub(super) fn pairwise_norms(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b, order) = (call.tensor_argument("x1")?, call.tensor_argument("x2")?, call.float_argument("p", 2.0)?);
    let (mut rows, mut columns) = (call.emit.extents(a)?, call.emit.extents(b)?);
    if rows.len() < 2 || columns.len() < 2 {
        return unsupported("operands with fewer than 2 dimensions");
    }
    rows.insert(rows.len() - 1, 1);
    columns.insert(columns.len() - 2, 1);
    let (a, b) = (call.emit.reshape(a, &rows)?, call.emit.reshape(b, &columns)?);
    let apart = call.emit.binary(BinaryOp::Sub, a, b)?;
    call.arguments.insert("dim", super::Argument::Int(-1));
    own_output(norm_of_order(call, apart, order)?)
}

/// Emits a sum or a mean of the elements that are not NaN.
pub(super) fn reduce_numbers(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let dtype = call.result_dtype()?;
    let x = call.operand_as("self", dtype)?;
    if !dtype.is_float() {
        return own_output(reduce_input(call, function, x)?);
    }
    let is_missing = call.emit.unary(UnaryOp::IsNan, x)?;
    let zero = call.emit.add_scalar(dtype, 0.0)?;
    let numbers = call.emit.push(Op::Where(Where {}), &[is_missing, zero, x])?;
    let sum = reduce_input(call, ReduceOp::Sum, numbers)?;
    if function == ReduceOp::Sum {
        return own_output(sum);
    }
    let is_number = call.emit.unary(UnaryOp::Not, is_missing)?;
    let ones = call.emit.cast(is_number, dtype)?;
    let count = reduce_input(call, ReduceOp::Sum, ones)?;
    own_output(call.emit.binary(BinaryOp::Div, sum, count)?)
}

pub(super) fn trace(call: &mut Call<'_, '_>) -> Outputs {
    let diagonal = super::layout::diagonal(call)?;
    let Some(output) = diagonal.first() else { return unsupported("an empty diagonal") };
    let dtype = call.result_dtype()?;
    let x = call.emit.cast(output.id, dtype)?;
    push_output(call, Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![0], keep: false }), &[x])
}

pub(super) fn count_nonzero(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let flags = call.operand_as("self", DType::Bool)?;
    let ones = call.emit.cast(flags, DType::I64)?;
    if call.emit.rank(x)? == 0 {
        return own_output(ones);
    }
    own_output(reduce_input(call, ReduceOp::Sum, ones)?)
}

pub(super) fn min_and_max(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let (least, most) = (reduce_input(call, ReduceOp::Min, x)?, reduce_input(call, ReduceOp::Max, x)?);
    Ok([least, most].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

/// Returns the lower median or the k-th smallest element, and its index.
pub(super) fn median(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor_argument("self")?;
    let is_whole = call.operator != "kthvalue" && !call.has_argument("dim");
    if is_whole {
        let count = call.emit.extents(x)?.iter().product();
        x = call.emit.reshape(x, &[count])?;
    }
    let axis = if is_whole { 0 } else { call.axis_argument(x, "dim", -1)? };
    let extent = call.emit.extents(x)?.get(axis).copied().unwrap_or(1);
    let at = if call.operator == "kthvalue" { call.int_argument("k", 1)?.saturating_sub(1) } else { (extent - 1) / 2 };
    if !(0..extent).contains(&at) || call.emit.rank(x)? == 0 {
        return unsupported(format!("selecting element {at} in ascending order among {extent}"));
    }
    let order = call.emit.push(Op::ArgTop(ArgTop { count: at + 1, axis: axis as i64, largest: false }), &[x])?;
    let place = call.emit.slice(order, axis, at, at + 1)?;
    let value = call.emit.push(Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, place])?;
    let mut shape = call.emit.extents(x)?;
    if call.flag_argument("keepdim", false)? {
        shape[axis] = 1;
    } else {
        shape.remove(axis);
    }
    let (value, place) = (call.emit.reshape(value, &shape)?, call.emit.reshape(place, &shape)?);
    Ok([value, place].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

/// Emits the running maximum or minimum and its index; of equal elements, the last index.
pub(super) fn running_extreme(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    let x = call.tensor_argument("self")?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let extents = call.emit.extents(x)?;
    let Some(&extent) = extents.get(axis) else { return own_output(x) };
    if extent > MAX_RUNNING {
        return unsupported(format!("an extent of {extent} exceeds the limit of {MAX_RUNNING}"));
    }
    let function = if largest { ReduceOp::Max } else { ReduceOp::Min };
    let (mut values, mut places) = (Vec::new(), Vec::new());
    for end in 1..=extent {
        let part = call.emit.slice(x, axis, 0, end)?;
        let axes = vec![axis as i64];
        values.push(call.emit.push(Op::Reduce(Reduce { function, axes, keep: true }), &[part])?);
        places.push(
            call.emit.push(Op::ArgReduce(ArgReduce { largest, axis: axis as i64, keep: true, last: true }), &[part])?,
        );
    }
    let (values, places) = (call.emit.concat_parts(&values, axis)?, call.emit.concat_parts(&places, axis)?);
    Ok([values, places].map(|id| RuleOutput { id, window: Memory::Own }).into())
}

pub(super) fn cum_prod(call: &mut Call<'_, '_>) -> Outputs {
    combine_running(call, |emit, before, one| emit.binary(BinaryOp::Mul, before, one))
}

/// Emits the logarithm of the running sum of powers of e.
pub(super) fn running_log_sum(call: &mut Call<'_, '_>) -> Outputs {
    combine_running(call, |emit, before, one| log_of_sum(emit, before, one, UnaryOp::Exp))
}

/// Combines each element of a dimension with the result for the element before.
fn combine_running(
    call: &mut Call<'_, '_>,
    combine: impl Fn(&mut Emit<'_>, ValueId, ValueId) -> Outcome<ValueId>,
) -> Outputs {
    let dtype = call.result_dtype()?;
    let x = call.operand_as("self", dtype)?;
    let axis = call.axis_argument(x, "dim", 0)?;
    let Some(&extent) = call.emit.extents(x)?.get(axis) else { return own_output(x) };
    if extent > MAX_RUNNING {
        return unsupported(format!("an extent of {extent} exceeds the limit of {MAX_RUNNING}"));
    }
    let mut results: Vec<ValueId> = Vec::new();
    for at in 0..extent {
        let one = call.emit.slice(x, axis, at, at + 1)?;
        results.push(match results.last() {
            Some(&before) => combine(call.emit, before, one)?,
            None => one,
        });
    }
    own_output(call.emit.concat_parts(&results, axis)?)
}

/// Emits quantiles of known fractions, interpolated between neighbours in ascending order.
pub(super) fn quantile(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor_argument("self")?;
    let (fractions, is_list) = match call.arguments.get("q") {
        Some(super::Argument::Tensor(q)) => (call.emit.require_numbers(*q, "`q`")?, call.emit.rank(*q)? > 0),
        _ => (vec![call.float_argument("q", 0.5)?], false),
    };
    let (is_whole, rank) = (!call.has_argument("dim"), call.emit.rank(x)?);
    let axis = if is_whole { 0 } else { call.axis_argument(x, "dim", 0)? };
    if is_whole || rank == 0 {
        let count = call.emit.extents(x)?.iter().product();
        x = call.emit.reshape(x, &[count])?;
    }
    let mut shape = call.emit.extents(x)?;
    let extent = call.axis_extent(x, axis)?;
    let interpolation = call.text_argument("interpolation", "linear")?;
    let order = ArgTop { count: extent, axis: axis as i64, largest: false };
    let order = call.emit.push(Op::ArgTop(order), &[x])?;
    let sorted = call.emit.push(Op::GatherElements(GatherElements { axis: axis as i64 }), &[x, order])?;
    match (call.flag_argument("keepdim", false)?, is_whole) {
        (true, true) => shape = vec![1; rank],
        (true, false) => shape[axis] = 1,
        (false, _) => drop(shape.remove(axis)),
    }
    shape.truncate(rank);
    if is_list {
        shape.insert(0, 1);
    }
    let mut parts = Vec::new();
    for fraction in fractions {
        if extent < 1 || !(0.0..=1.0).contains(&fraction) {
            return unsupported(format!("the quantile {fraction} of {extent} elements"));
        }
        let place = fraction * (extent - 1) as f64;
        let place = match interpolation.as_str() {
            "linear" | "midpoint" => place,
            "lower" => place.floor(),
            "higher" => place.ceil(),
            "nearest" => place.round_ties_even(),
            other => return unsupported(format!("the interpolation `{other}`")),
        };
        let low = call.emit.slice(sorted, axis, place.floor() as i64, place.floor() as i64 + 1)?;
        let high = call.emit.slice(sorted, axis, place.ceil() as i64, place.ceil() as i64 + 1)?;
        let apart = call.emit.binary(BinaryOp::Sub, high, low)?;
        let weight = if interpolation == "midpoint" { 0.5 } else { place.fract() };
        let apart = call.emit.binary_with(BinaryOp::Mul, apart, weight)?;
        let value = call.emit.binary(BinaryOp::Add, low, apart)?;
        parts.push(call.emit.reshape(value, &shape)?);
    }
    own_output(call.emit.concat_parts(&parts, 0)?)
}

pub(super) fn cum_sum(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let x = call.operand_as("self", dtype)?;
    if call.emit.rank(x)? == 0 {
        return own_output(x);
    }
    let axis = call.axis_argument(x, "dim", 0)? as i64;
    push_output(call, Op::CumSum(CumSum { axis, exclusive: false, reverse: false }), &[x])
}

pub(super) fn adjacent_difference(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.tensor_argument("self")?;
    let axis = call.axis_argument(x, "dim", -1)?;
    let (before, after) = (call.optional_tensor("prepend")?, call.optional_tensor("append")?);
    let parts: Vec<ValueId> = before.into_iter().chain([x]).chain(after).collect();
    x = call.emit.concat_parts(&parts, axis)?;
    for _ in 0..call.int_argument("n", 1)?.clamp(0, 64) {
        let extent = call.axis_extent(x, axis)?;
        if extent < 1 {
            return unsupported("differences of an empty tensor");
        }
        let (later, earlier) = (call.emit.slice(x, axis, 1, extent)?, call.emit.slice(x, axis, 0, extent - 1)?);
        x = if call.emit.dtype(x)? == DType::Bool {
            call.emit.binary(BinaryOp::Xor, later, earlier)?
        } else {
            call.emit.binary(BinaryOp::Sub, later, earlier)?
        };
    }
    own_output(x)
}
