//! Import rules of reductions and normalisations.

use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{ArgReduce, ArgTop, BinaryOp, CumSum, GatherElements, Lrn, Op, Reduce, ReduceOp, Softmax};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

macro_rules! reduce {
    ($($name:ident => $function:ident,)*) => {
        $(pub(super) fn $name(call: &mut Call<'_, '_>) -> Outputs {
            reduce(call, ReduceOp::$function)
        })*
    };
}

reduce! {
    mean => Mean,
    sum => Sum,
    prod => Prod,
    max => Max,
    min => Min,
}

fn reduce(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.real(0)?;
    let rank = call.emit.rank(x)?;
    let axes = reduction_axes(call, rank)?;
    Ok(vec![call.emit.push(Op::Reduce(Reduce { function, axes, keep: call.flag_option(0)? }), &[x])?])
}

/// Returns the axes of the second input, in ascending order.
fn reduction_axes(call: &Call<'_, '_>, rank: usize) -> Outcome<Vec<i64>> {
    let mut axes = Vec::new();
    for axis in call.emit.require_integers(call.input(1)?, "axes")? {
        axes.push(call.emit.resolve_axis(axis, rank)? as i64);
    }
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

pub(super) fn any_set(call: &mut Call<'_, '_>) -> Outputs {
    reduce_flags(call, ReduceOp::Max)
}

pub(super) fn all_set(call: &mut Call<'_, '_>) -> Outputs {
    reduce_flags(call, ReduceOp::Min)
}

fn reduce_flags(call: &mut Call<'_, '_>, function: ReduceOp) -> Outputs {
    let x = call.input(0)?;
    let rank = call.emit.rank(x)?;
    let axes = reduction_axes(call, rank)?;
    let x = call.emit.cast(x, DType::I32)?;
    let y = call.emit.push(Op::Reduce(Reduce { function, axes, keep: call.flag_option(0)? }), &[x])?;
    Ok(vec![call.emit.cast(y, DType::Bool)?])
}

pub(super) fn arg_max(call: &mut Call<'_, '_>) -> Outputs {
    arg_reduce(call, true)
}

pub(super) fn arg_min(call: &mut Call<'_, '_>) -> Outputs {
    arg_reduce(call, false)
}

fn arg_reduce(call: &mut Call<'_, '_>, largest: bool) -> Outputs {
    // Quantisation keeps the order, so the integers are compared.
    let x = call.input(0)?;
    let axis = call.emit.require_number(call.input(1)?, "axis")? as i64;
    let y = call.emit.push(Op::ArgReduce(ArgReduce { largest, axis, keep: false, last: false }), &[x])?;
    let to = call.output_dtype(0)?;
    Ok(vec![call.emit.cast(y, to)?])
}

pub(super) fn top_k(call: &mut Call<'_, '_>) -> Outputs {
    // The stored integers are compared, because the result keeps their scale.
    let x = call.movable_inputs(&[0])?[0];
    let count = call.emit.require_number(call.input(1)?, "k")? as i64;
    let axis = call.emit.rank(x)?.saturating_sub(1) as i64;
    let place = call.emit.push(Op::ArgTop(ArgTop { count, axis, largest: true }), &[x])?;
    let value = call.emit.push(Op::GatherElements(GatherElements { axis }), &[x, place])?;
    let to = call.output_dtype(1)?;
    Ok(vec![value, call.emit.cast(place, to)?])
}

pub(super) fn cum_sum(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.real(0)?;
    let axis = call.emit.require_number(call.input(1)?, "axis")? as i64;
    Ok(vec![
        call.emit
            .push(Op::CumSum(CumSum { axis, exclusive: call.flag_option(0)?, reverse: call.flag_option(1)? }), &[x])?,
    ])
}

pub(super) fn softmax(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = call.real(0)?;
    let beta = call.float_option(0)?;
    if beta != 1.0 {
        x = call.emit.binary_with(BinaryOp::Mul, x, beta)?;
    }
    Ok(vec![call.emit.push(Op::Softmax(Softmax { axis: -1, log: false }), &[x])?])
}

pub(super) fn log_softmax(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.real(0)?;
    Ok(vec![call.emit.push(Op::Softmax(Softmax { axis: -1, log: true }), &[x])?])
}

pub(super) fn l2_normalise(call: &mut Call<'_, '_>) -> Outputs {
    if call.read_activation(0)? != Activation::None {
        return unsupported("an activation after a normalisation");
    }
    /// Smallest norm that the interpreter divides by.
    const LEAST_NORM: f64 = 1e-6;
    let x = call.real(0)?;
    let axes = vec![call.emit.rank(x)? as i64 - 1];
    let norm = call.emit.push(Op::Reduce(Reduce { function: ReduceOp::L2, axes, keep: true }), &[x])?;
    let norm = call.emit.binary_with(BinaryOp::Max, norm, LEAST_NORM)?;
    Ok(vec![call.emit.binary(BinaryOp::Div, x, norm)?])
}

/// Emits local response normalisation over `radius` channels on either side. Alpha is not divided by their count.
pub(super) fn local_response(call: &mut Call<'_, '_>) -> Outputs {
    let (radius, bias, alpha, beta) =
        (call.int_option(0, 0)?, call.float_option(1)?, call.float_option(2)?, call.float_option(3)?);
    let Some(size) = radius.checked_mul(2).map(|size| size + 1).filter(|&size| size > 0) else {
        return malformed(format!("the radius is {radius}, which is out of range"));
    };
    let x = call.real(0)?;
    let x = call.channels_first(x)?;
    let y = call.emit.push(Op::Lrn(Lrn { size, alpha: alpha * size as f64, beta, bias }), &[x])?;
    Ok(vec![call.channels_last(y)?])
}
