//! Import rules of reductions over dimensions.

use super::movement::integer_list;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{ArgReduce, ArgTop, BinaryOp, CumSum, GatherElements, OneHot, Op, Reduce, ReduceOp};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

macro_rules! reductions {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
            Ok(vec![reduce(emit, call, ReduceOp::$function)?])
        })*
    };
}

reductions! {
    sum => Sum,
    mean => Mean,
    max => Max,
    min => Min,
    prod => Prod,
    l1 => L1,
    l2 => L2,
    log_sum => LogSum,
    log_sum_exp => LogSumExp,
    sum_square => SumSquare,
}

fn reduce(emit: &mut Emit<'_>, call: &Call<'_>, function: ReduceOp) -> Outcome<ValueId> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let since = if function == ReduceOp::Sum { 13 } else { 18 };
    let named = integer_list(emit, call, "axes", (1, since))?.filter(|axes| !axes.is_empty());
    let axes = match named {
        Some(axes) => {
            axes.iter().map(|&axis| emit.resolve_axis(axis, extents.len())).collect::<Outcome<Vec<usize>>>()?
        }
        None if call.flag_attribute("noop_with_empty_axes") => return without_axes(x, function),
        None => (0..extents.len()).collect(),
    };
    reduce_over(emit, x, function, axes, call.int_attribute("keepdims", 1) != 0)
}

/// Reduces over no dimensions: returns the input. Refuses functions that would change elements.
fn without_axes(x: ValueId, function: ReduceOp) -> Outcome<ValueId> {
    match function {
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod => Ok(x),
        other => unsupported(format!("the reduction `{}` over no dimensions", other.name())),
    }
}

pub(super) fn reduce_over(
    emit: &mut Emit<'_>,
    x: ValueId,
    function: ReduceOp,
    mut axes: Vec<usize>,
    keep: bool,
) -> Outcome<ValueId> {
    let (extents, dtype) = (emit.extents(x)?, emit.dtype(x)?);
    axes.sort_unstable();
    if axes.windows(2).any(|pair| pair[0] == pair[1]) {
        return malformed(format!("the axes {axes:?} contain a dimension twice"));
    }
    if let Some(axis) = axes.iter().find(|&&axis| axis >= extents.len()) {
        return malformed(format!("axis {axis} is out of range for a tensor of {} dimensions", extents.len()));
    }
    if axes.is_empty() {
        // A scalar: some functions (such as the logarithm of a sum) still change it, so it is reduced as a vector.
        let vector = emit.reshape(x, &[1])?;
        return reduce_over(emit, vector, function, vec![0], false);
    }
    if axes.iter().any(|&axis| extents[axis] == 0) {
        return reduce_empty(emit, function, &extents, &axes, keep, dtype);
    }
    if dtype == DType::Bool {
        let numbers = emit.cast(x, DType::U8)?;
        let reduced = reduce_over(emit, numbers, function, axes, keep)?;
        return emit.cast(reduced, DType::Bool);
    }
    let axes = axes.iter().map(|&axis| axis as i64).collect();
    emit.push(Op::Reduce(Reduce { function, axes, keep }), &[x])
}

fn reduce_empty(
    emit: &mut Emit<'_>,
    function: ReduceOp,
    extents: &[i64],
    axes: &[usize],
    keep: bool,
    dtype: DType,
) -> Outcome<ValueId> {
    let (lowest, highest) = crate::finite_range(dtype);
    let (lowest, highest) = if dtype.is_float() { (f64::NEG_INFINITY, f64::INFINITY) } else { (lowest, highest) };
    let number = match function {
        ReduceOp::Sum | ReduceOp::L1 | ReduceOp::L2 | ReduceOp::SumSquare => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => lowest,
        ReduceOp::Min => highest,
        ReduceOp::LogSum | ReduceOp::LogSumExp => f64::NEG_INFINITY,
        ReduceOp::Mean => f64::NAN,
    };
    let reduced = extents.iter().enumerate().filter_map(|(axis, &extent)| match axes.contains(&axis) {
        true if keep => Some(1),
        true => None,
        false => Some(extent),
    });
    emit.add_filled(dtype, &reduced.collect::<Vec<i64>>(), number)
}

pub(super) fn arg_max(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    arg_reduce(emit, call, true)
}

pub(super) fn arg_min(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    arg_reduce(emit, call, false)
}

fn arg_reduce(emit: &mut Emit<'_>, call: &Call<'_>, largest: bool) -> Outputs {
    let x = call.input(0)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), emit.rank(x)?)? as i64;
    let (keep, last) = (call.int_attribute("keepdims", 1) != 0, call.flag_attribute("select_last_index"));
    Ok(vec![emit.push(Op::ArgReduce(ArgReduce { largest, axis, keep, last }), &[x])?])
}

/// Emits `TopK`. Ignores `sorted`, because unsorted results may have any order.
pub(super) fn top_k(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let count = match call.optional_input(1) {
        Some(count) => emit.require_number(count, "K")? as i64,
        None => call.optional_int("k").unwrap_or(1),
    };
    let axis = emit.resolve_axis(call.int_attribute("axis", -1), emit.rank(x)?)? as i64;
    let place = emit.push(Op::ArgTop(ArgTop { count, axis, largest: call.int_attribute("largest", 1) != 0 }), &[x])?;
    Ok(vec![emit.push(Op::GatherElements(GatherElements { axis }), &[x, place])?, place])
}

pub(super) fn cum_sum(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let axis = emit.require_number(call.input(1)?, "axis")? as i64;
    let axis = emit.resolve_axis(axis, emit.rank(x)?)? as i64;
    let (exclusive, reverse) = (call.flag_attribute("exclusive"), call.flag_attribute("reverse"));
    Ok(vec![emit.push(Op::CumSum(CumSum { axis, exclusive, reverse }), &[x])?])
}

/// Emits running products by doubling: each round multiplies by elements twice as far away as the previous round.
pub(super) fn cum_prod(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let mut y = call.input(0)?;
    let extents = emit.extents(y)?;
    let rank = extents.len();
    let axis = emit.require_number(call.input(1)?, "axis")? as i64;
    let axis = emit.resolve_axis(axis, rank)?;
    let (extent, is_reversed) = (extents[axis], call.flag_attribute("reverse"));
    let moved = |emit: &mut Emit<'_>, x: ValueId, by: i64| {
        let mut pads = vec![0; 2 * rank];
        pads[if is_reversed { rank + axis } else { axis }] = by;
        let kept = if is_reversed { emit.slice(x, axis, by, extent)? } else { emit.slice(x, axis, 0, extent - by)? };
        emit.pad(kept, &pads, 1.0)
    };
    if call.flag_attribute("exclusive") && extent > 0 {
        y = moved(emit, y, 1)?;
    }
    let mut by = 1;
    while by < extent {
        let other = moved(emit, y, by)?;
        y = emit.binary(BinaryOp::Mul, y, other)?;
        by = by.saturating_mul(2);
    }
    Ok(vec![y])
}

pub(super) fn hard_max(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let (extents, to) = (emit.extents(x)?, emit.dtype(x)?);
    let axis = emit.resolve_axis(call.int_attribute("axis", if call.opset < 13 { 1 } else { -1 }), extents.len())?;
    if extents.contains(&0) {
        return Ok(vec![x]);
    }
    // Before version 13, all dimensions from the axis on counted as one.
    let (rows, at) = if call.opset < 13 {
        let (outer, inner) = extents.split_at(axis);
        (vec![outer.iter().product(), inner.iter().product()], 1)
    } else {
        (extents.clone(), axis)
    };
    let (flat, axis) = (emit.reshape(x, &rows)?, at as i64);
    let place = emit.push(Op::ArgReduce(ArgReduce { largest: true, axis, keep: false, last: false }), &[flat])?;
    let marked = emit.push(Op::OneHot(OneHot { axis, depth: rows[at], on: 1.0, off: 0.0, to }), &[place])?;
    Ok(vec![emit.reshape(marked, &extents)?])
}
