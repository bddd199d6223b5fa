//! Lowers normalisations: helper blocks that reduce rows, then one block that scales every element. Half precision is
//! computed in 32 bits, because its sums would lose small terms.

use super::pointwise::{apply_unary, axis_of, convert, drop_tiny_weight, read_wide, wide_type};
use super::reduce::ReducedRows;
use super::{Indices, Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{
    Axis, Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, reduce_axes,
};
use models::operators::{BatchNorm, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, RmsNorm, Softmax};
use models::{DType, Op, UnaryOp};

pub(super) fn lower_normalise(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    match op {
        Op::BatchNorm(BatchNorm { epsilon }) => batch_norm(writer, *epsilon, inputs, output),
        Op::LayerNorm(LayerNorm { axis, epsilon }) => {
            layer_norm(writer, axis_of(*axis, output.extents.len()), *epsilon, inputs, output)
        }
        Op::RmsNorm(RmsNorm { axis, epsilon }) => {
            rms_norm(writer, axis_of(*axis, output.extents.len()), *epsilon, inputs, output)
        }
        Op::GroupNorm(GroupNorm { groups, epsilon }) => group_norm(writer, *groups, *epsilon, inputs, output),
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => {
            mean_variance_norm(writer, axes, *epsilon, &inputs[0], output)
        }
        Op::LpNorm(LpNorm { axis, order }) => lp_norm(writer, *axis, *order, &inputs[0], output),
        Op::Lrn(Lrn { size, alpha, beta, bias }) => {
            normalise_channels(writer, *size, [*alpha, *beta, *bias], &inputs[0], output)
        }
        Op::Softmax(Softmax { axis, log }) => softmax_rows(writer, *axis, *log, &inputs[0], output),
        _ => return Ok(None),
    }
    .map(Some)
}

fn batch_norm(writer: &mut Writer, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift, mean, variance] = inputs else { unreachable!("batch_norm has five inputs") };
    writer.add_block(&output.block_name("batch_norm"), output.block_part(), output.element_type(), |i| {
        let channel = [i[1].clone()];
        let deviation = variance
            .element_at(&channel)?
            .add(&constant(output.dtype, epsilon)?)?
            .call_unary("tirx.sqrt", output.dtype)?;
        let centred = data.element_at(i)?.sub(&mean.element_at(&channel)?)?;
        centred.div(&deviation)?.mul(&scale.element_at(&channel)?)?.add(&shift.element_at(&channel)?)
    })
}

fn layer_norm(writer: &mut Writer, first: usize, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift] = inputs else { unreachable!("layer_norm has three inputs") };
    let dtype = wide_type(output.dtype);
    let (rows, row) = output.extents.split_at(first);
    let count: i64 = writer.known_extents(row)?.iter().product();
    let part = constant(dtype, 1.0 / count as f64)?;
    let axes = || -> Result<Vec<Axis>> {
        let axes = row.iter().enumerate().map(|(d, extent)| loop_axis(&format!("k{d}"), extent, true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    };
    let along = |i: &[Expression], axes: &[Axis]| -> Vec<Expression> {
        i.iter().cloned().chain(axes.iter().map(|axis| axis.variable.clone())).collect()
    };
    // A normalisation over the whole tensor has one row.
    let (rows, is_whole) = if rows.is_empty() { (vec![Extent::Known(1)], true) } else { (rows.to_vec(), false) };
    let row_of =
        |i: &[Expression]| -> Indices { if is_whole { Ok(vec![index_constant(0)?]) } else { Ok(i[..first].to_vec()) } };
    let own = |i: &[Expression]| if is_whole { Vec::new() } else { i.to_vec() };
    let sum_axes = axes()?;
    let sum = writer.add_block(&output.block_name("norm_sum"), Part::Helper, (dtype, &rows), |i| {
        reduce_axes(Reduction::Sum, dtype, &read_wide(data, &along(&own(i), &sum_axes))?, &sum_axes)
    })?;
    let square_axes = axes()?;
    let squares = writer.add_block(&output.block_name("norm_squares"), Part::Helper, (dtype, &rows), |i| {
        let centred = read_wide(data, &along(&own(i), &square_axes))?.sub(&sum.element_at(i)?.mul(&part)?)?;
        reduce_axes(Reduction::Sum, dtype, &centred.mul(&centred)?, &square_axes)
    })?;
    writer.add_block(&output.block_name("layer_norm"), Part::Anchor, output.element_type(), |i| {
        let row = row_of(i)?;
        let centred = read_wide(data, i)?.sub(&sum.element_at(&row)?.mul(&part)?)?;
        let variance = squares.element_at(&row)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        let normal = centred.div(&variance.call_unary("tirx.sqrt", dtype)?)?;
        let scaled = normal.mul(&read_wide(scale, &i[first..])?)?.add(&read_wide(shift, &i[first..])?)?;
        convert(scaled, dtype, output.dtype)
    })
}

fn rms_norm(writer: &mut Writer, first: usize, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale] = inputs else { unreachable!("rms_norm has two inputs") };
    let dtype = wide_type(output.dtype);
    let rows = ReducedRows { axes: (first..output.extents.len()).collect(), keep: true };
    let part = constant(dtype, 1.0 / rows.reduced_count(writer, data)? as f64)?;
    let squares = sum_rows(writer, &output.block_name("norm_squares"), &rows, data, |x, _| x.mul(&x))?;
    writer.add_block(&output.block_name("rms_norm"), Part::Anchor, output.element_type(), |i| {
        let mean = squares.element_at(&rows.result_index(i)?)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        let normal = read_wide(data, i)?.div(&apply_unary(UnaryOp::Sqrt, &mean, dtype)?)?;
        convert(normal.mul(&read_wide(scale, &i[first..])?)?, dtype, output.dtype)
    })
}

/// Sums `term` over each row in a helper block. The arguments of `term` are an element and the index of its row.
fn sum_rows(
    writer: &mut Writer,
    name: &str,
    rows: &ReducedRows,
    data: &Tensor,
    term: impl Fn(Expression, &[Expression]) -> std::result::Result<Expression, TvmError>,
) -> Result<Tensor> {
    let dtype = wide_type(data.dtype);
    let loops = rows.reduction_loops(data)?;
    writer.add_block(name, Part::Helper, (dtype, &rows.result_extents(data)), |i| {
        reduce_axes(Reduction::Sum, dtype, &term(read_wide(data, &rows.data_index(i, &loops))?, i)?, &loops)
    })
}

fn mean_variance_norm(
    writer: &mut Writer,
    axes: &[i64],
    epsilon: f64,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let dtype = wide_type(output.dtype);
    let rank = output.extents.len();
    let rows = ReducedRows { axes: axes.iter().map(|&axis| axis_of(axis, rank)).collect(), keep: true };
    let part = constant(dtype, 1.0 / rows.reduced_count(writer, data)? as f64)?;
    let total = sum_rows(writer, &output.block_name("norm_sum"), &rows, data, |x, _| Ok(x))?;
    let squares = sum_rows(writer, &output.block_name("norm_squares"), &rows, data, |x, row| {
        let centred = x.sub(&total.element_at(row)?.mul(&part)?)?;
        centred.mul(&centred)
    })?;
    writer.add_block(&output.block_name("mean_variance_norm"), Part::Anchor, output.element_type(), |i| {
        let row = rows.result_index(i)?;
        let deviation = apply_unary(UnaryOp::Sqrt, &squares.element_at(&row)?.mul(&part)?, dtype)?;
        let centred = read_wide(data, i)?.sub(&total.element_at(&row)?.mul(&part)?)?;
        convert(centred.div(&deviation.add(&constant(dtype, epsilon)?)?)?, dtype, output.dtype)
    })
}

fn lp_norm(writer: &mut Writer, axis: i64, order: i64, data: &Tensor, output: &Output) -> Result<Tensor> {
    let dtype = wide_type(output.dtype);
    let rows = ReducedRows { axes: vec![axis_of(axis, output.extents.len())], keep: true };
    let powers = sum_rows(writer, &output.block_name("norm_powers"), &rows, data, |x, _| match order {
        1 => x.abs(),
        _ => x.mul(&x),
    })?;
    writer.add_block(&output.block_name("lp_norm"), Part::Anchor, output.element_type(), |i| {
        let power = powers.element_at(&rows.result_index(i)?)?;
        let norm = if order == 1 { power } else { apply_unary(UnaryOp::Sqrt, &power, dtype)? };
        let zero = constant(dtype, 0.0)?;
        convert(norm.equal(&zero)?.select(&zero, &read_wide(data, i)?.div(&norm)?)?, dtype, output.dtype)
    })
}

fn group_norm(writer: &mut Writer, groups: i64, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift] = inputs else { unreachable!("group_norm has three inputs") };
    let dtype = wide_type(output.dtype);
    let per_group = writer.known_extent(&data.extents[1])? / groups;
    let spatial = writer.known_extents(&data.extents[2..])?;
    let part = constant(dtype, 1.0 / (per_group * spatial.iter().product::<i64>()) as f64)?;
    let rows = [data.extents[0].clone(), Extent::Known(groups)];
    let loops = || -> Result<Vec<Axis>> {
        let extents = std::iter::once(&per_group).chain(&spatial).enumerate();
        let axes = extents.map(|(d, &extent)| loop_axis(&format!("k{d}"), &Extent::Known(extent), true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    };
    let read = |i: &[Expression], loops: &[Axis]| {
        let channel = i[1].mul(&index_constant(per_group)?)?.add(&loops[0].variable)?;
        let mut at = vec![i[0].clone(), channel];
        at.extend(loops[1..].iter().map(|axis| axis.variable.clone()));
        read_wide(data, &at)
    };
    let axes = loops()?;
    let total = writer.add_block(&output.block_name("norm_sum"), Part::Helper, (dtype, &rows), |i| {
        reduce_axes(Reduction::Sum, dtype, &read(i, &axes)?, &axes)
    })?;
    let axes = loops()?;
    let squares = writer.add_block(&output.block_name("norm_squares"), Part::Helper, (dtype, &rows), |i| {
        let centred = read(i, &axes)?.sub(&total.element_at(i)?.mul(&part)?)?;
        reduce_axes(Reduction::Sum, dtype, &centred.mul(&centred)?, &axes)
    })?;
    writer.add_block(&output.block_name("group_norm"), Part::Anchor, output.element_type(), |i| {
        let row = [i[0].clone(), i[1].floor_div(&index_constant(per_group)?)?];
        let channel = [i[1].clone()];
        let centred = read_wide(data, i)?.sub(&total.element_at(&row)?.mul(&part)?)?;
        let variance = squares.element_at(&row)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        let normal = centred.div(&apply_unary(UnaryOp::Sqrt, &variance, dtype)?)?;
        let scaled = normal.mul(&read_wide(scale, &channel)?)?.add(&read_wide(shift, &channel)?)?;
        convert(scaled, dtype, output.dtype)
    })
}

fn normalise_channels(
    writer: &mut Writer,
    size: i64,
    [alpha, beta, bias]: [f64; 3],
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let dtype = wide_type(output.dtype);
    let near = loop_axis("k", &Extent::Known(size), true)?;
    let channels = writer.known_extent(&data.extents[1])?;
    let like = (dtype, &output.extents[..]);
    let squares = writer.add_block(&output.block_name("lrn_squares"), Part::Anchor, like, |i| {
        let channel = i[1].add(&near.variable)?.sub(&index_constant((size - 1) / 2)?)?;
        let inside = channel.at_least(&index_constant(0)?)?.and(&channel.less(&index_constant(channels)?)?)?;
        let mut at = i.to_vec();
        at[1] = channel;
        let x = read_wide(data, &at)?;
        let term = inside.if_then_else(&x.mul(&x)?, &constant(dtype, 0.0)?)?;
        reduce_axes(Reduction::Sum, dtype, &term, std::slice::from_ref(&near))
    })?;
    writer.add_block(&output.block_name("lrn"), Part::Epilogue, output.element_type(), |i| {
        let base = squares.element_at(i)?.mul(&constant(dtype, alpha / size as f64)?)?.add(&constant(dtype, bias)?)?;
        let power = base.function_with("tirx.pow", &constant(dtype, beta)?, dtype)?;
        convert(read_wide(data, i)?.div(&power)?, dtype, output.dtype)
    })
}

/// Natural logarithm of the smallest normal number of 32 bits, rounded up.
const SMALLEST_NORMAL_LOG: f64 = -87.3;

fn softmax_rows(writer: &mut Writer, dimension: i64, log: bool, data: &Tensor, output: &Output) -> Result<Tensor> {
    let dimension = axis_of(dimension, output.extents.len());
    let (dtype, wide) = (output.dtype, wide_type(output.dtype));
    let rows: Vec<Extent> = remove_dimension(&output.extents, dimension);
    let row_reduction = |writer: &mut Writer,
                         name: &str,
                         how: Reduction,
                         source: &Tensor,
                         dtype: DType|
     -> Result<Tensor> {
        let along: Axis = loop_axis("k", &output.extents[dimension], true)?;
        writer.add_block(&output.block_name(name), Part::Helper, (dtype, &rows), |i| {
            reduce_axes(
                how,
                dtype,
                &convert(source.element_at(&insert_dimension(i, dimension, &along.variable))?, source.dtype, dtype)?,
                std::slice::from_ref(&along),
            )
        })
    };
    let maximum = row_reduction(writer, "softmax_max", Reduction::Max, data, dtype)?;
    let shifted = |i: &[Expression]| -> std::result::Result<Expression, TvmError> {
        data.element_at(i)?.sub(&maximum.element_at(&remove_dimension(i, dimension))?)
    };
    let exponential =
        writer.add_block(&output.block_name("softmax_exp"), Part::Helper, output.element_type(), |i| {
            let difference = shifted(i)?;
            drop_tiny_weight(&difference.call_unary("tirx.exp", dtype)?, &difference, SMALLEST_NORMAL_LOG, dtype)
        })?;
    let sum = row_reduction(writer, "softmax_sum", Reduction::Sum, &exponential, wide)?;
    writer.add_block(&output.block_name("softmax"), Part::Anchor, output.element_type(), |i| {
        let total = sum.element_at(&remove_dimension(i, dimension))?;
        let value = if log {
            convert(shifted(i)?, dtype, wide)?.sub(&total.call_unary("tirx.log", wide)?)?
        } else {
            read_wide(&exponential, i)?.div(&total)?
        };
        convert(value, wide, dtype)
    })
}

fn remove_dimension<T: Clone>(items: &[T], dimension: usize) -> Vec<T> {
    items.iter().enumerate().filter(|(place, _)| *place != dimension).map(|(_, item)| item.clone()).collect()
}

fn insert_dimension(items: &[Expression], dimension: usize, item: &Expression) -> Vec<Expression> {
    let mut longer = items.to_vec();
    longer.insert(dimension, item.clone());
    longer
}
