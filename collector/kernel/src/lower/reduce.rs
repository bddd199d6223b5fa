//! Lowers reductions of whole dimensions, indices of extreme values, and cumulative sums.

use super::pointwise::{apply_unary, axis_of, convert, narrow_sums, wide_type};
use super::{Element, Indices, Output, Part, Result, Writer};
use crate::tvm::expression::{
    Axis, Expression, Extent, PLACE, Reduction, Tensor, constant, highest_number, index_constant, loop_axis,
    reduce_axes,
};
use models::operators::{ArgReduce, ArgTop, CumSum, Reduce};
use models::{DType, Op, ReduceOp, UnaryOp};

pub(super) fn lower_reduce(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
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

pub(super) struct ReducedRows {
    pub(super) axes: Vec<usize>,
    pub(super) keep: bool,
}

impl ReducedRows {
    pub(super) fn reduction_loops(&self, data: &Tensor) -> Result<Vec<Axis>> {
        let axes =
            self.axes.iter().map(|&dimension| loop_axis(&format!("k{dimension}"), &data.extents[dimension], true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    }

    pub(super) fn data_index(&self, place: &[Expression], loops: &[Axis]) -> Vec<Expression> {
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

    pub(super) fn result_index(&self, at: &[Expression]) -> Indices {
        let places = at.iter().enumerate().filter_map(|(dimension, own)| match self.axes.contains(&dimension) {
            true if self.keep => Some(index_constant(0)),
            true => None,
            false => Some(Ok(own.clone())),
        });
        places.collect()
    }

    pub(super) fn result_extents(&self, data: &Tensor) -> Vec<Extent> {
        let extents =
            data.extents.iter().enumerate().filter_map(|(dimension, extent)| match self.axes.contains(&dimension) {
                true if self.keep => Some(Extent::Known(1)),
                true => None,
                false => Some(extent.clone()),
            });
        extents.collect()
    }

    pub(super) fn reduced_count(&self, writer: &Writer, data: &Tensor) -> Result<i64> {
        self.axes.iter().map(|&axis| writer.known_extent(&data.extents[axis])).product()
    }
}

fn reduce_rows(
    writer: &mut Writer,
    function: ReduceOp,
    rows: &ReducedRows,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    if function == ReduceOp::LogSumExp {
        return log_sum_exp(writer, rows, data, output);
    }
    // Sums of half precision would lose every term below a 2000th of the sum.
    let dtype = match function {
        ReduceOp::Max | ReduceOp::Min => output.dtype,
        _ => wide_type(output.dtype),
    };
    let how = match function {
        ReduceOp::Max => Reduction::Supremum,
        ReduceOp::Min => Reduction::Infimum,
        ReduceOp::Prod => Reduction::Product,
        _ => Reduction::Sum,
    };
    let term = |x: Expression| match function {
        ReduceOp::L1 => x.abs(),
        ReduceOp::L2 | ReduceOp::SumSquare => x.mul(&x),
        _ => Ok(x),
    };
    let loops = rows.reduction_loops(data)?;
    let reduced =
        writer.add_block(&output.block_name(function.name()), Part::Anchor, (dtype, &output.extents), |i| {
            let x = convert(data.element_at(&rows.data_index(i, &loops))?, data.dtype, dtype)?;
            reduce_axes(how, dtype, &term(x)?, &loops)
        })?;
    let last = |writer: &mut Writer, name: &str, element: &dyn Fn(&Expression) -> Element| {
        writer.add_block(&output.block_name(name), Part::Epilogue, output.element_type(), |i| {
            convert(element(&reduced.element_at(i)?)?, dtype, output.dtype)
        })
    };
    match function {
        ReduceOp::Mean => {
            let share = constant(dtype, 1.0 / rows.reduced_count(writer, data)? as f64)?;
            last(writer, "reduce_share", &|sum| sum.mul(&share))
        }
        ReduceOp::L2 => last(writer, "reduce_root", &|sum| apply_unary(UnaryOp::Sqrt, sum, dtype)),
        ReduceOp::LogSum => last(writer, "reduce_log", &|sum| apply_unary(UnaryOp::Log, sum, dtype)),
        _ => narrow_sums(writer, reduced, output),
    }
}

/// Computes the logarithm of a sum of exponentials; subtracts the maximum first, so that no exponential overflows.
fn log_sum_exp(writer: &mut Writer, rows: &ReducedRows, data: &Tensor, output: &Output) -> Result<Tensor> {
    let (own, dtype) = (output.dtype, wide_type(output.dtype));
    let loops = rows.reduction_loops(data)?;
    let largest = writer.add_block(&output.block_name("reduce_largest"), Part::Helper, output.element_type(), |i| {
        reduce_axes(Reduction::Max, own, &data.element_at(&rows.data_index(i, &loops))?, &loops)
    })?;
    let loops = rows.reduction_loops(data)?;
    let like = (dtype, &output.extents[..]);
    let sum = writer.add_block(&output.block_name("reduce_sum_exp"), Part::Anchor, like, |i| {
        let x = convert(data.element_at(&rows.data_index(i, &loops))?, own, dtype)?;
        // The difference of two infinities is no number.
        let shift = convert(largest.element_at(i)?, own, dtype)?.min(&highest_number(dtype)?)?;
        let shifted = x.sub(&shift)?;
        reduce_axes(Reduction::Sum, dtype, &apply_unary(UnaryOp::Exp, &shifted, dtype)?, &loops)
    })?;
    writer.add_block(&output.block_name("reduce_log"), Part::Epilogue, output.element_type(), |i| {
        let log = apply_unary(UnaryOp::Log, &sum.element_at(i)?, dtype)?;
        convert(log.add(&convert(largest.element_at(i)?, own, dtype)?)?, dtype, own)
    })
}

/// Finds the extreme value, then its first or last position, by two plain reductions instead of a reduction of pairs.
fn arg_reduce(
    writer: &mut Writer,
    largest: bool,
    last: bool,
    rows: &ReducedRows,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let how = if largest { Reduction::Supremum } else { Reduction::Infimum };
    let loops = rows.reduction_loops(data)?;
    let extreme =
        writer.add_block(&output.block_name("arg_extreme"), Part::Helper, (data.dtype, &output.extents), |i| {
            reduce_axes(how, data.dtype, &data.element_at(&rows.data_index(i, &loops))?, &loops)
        })?;
    let loops = rows.reduction_loops(data)?;
    // In a row of NaN alone, no element equals the extreme. The place is then an end of the row, a valid index.
    let (nearest, elsewhere) = if last {
        (Reduction::Max, index_constant(0)?)
    } else {
        (Reduction::Min, data.extents[rows.axes[0]].as_expression()?.sub(&index_constant(1)?)?)
    };
    let place = writer.add_block(&output.block_name("arg_place"), Part::Anchor, (PLACE, &output.extents), |i| {
        let is_extreme = data.element_at(&rows.data_index(i, &loops))?.equal(&extreme.element_at(i)?)?;
        reduce_axes(nearest, PLACE, &is_extreme.select(&loops[0].variable, &elsewhere)?.cast(PLACE)?, &loops)
    })?;
    writer.add_block(&output.block_name("arg_wide"), Part::Epilogue, output.element_type(), |i| {
        place.element_at(i)?.cast(DType::I64)
    })
}

/// Computes the rank of each element, then searches the element of each rank, so that elements are independent.
fn arg_top(writer: &mut Writer, along: usize, largest: bool, data: &Tensor, output: &Output) -> Result<Tensor> {
    let other = loop_axis("k", &data.extents[along], true)?;
    let rank = writer.add_block(&output.block_name("top_rank"), Part::Helper, (PLACE, &data.extents), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let (theirs, own) = (data.element_at(&at)?, data.element_at(i)?);
        let is_better = if largest { theirs.greater(&own)? } else { theirs.less(&own)? };
        let is_earlier = other.variable.less(&i[along])?.select(&index_constant(1)?, &index_constant(0)?)?;
        let of_equals = theirs.equal(&own)?.select(&is_earlier, &index_constant(0)?)?;
        let term = is_better.select(&index_constant(1)?, &of_equals)?;
        reduce_axes(Reduction::Sum, PLACE, &term.cast(PLACE)?, std::slice::from_ref(&other))
    })?;
    let other = loop_axis("k", &data.extents[along], true)?;
    // Takes the maximum position instead of the sum, because NaN may give elements the same rank, and a sum of
    // positions could be out of bounds.
    let place = writer.add_block(&output.block_name("top_place"), Part::Anchor, (PLACE, &output.extents), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let term = rank.element_at(&at)?.equal(&i[along])?.select(&other.variable, &index_constant(0)?)?;
        reduce_axes(Reduction::Max, PLACE, &term.cast(PLACE)?, std::slice::from_ref(&other))
    })?;
    writer.add_block(&output.block_name("top_wide"), Part::Epilogue, output.element_type(), |i| {
        place.element_at(i)?.cast(DType::I64)
    })
}

/// Sums all preceding elements for each element: more work than a scan, but elements are independent.
fn cum_sum(
    writer: &mut Writer,
    along: usize,
    exclusive: bool,
    reverse: bool,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let other = loop_axis("k", &data.extents[along], true)?;
    let dtype = wide_type(output.dtype);
    let sums = writer.add_block(&output.block_name("cum_sum"), Part::Anchor, (dtype, &output.extents), |i| {
        let mut at = i.to_vec();
        at[along] = other.variable.clone();
        let (k, own) = (&other.variable, &i[along]);
        let counts = match (reverse, exclusive) {
            (false, false) => k.at_most(own)?,
            (false, true) => k.less(own)?,
            (true, false) => k.at_least(own)?,
            (true, true) => k.greater(own)?,
        };
        let term = counts.select(&convert(data.element_at(&at)?, data.dtype, dtype)?, &constant(dtype, 0.0)?)?;
        reduce_axes(Reduction::Sum, dtype, &term, std::slice::from_ref(&other))
    })?;
    narrow_sums(writer, sums, output)
}
