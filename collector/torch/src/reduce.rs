//! Reductions of whole dimensions, and cumulative sums.

use crate::call::Call;
use crate::refusal::Result;
use models::operators::{ArgReduce, ArgTop, CumSum, Reduce};
use models::{Op, ReduceOp};
use tch::{Kind, Tensor};

pub fn compute_reduction(call: &Call<'_>) -> Result<Option<Tensor>> {
    let (x, kind) = (call.first_input(), call.kind);
    match call.op {
        Op::Reduce(Reduce { function, axes, keep }) => reduce_axes(x, *function, axes, *keep, kind),
        Op::ArgReduce(ArgReduce { largest, axis, keep, last }) => arg_reduce(x, *largest, *axis, *keep, *last),
        Op::ArgTop(ArgTop { count, axis, largest }) => arg_top(x, *count, *axis, *largest),
        Op::CumSum(CumSum { axis, exclusive, reverse }) => cum_sum(x, *axis, *exclusive, *reverse, kind),
        _ => return Ok(None),
    }
    .map(Some)
}

fn reduce_axes(x: &Tensor, function: ReduceOp, axes: &[i64], keep: bool, kind: Kind) -> Result<Tensor> {
    if axes.is_empty() {
        // PyTorch interprets an empty list of axes as all axes.
        return reduce_axes(&x.f_unsqueeze(0)?, function, &[0], false, kind);
    }
    let sum = |x: &Tensor| x.f_sum_dim_intlist(axes, keep, kind);
    Ok(match function {
        ReduceOp::Sum => sum(x)?,
        ReduceOp::Mean => x.f_mean_dim(axes, keep, kind)?,
        ReduceOp::Max => x.f_amax(axes, keep)?,
        ReduceOp::Min => x.f_amin(axes, keep)?,
        ReduceOp::Prod => {
            // The function reduces one dimension per call. The last one is reduced first, so that
            // the indices of the others stay valid.
            let (last, rest) = axes.split_last().expect("there are axes");
            let first = x.f_prod_dim_int(*last, keep, kind)?;
            rest.iter().rev().try_fold(first, |x, axis| x.f_prod_dim_int(*axis, keep, kind))?
        }
        ReduceOp::L1 => x.f_norm_scalaropt_dim(1, axes, keep)?,
        ReduceOp::L2 => x.f_norm_scalaropt_dim(2, axes, keep)?,
        ReduceOp::LogSum => sum(x)?.f_log()?,
        ReduceOp::LogSumExp => x.f_logsumexp(axes, keep)?,
        ReduceOp::SumSquare => sum(&x.f_square()?)?,
    })
}

fn arg_reduce(x: &Tensor, largest: bool, axis: i64, keep: bool, last: bool) -> Result<Tensor> {
    // PyTorch returns the first of equal elements. The last one is the first of the flipped tensor.
    let x = if last { x.f_flip([axis])? } else { x.shallow_clone() };
    let found = if largest { x.f_argmax(axis, keep)? } else { x.f_argmin(axis, keep)? };
    let extent = x.size()[usize::try_from(axis).unwrap_or(0)];
    Ok(if last { found.f_neg()?.f_add_scalar(extent - 1)? } else { found })
}

fn arg_top(x: &Tensor, count: i64, axis: i64, largest: bool) -> Result<Tensor> {
    // The first of equal elements counts, which only a stable sort guarantees. Floats are
    // assumed to have no equal elements.
    if matches!(x.f_kind()?, Kind::Float | Kind::Double | Kind::Half | Kind::BFloat16) {
        return Ok(x.f_topk(count, axis, largest, true)?.1);
    }
    let (_, order) = x.f_sort_stable(true, axis, largest)?;
    Ok(order.f_narrow(axis, 0, count)?.f_alias_copy()?)
}

fn cum_sum(x: &Tensor, axis: i64, exclusive: bool, reverse: bool, kind: Kind) -> Result<Tensor> {
    let turned = if reverse { x.f_flip([axis])? } else { x.shallow_clone() };
    let sums = turned.f_cumsum(axis, kind)?;
    let sums = if exclusive { sums.f_sub(&turned)? } else { sums };
    Ok(if reverse { sums.f_flip([axis])? } else { sums })
}
