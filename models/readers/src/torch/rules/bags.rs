//! Operators on groups of elements or rows: histograms, embedding bags, search in boundaries, grouped products.

use super::{Call, Memory, Outputs, RuleOutput, own_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Gather, Op, Reduce, ReduceOp, UnaryOp, Where};
use models::types::DType;

fn sum_axis(emit: &mut Emit<'_>, x: ValueId, axis: i64) -> Outcome<ValueId> {
    emit.push(Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![axis], keep: false }), &[x])
}

/// Counts elements in equal intervals from `min` to `max`; the last interval includes its end.
pub(super) fn histogram(call: &mut Call<'_, '_>) -> Outputs {
    let (x, bins) = (call.tensor_argument("self")?, call.int_argument("bins", 100)?);
    let (low, high) = (call.float_argument("min", 0.0)?, call.float_argument("max", 0.0)?);
    if !(1..=1 << 16).contains(&bins) {
        return unsupported(format!("{bins} histogram bins; at most 65536 are supported"));
    }
    if low.partial_cmp(&high) != Some(std::cmp::Ordering::Less) {
        return unsupported("the range of the bins depends on input data; set `min` and `max`");
    }
    let to = call.result_dtype()?;
    let emit = &mut *call.emit;
    let dtype = if emit.dtype(x)?.is_float() { emit.dtype(x)? } else { DType::F32 };
    let count = emit.extents(x)?.iter().product::<i64>();
    let flat = emit.reshape(x, &[count, 1])?;
    let flat = emit.cast(flat, dtype)?;
    let (least, most) = (emit.add_scalar(dtype, low)?, emit.add_scalar(dtype, high)?);
    let is_above = emit.compare(CompareOp::GreaterOrEqual, flat, least)?;
    let is_below = emit.compare(CompareOp::LessOrEqual, flat, most)?;
    let is_inside = emit.binary(BinaryOp::And, is_above, is_below)?;
    let from_low = emit.binary_with(BinaryOp::Sub, flat, low)?;
    let part = emit.binary_with(BinaryOp::Div, from_low, high - low)?;
    let place = emit.binary_with(BinaryOp::Mul, part, bins as f64)?;
    let place = emit.unary(UnaryOp::Floor, place)?;
    let place = emit.binary_with(BinaryOp::Min, place, (bins - 1) as f64)?;
    let numbers = emit.add_range(dtype, &[1, bins])?;
    let is_here = emit.compare(CompareOp::Equal, place, numbers)?;
    let is_counted = emit.binary(BinaryOp::And, is_here, is_inside)?;
    let ones = emit.cast(is_counted, to)?;
    own_output(sum_axis(emit, ones, 0)?)
}

/// Counts how often each integer occurs; the result has at least `minlength` elements.
pub(super) fn bin_count(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    // One more than the largest integer, which is known during import only for constants.
    let largest = match call.emit.known_numbers(x)? {
        Some(numbers) => (numbers.into_iter().fold(-1.0, f64::max) as i64).saturating_add(1),
        None => return unsupported("the size of the result depends on input data"),
    };
    let bins = largest.max(call.int_argument("minlength", 0)?).max(1);
    if call.has_argument("weights") || bins > 1 << 16 {
        return unsupported("weights, or too many different integers");
    }
    let count = call.emit.extents(x)?.iter().product::<i64>();
    let flat = call.emit.reshape(x, &[count, 1])?;
    let flat = call.emit.cast(flat, DType::I64)?;
    let numbers = call.emit.add_range(DType::I64, &[1, bins])?;
    let is_here = call.emit.compare(CompareOp::Equal, flat, numbers)?;
    let ones = call.emit.cast(is_here, DType::I64)?;
    own_output(sum_axis(call.emit, ones, 0)?)
}

pub(super) fn embedding_bag(call: &mut Call<'_, '_>) -> Outputs {
    let (table, numbers, offsets) =
        (call.tensor_argument("weight")?, call.tensor_argument("indices")?, call.tensor_argument("offsets")?);
    let (mode, padding) = (call.int_argument("mode", 0)?, call.int_argument("padding_idx", -1)?);
    let is_last_left_out = call.flag_argument("include_last_offset", false)?;
    let weights = call.optional_tensor("per_sample_weights")?;
    let emit = &mut *call.emit;
    let [count] = emit.extents(numbers)?[..] else { return malformed("`indices` must be a vector") };
    let mut bags = emit.extents(offsets)?.iter().product::<i64>();
    let mut offsets = offsets;
    if is_last_left_out {
        bags -= 1;
        offsets = emit.slice(offsets, 0, 0, bags)?;
    }
    if bags < 1 || count < 1 {
        return unsupported("an empty list of bags or indices");
    }
    let [_, width] = emit.extents(table)?[..] else { return malformed("`weight` must be a matrix") };
    let dtype = emit.dtype(table)?;
    let mut rows = emit.push(Op::Gather(Gather { axis: 0 }), &[table, numbers])?;
    if let Some(weights) = weights {
        let weights = emit.reshape(weights, &[count, 1])?;
        rows = emit.binary(BinaryOp::Mul, rows, weights)?;
    }
    let members = bag_members(emit, offsets, [bags, count])?;
    let members = if padding < 0 {
        members
    } else {
        let numbers = emit.cast(numbers, DType::I64)?;
        let hidden = emit.add_scalar(DType::I64, padding as f64)?;
        let is_shown = emit.compare(CompareOp::NotEqual, numbers, hidden)?;
        emit.binary(BinaryOp::And, members, is_shown)?
    };
    let id = if mode == 2 {
        max_rows(emit, rows, members, [bags, count, width])?
    } else {
        let ones = emit.cast(members, dtype)?;
        let sums = emit.mat_mul(ones, rows)?;
        if mode == 0 {
            sums
        } else {
            let sizes =
                emit.push(Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![1], keep: true }), &[ones])?;
            let sizes = emit.binary_with(BinaryOp::Max, sizes, 1.0)?;
            emit.binary(BinaryOp::Div, sums, sizes)?
        }
    };
    own_output(id)
}

/// Returns which index belongs to which bag, as `[bags, indices]` of `bool`.
fn bag_members(emit: &mut Emit<'_>, offsets: ValueId, [bags, count]: [i64; 2]) -> Outcome<ValueId> {
    let offsets = emit.cast(offsets, DType::I64)?;
    let starts = emit.reshape(offsets, &[bags, 1])?;
    let places = emit.add_range(DType::I64, &[1, count])?;
    let is_started = emit.compare(CompareOp::LessOrEqual, starts, places)?;
    if bags == 1 {
        return Ok(is_started);
    }
    // A bag ends where the next one begins.
    let later = emit.slice(is_started, 0, 1, bags)?;
    let none = emit.add_filled(DType::Bool, &[1, count], 0.0)?;
    let is_over = emit.concat_parts(&[later, none], 0)?;
    let is_not_over = emit.unary(UnaryOp::Not, is_over)?;
    emit.binary(BinaryOp::And, is_started, is_not_over)
}

fn max_rows(emit: &mut Emit<'_>, rows: ValueId, members: ValueId, [bags, count, width]: [i64; 3]) -> Outcome<ValueId> {
    let dtype = emit.dtype(rows)?;
    let rows = emit.reshape(rows, &[1, count, width])?;
    let members = emit.reshape(members, &[bags, count, 1])?;
    let lowest = emit.add_scalar(dtype, f64::NEG_INFINITY)?;
    let shown = emit.push(Op::Where(Where {}), &[members, rows, lowest])?;
    let y = emit.push(Op::Reduce(Reduce { function: ReduceOp::Max, axes: vec![1], keep: false }), &[shown])?;
    let is_empty = emit.compare(CompareOp::Equal, y, lowest)?;
    let zero = emit.add_scalar(dtype, 0.0)?;
    emit.push(Op::Where(Where {}), &[is_empty, zero, y])
}

pub(super) fn bucketize(call: &mut Call<'_, '_>) -> Outputs {
    let (sorted, is_shared) = match call.operator {
        "searchsorted" => {
            (call.tensor_argument("sorted_sequence")?, call.emit.rank(call.tensor_argument("sorted_sequence")?)? == 1)
        }
        _ => (call.tensor_argument("boundaries")?, true),
    };
    if call.has_argument("sorter") {
        return unsupported("the argument `sorter`");
    }
    let is_right = call.flag_argument("right", false)? || call.text_argument("side", "left")? == "right";
    let to = call.result_dtype()?;
    let mut dtype = call.emit.dtype(sorted)?;
    if let Some(super::Argument::Tensor(x)) = call.arguments.get("self")
        && !dtype.is_float()
    {
        dtype = call.emit.dtype(*x)?;
    }
    let x = call.operand_as("self", dtype)?;
    let emit = &mut *call.emit;
    let sorted = emit.cast(sorted, dtype)?;
    let (mut shape, mut bounds) = (emit.extents(x)?, emit.extents(sorted)?);
    if !is_shared {
        let Some(last) = bounds.len().checked_sub(1) else {
            return malformed("`sorted_sequence` must have at least 1 dimension");
        };
        bounds.insert(last, 1);
    }
    shape.push(1);
    let (x, sorted) = (emit.reshape(x, &shape)?, emit.reshape(sorted, &bounds)?);
    let function = if is_right { CompareOp::LessOrEqual } else { CompareOp::Less };
    let is_before = emit.compare(function, sorted, x)?;
    let ones = emit.cast(is_before, to)?;
    let axis = emit.rank(ones)? as i64 - 1;
    own_output(sum_axis(emit, ones, axis)?)
}

pub(super) fn is_in(call: &mut Call<'_, '_>) -> Outputs {
    let name = if call.arguments.contains_key("test_elements") { "test_elements" } else { "test_element" };
    let x = call.tensor_argument("elements")?;
    let dtype = call.emit.dtype(x)?;
    let known = call.operand_as(name, dtype)?;
    let is_inverted = call.flag_argument("invert", false)?;
    let emit = &mut *call.emit;
    let mut shape = emit.extents(x)?;
    shape.push(1);
    let count = emit.extents(known)?.iter().product::<i64>();
    let (x, known) = (emit.reshape(x, &shape)?, emit.reshape(known, &[count])?);
    let is_equal = emit.compare(CompareOp::Equal, x, known)?;
    let ones = emit.cast(is_equal, DType::I32)?;
    let axes = vec![shape.len() as i64 - 1];
    let any = emit.push(Op::Reduce(Reduce { function: ReduceOp::Max, axes, keep: false }), &[ones])?;
    let y = emit.cast(any, DType::Bool)?;
    own_output(if is_inverted { emit.unary(UnaryOp::Not, y)? } else { y })
}

/// Multiplies each row by every matrix and selects the product of its group; offsets mark the ends of groups.
pub(super) fn grouped_mat_mul(call: &mut Call<'_, '_>) -> Outputs {
    let name = if call.arguments.contains_key("input") { "input" } else { "self" };
    let matrices = if call.arguments.contains_key("mat2") { "mat2" } else { "weight" };
    let (x, matrices, ends) =
        (call.tensor_argument(name)?, call.tensor_argument(matrices)?, call.tensor_argument("offs")?);
    if call.has_argument("bias") {
        return unsupported("the argument `bias`");
    }
    let emit = &mut *call.emit;
    let ([rows, width], [groups, _, columns]) = (&emit.extents(x)?[..], &emit.extents(matrices)?[..]) else {
        return unsupported("operands other than a matrix of rows and one matrix per group");
    };
    let (rows, width, groups, columns) = (*rows, *width, *groups, *columns);
    let ends = emit.cast(ends, DType::I64)?;
    let ends = emit.reshape(ends, &[groups, 1])?;
    let places = emit.add_range(DType::I64, &[1, rows])?;
    let is_before_end = emit.compare(CompareOp::Less, places, ends)?;
    let earlier = emit.add_filled(DType::Bool, &[1, rows], 0.0)?;
    let is_earlier = match groups {
        1 => earlier,
        _ => {
            let others = emit.slice(is_before_end, 0, 0, groups - 1)?;
            emit.concat_parts(&[earlier, others], 0)?
        }
    };
    let is_not_earlier = emit.unary(UnaryOp::Not, is_earlier)?;
    let is_member = emit.binary(BinaryOp::And, is_before_end, is_not_earlier)?;
    let is_member = emit.reshape(is_member, &[groups, rows, 1])?;
    let x = emit.reshape(x, &[1, rows, width])?;
    let all = emit.mat_mul(x, matrices)?;
    let zero = emit.add_scalar(emit.dtype(all)?, 0.0)?;
    let chosen = emit.push(Op::Where(Where {}), &[is_member, all, zero])?;
    let y = sum_axis(emit, chosen, 0)?;
    let id = emit.reshape(y, &[rows, columns])?;
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}
