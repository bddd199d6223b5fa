//! Reductions of whole dimensions, arguments of the largest, and sums up to each element.

use super::pointwise::{axis_of, unary};
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Extent, PLACE, Reduction, Tensor, axis, constant, index, reduce};
use models::operators::{ArgReduce, ArgTop, CumSum, Reduce};
use models::{DType, Op, ReduceOp, UnaryOp};

type Element = std::result::Result<Expression, TvmError>;
type ReducedPlaces = std::result::Result<Vec<Expression>, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let data = &inputs[0];
    match op {
        Op::Reduce(Reduce { function, axes, keep }) => {
            let rank = data.extents.len();
            let rows = ReducedRows { axes: axes.iter().map(|&axis| axis_of(axis, rank)).collect(), keep: *keep };
            reduce_rows(writer, *function, &rows, data, output)
        }
        Op::ArgReduce(ArgReduce { largest, axis, keep, last }) => {
            let rows = ReducedRows { axes: vec![axis_of(*axis, data.extents.len())], keep: *keep };
            arg_reduce(writer, *largest, *last, &rows, data, output)
        }
        Op::ArgTop(ArgTop { axis, largest, .. }) => {
            arg_top(writer, axis_of(*axis, data.extents.len()), *largest, data, output)
        }
        Op::CumSum(CumSum { axis, exclusive, reverse }) => {
            let along = axis_of(*axis, data.extents.len());
            cum_sum(writer, along, *exclusive, *reverse, data, output)
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// The dimensions of a tensor that become one element.
pub(super) struct ReducedRows {
    pub(super) axes: Vec<usize>,
    /// Whether they stay with extent 1 in what is indexed.
    pub(super) keep: bool,
}

impl ReducedRows {
    /// New loops over the reduced dimensions.
    pub(super) fn loops(&self, data: &Tensor) -> Result<Vec<Axis>> {
        let axes = self.axes.iter().map(|&dimension| axis(&format!("k{dimension}"), &data.extents[dimension], true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    }

    /// The place in the data of a place in the result.
    pub(super) fn at(&self, place: &[Expression], loops: &[Axis]) -> Vec<Expression> {
        let rank = if self.keep { place.len() } else { place.len() + self.axes.len() };
        let mut rest = place.iter();
        let mut at = Vec::with_capacity(rank);
        for dimension in 0..rank {
            let reduced = self.axes.iter().position(|&axis| axis == dimension);
            if self.keep || reduced.is_none() {
                let own = rest.next().expect("one per dimension of the result");
                at.push(own.clone());
            }
            if let Some(number) = reduced {
                at.truncate(dimension);
                at.push(loops[number].variable.clone());
            }
        }
        at
    }

    /// The place in the result of a place in the data.
    pub(super) fn row(&self, at: &[Expression]) -> ReducedPlaces {
        let places = at.iter().enumerate().filter_map(|(dimension, own)| match self.axes.contains(&dimension) {
            true if self.keep => Some(index(0)),
            true => None,
            false => Some(Ok(own.clone())),
        });
        places.collect()
    }

    /// The extents of the result.
    pub(super) fn extents(&self, data: &Tensor) -> Vec<Extent> {
        let extents =
            data.extents.iter().enumerate().filter_map(|(dimension, extent)| match self.axes.contains(&dimension) {
                true if self.keep => Some(Extent::Known(1)),
                true => None,
                false => Some(extent.clone()),
            });
        extents.collect()
    }

    /// How many elements become one.
    pub(super) fn count(&self, writer: &Writer, data: &Tensor) -> Result<i64> {
        self.axes.iter().map(|&axis| writer.number(&data.extents[axis])).product()
    }
}

fn reduce_rows(
    writer: &mut Writer,
    function: ReduceOp,
    rows: &ReducedRows,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let dtype = output.dtype;
    if function == ReduceOp::LogSumExp {
        return log_sum_exp(writer, rows, data, output);
    }
    let how = match function {
        ReduceOp::Max => Reduction::Max,
        ReduceOp::Min => Reduction::Min,
        ReduceOp::Prod => Reduction::Product,
        _ => Reduction::Sum,
    };
    let term = |x: Expression| match function {
        ReduceOp::L1 => x.abs(),
        ReduceOp::L2 | ReduceOp::SumSquare => x.mul(&x),
        _ => Ok(x),
    };
    let loops = rows.loops(data)?;
    let reduced = writer.block(&output.name(function.name()), Part::Anchor, output.like(), |i| {
        reduce(how, dtype, &term(data.at(&rows.at(i, &loops))?)?, &loops)
    })?;
    let last = |writer: &mut Writer, name: &str, element: &dyn Fn(&Expression) -> Element| {
        writer.block(&output.name(name), Part::Epilogue, output.like(), |i| element(&reduced.at(i)?))
    };
    match function {
        ReduceOp::Mean => {
            let share = constant(dtype, 1.0 / rows.count(writer, data)? as f64)?;
            last(writer, "reduce_share", &|sum| sum.mul(&share))
        }
        ReduceOp::L2 => last(writer, "reduce_root", &|sum| unary(UnaryOp::Sqrt, sum, dtype)),
        ReduceOp::LogSum => last(writer, "reduce_log", &|sum| unary(UnaryOp::Log, sum, dtype)),
        _ => Ok(reduced),
    }
}

/// The maximum, then the sum of what is left of it, so that no exponential overflows.
fn log_sum_exp(writer: &mut Writer, rows: &ReducedRows, data: &Tensor, output: &Output) -> Result<Tensor> {
    let dtype = output.dtype;
    let loops = rows.loops(data)?;
    let largest = writer.block(&output.name("reduce_largest"), Part::Helper, output.like(), |i| {
        reduce(Reduction::Max, dtype, &data.at(&rows.at(i, &loops))?, &loops)
    })?;
    let loops = rows.loops(data)?;
    let sum = writer.block(&output.name("reduce_sum_exp"), Part::Anchor, output.like(), |i| {
        let shifted = data.at(&rows.at(i, &loops))?.sub(&largest.at(i)?)?;
        reduce(Reduction::Sum, dtype, &unary(UnaryOp::Exp, &shifted, dtype)?, &loops)
    })?;
    writer.block(&output.name("reduce_log"), Part::Epilogue, output.like(), |i| {
        unary(UnaryOp::Log, &sum.at(i)?, dtype)?.add(&largest.at(i)?)
    })
}

/// The extreme itself, then the first or last place that has it: two plain reductions where one would need a pair.
fn arg_reduce(
    writer: &mut Writer,
    largest: bool,
    last: bool,
    rows: &ReducedRows,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let how = if largest { Reduction::Max } else { Reduction::Min };
    let loops = rows.loops(data)?;
    let extreme = writer.block(&output.name("arg_extreme"), Part::Helper, (data.dtype, &output.extents), |i| {
        reduce(how, data.dtype, &data.at(&rows.at(i, &loops))?, &loops)
    })?;
    let loops = rows.loops(data)?;
    let (nearest, elsewhere) =
        if last { (Reduction::Max, index(-1)?) } else { (Reduction::Min, data.extents[rows.axes[0]].expression()?) };
    let place = writer.block(&output.name("arg_place"), Part::Anchor, (PLACE, &output.extents), |i| {
        let is_extreme = data.at(&rows.at(i, &loops))?.equal(&extreme.at(i)?)?;
        reduce(nearest, PLACE, &is_extreme.select(&loops[0].variable, &elsewhere)?.cast(PLACE)?, &loops)
    })?;
    writer.block(&output.name("arg_wide"), Part::Epilogue, output.like(), |i| place.at(i)?.cast(DType::I64))
}

/// The rank of each element is the number of those that come before it; the result looks for its rank. More work than
/// sorting, but a tensor expression, and every element is independent.
fn arg_top(writer: &mut Writer, along: usize, largest: bool, data: &Tensor, output: &Output) -> Result<Tensor> {
    let other = axis("k", &data.extents[along], true)?;
    let rank = writer.block(&output.name("top_rank"), Part::Helper, (PLACE, &data.extents), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let (theirs, own) = (data.at(&at)?, data.at(i)?);
        let is_better = if largest { theirs.greater(&own)? } else { theirs.less(&own)? };
        let is_earlier = other.variable.less(&i[along])?.select(&index(1)?, &index(0)?)?;
        let of_equals = theirs.equal(&own)?.select(&is_earlier, &index(0)?)?;
        let term = is_better.select(&index(1)?, &of_equals)?;
        reduce(Reduction::Sum, PLACE, &term.cast(PLACE)?, std::slice::from_ref(&other))
    })?;
    let other = axis("k", &data.extents[along], true)?;
    // The largest place instead of the sum: what is no number has no rank, and must not lead outside.
    let place = writer.block(&output.name("top_place"), Part::Anchor, (PLACE, &output.extents), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let term = rank.at(&at)?.equal(&i[along])?.select(&other.variable, &index(0)?)?;
        reduce(Reduction::Max, PLACE, &term.cast(PLACE)?, std::slice::from_ref(&other))
    })?;
    writer.block(&output.name("top_wide"), Part::Epilogue, output.like(), |i| place.at(i)?.cast(DType::I64))
}

/// Every element adds up those before it: more work than a scan, but each is independent and the sum is the same.
fn cum_sum(
    writer: &mut Writer,
    along: usize,
    exclusive: bool,
    reverse: bool,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let other = axis("k", &data.extents[along], true)?;
    writer.block(&output.name("cum_sum"), Part::Anchor, output.like(), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let (k, own) = (&other.variable, &i[along]);
        let counts = match (reverse, exclusive) {
            (false, false) => k.at_most(own)?,
            (false, true) => k.less(own)?,
            (true, false) => k.at_least(own)?,
            (true, true) => k.greater(own)?,
        };
        let term = counts.select(&data.at(&at)?, &constant(output.dtype, 0.0)?)?;
        reduce(Reduction::Sum, output.dtype, &term, std::slice::from_ref(&other))
    })
}
