//! Normalisations: each is helpers over rows, then one block that scales every element.

use super::pointwise::{axis_of, unary, wide};
use super::reduce::ReducedRows;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Extent, Reduction, Tensor, axis, constant, index, reduce};
use models::operators::{BatchNorm, GroupNorm, LayerNorm, LpNorm, Lrn, MeanVarianceNorm, RmsNorm, Softmax};
use models::{Op, UnaryOp};

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
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
        Op::Lrn(Lrn { size, alpha, beta, bias }) => lrn(writer, *size, [*alpha, *beta, *bias], &inputs[0], output),
        Op::Softmax(Softmax { axis, log }) => softmax(writer, *axis, *log, &inputs[0], output),
        _ => return Ok(None),
    }
    .map(Some)
}

fn batch_norm(writer: &mut Writer, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift, mean, variance] = inputs else { unreachable!("batch_norm has five inputs") };
    writer.block(&output.name("batch_norm"), output.part(), output.like(), |i| {
        let channel = [i[1].clone()];
        let deviation =
            variance.at(&channel)?.add(&constant(output.dtype, epsilon)?)?.function("tirx.sqrt", output.dtype)?;
        let centred = data.at(i)?.sub(&mean.at(&channel)?)?;
        centred.div(&deviation)?.mul(&scale.at(&channel)?)?.add(&shift.at(&channel)?)
    })
}

/// Mean, variance around it, and the normalised value: three blocks, each over rows.
fn layer_norm(writer: &mut Writer, first: usize, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift] = inputs else { unreachable!("layer_norm has three inputs") };
    let dtype = output.dtype;
    let (rows, row) = output.extents.split_at(first);
    let count: i64 = writer.numbers(row)?.iter().product();
    let part = constant(dtype, 1.0 / count as f64)?;
    let axes = || -> Result<Vec<Axis>> {
        let axes = row.iter().enumerate().map(|(d, extent)| axis(&format!("k{d}"), extent, true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    };
    let along = |i: &[Expression], axes: &[Axis]| -> Vec<Expression> {
        i.iter().cloned().chain(axes.iter().map(|axis| axis.variable.clone())).collect()
    };
    // A function of a whole tensor still has one row.
    let (rows, is_whole) = if rows.is_empty() { (vec![Extent::Known(1)], true) } else { (rows.to_vec(), false) };
    let row_of = |i: &[Expression]| -> std::result::Result<Vec<Expression>, TvmError> {
        if is_whole { Ok(vec![index(0)?]) } else { Ok(i[..first].to_vec()) }
    };
    let own = |i: &[Expression]| if is_whole { Vec::new() } else { i.to_vec() };
    let sum_axes = axes()?;
    let sum = writer.block(&output.name("norm_sum"), Part::Helper, (dtype, &rows), |i| {
        reduce(Reduction::Sum, dtype, &data.at(&along(&own(i), &sum_axes))?, &sum_axes)
    })?;
    let square_axes = axes()?;
    let squares = writer.block(&output.name("norm_squares"), Part::Helper, (dtype, &rows), |i| {
        let centred = data.at(&along(&own(i), &square_axes))?.sub(&sum.at(i)?.mul(&part)?)?;
        reduce(Reduction::Sum, dtype, &centred.mul(&centred)?, &square_axes)
    })?;
    writer.block(&output.name("layer_norm"), Part::Anchor, output.like(), |i| {
        let row = row_of(i)?;
        let centred = data.at(i)?.sub(&sum.at(&row)?.mul(&part)?)?;
        let variance = squares.at(&row)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        let normal = centred.div(&variance.function("tirx.sqrt", dtype)?)?;
        normal.mul(&scale.at(&i[first..])?)?.add(&shift.at(&i[first..])?)
    })
}

fn rms_norm(writer: &mut Writer, first: usize, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale] = inputs else { unreachable!("rms_norm has two inputs") };
    let dtype = output.dtype;
    let rows = ReducedRows { axes: (first..output.extents.len()).collect(), keep: true };
    let part = constant(dtype, 1.0 / rows.count(writer, data)? as f64)?;
    let squares = sum(writer, &output.name("norm_squares"), &rows, data, |x, _| x.mul(&x))?;
    writer.block(&output.name("rms_norm"), Part::Anchor, output.like(), |i| {
        let mean = squares.at(&rows.row(i)?)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        data.at(i)?.div(&unary(UnaryOp::Sqrt, &mean, dtype)?)?.mul(&scale.at(&i[first..])?)
    })
}

/// The sum of a term over rows, as a helper. The term gets an element and the place of its row.
fn sum(
    writer: &mut Writer,
    name: &str,
    rows: &ReducedRows,
    data: &Tensor,
    term: impl Fn(Expression, &[Expression]) -> std::result::Result<Expression, TvmError>,
) -> Result<Tensor> {
    let loops = rows.loops(data)?;
    writer.block(name, Part::Helper, (data.dtype, &rows.extents(data)), |i| {
        reduce(Reduction::Sum, data.dtype, &term(data.at(&rows.at(i, &loops))?, i)?, &loops)
    })
}

fn mean_variance_norm(
    writer: &mut Writer,
    axes: &[i64],
    epsilon: f64,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let dtype = output.dtype;
    let rank = output.extents.len();
    let rows = ReducedRows { axes: axes.iter().map(|&axis| axis_of(axis, rank)).collect(), keep: true };
    let part = constant(dtype, 1.0 / rows.count(writer, data)? as f64)?;
    let total = sum(writer, &output.name("norm_sum"), &rows, data, |x, _| Ok(x))?;
    let squares = sum(writer, &output.name("norm_squares"), &rows, data, |x, row| {
        let centred = x.sub(&total.at(row)?.mul(&part)?)?;
        centred.mul(&centred)
    })?;
    writer.block(&output.name("mean_variance_norm"), Part::Anchor, output.like(), |i| {
        let row = rows.row(i)?;
        let deviation = unary(UnaryOp::Sqrt, &squares.at(&row)?.mul(&part)?, dtype)?;
        data.at(i)?.sub(&total.at(&row)?.mul(&part)?)?.div(&deviation.add(&constant(dtype, epsilon)?)?)
    })
}

fn lp_norm(writer: &mut Writer, axis: i64, order: i64, data: &Tensor, output: &Output) -> Result<Tensor> {
    let rows = ReducedRows { axes: vec![axis_of(axis, output.extents.len())], keep: true };
    let powers = sum(writer, &output.name("norm_powers"), &rows, data, |x, _| match order {
        1 => x.abs(),
        _ => x.mul(&x),
    })?;
    writer.block(&output.name("lp_norm"), Part::Anchor, output.like(), |i| {
        let power = powers.at(&rows.row(i)?)?;
        let norm = if order == 1 { power } else { unary(UnaryOp::Sqrt, &power, output.dtype)? };
        let zero = constant(output.dtype, 0.0)?;
        norm.equal(&zero)?.select(&zero, &data.at(i)?.div(&norm)?)
    })
}

/// Sums and squares of each group of channels, then the normalised value.
fn group_norm(writer: &mut Writer, groups: i64, epsilon: f64, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, scale, shift] = inputs else { unreachable!("group_norm has three inputs") };
    let dtype = output.dtype;
    let per_group = writer.number(&data.extents[1])? / groups;
    let spatial = writer.numbers(&data.extents[2..])?;
    let part = constant(dtype, 1.0 / (per_group * spatial.iter().product::<i64>()) as f64)?;
    let rows = [data.extents[0].clone(), Extent::Known(groups)];
    let loops = || -> Result<Vec<Axis>> {
        let extents = std::iter::once(&per_group).chain(&spatial).enumerate();
        let axes = extents.map(|(d, &extent)| axis(&format!("k{d}"), &Extent::Known(extent), true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    };
    let read = |i: &[Expression], loops: &[Axis]| {
        let channel = i[1].mul(&index(per_group)?)?.add(&loops[0].variable)?;
        let mut at = vec![i[0].clone(), channel];
        at.extend(loops[1..].iter().map(|axis| axis.variable.clone()));
        data.at(&at)
    };
    let axes = loops()?;
    let total = writer.block(&output.name("norm_sum"), Part::Helper, (dtype, &rows), |i| {
        reduce(Reduction::Sum, dtype, &read(i, &axes)?, &axes)
    })?;
    let axes = loops()?;
    let squares = writer.block(&output.name("norm_squares"), Part::Helper, (dtype, &rows), |i| {
        let centred = read(i, &axes)?.sub(&total.at(i)?.mul(&part)?)?;
        reduce(Reduction::Sum, dtype, &centred.mul(&centred)?, &axes)
    })?;
    writer.block(&output.name("group_norm"), Part::Anchor, output.like(), |i| {
        let row = [i[0].clone(), i[1].floor_div(&index(per_group)?)?];
        let channel = [i[1].clone()];
        let centred = data.at(i)?.sub(&total.at(&row)?.mul(&part)?)?;
        let variance = squares.at(&row)?.mul(&part)?.add(&constant(dtype, epsilon)?)?;
        let normal = centred.div(&unary(UnaryOp::Sqrt, &variance, dtype)?)?;
        normal.mul(&scale.at(&channel)?)?.add(&shift.at(&channel)?)
    })
}

/// Squares of the neighbouring channels, then the scaled value.
fn lrn(
    writer: &mut Writer,
    size: i64,
    [alpha, beta, bias]: [f64; 3],
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let dtype = output.dtype;
    let near = axis("k", &Extent::Known(size), true)?;
    let channels = writer.number(&data.extents[1])?;
    let squares = writer.block(&output.name("lrn_squares"), Part::Anchor, output.like(), |i| {
        let channel = i[1].add(&near.variable)?.sub(&index((size - 1) / 2)?)?;
        let inside = channel.at_least(&index(0)?)?.and(&channel.less(&index(channels)?)?)?;
        let mut at = i.to_vec();
        at[1] = channel;
        let x = data.at(&at)?;
        let term = inside.if_then_else(&x.mul(&x)?, &constant(dtype, 0.0)?)?;
        reduce(Reduction::Sum, dtype, &term, std::slice::from_ref(&near))
    })?;
    writer.block(&output.name("lrn"), Part::Epilogue, output.like(), |i| {
        let wide = wide(dtype);
        let base = squares.at(i)?.mul(&constant(dtype, alpha / size as f64)?)?.add(&constant(dtype, bias)?)?;
        let power = base.cast(wide)?.function_with("tirx.pow", &constant(wide, beta)?, wide)?.cast(dtype)?;
        data.at(i)?.div(&power)
    })
}

/// Maximum, exponential, sum, quotient: four blocks, each over rows.
fn softmax(writer: &mut Writer, dimension: i64, log: bool, data: &Tensor, output: &Output) -> Result<Tensor> {
    let dimension = axis_of(dimension, output.extents.len());
    let dtype = output.dtype;
    let rows: Vec<Extent> = without(&output.extents, dimension);
    let row_reduction = |writer: &mut Writer, name: &str, how: Reduction, source: &Tensor| -> Result<Tensor> {
        let along: Axis = axis("k", &output.extents[dimension], true)?;
        writer.block(&output.name(name), Part::Helper, (dtype, &rows), |i| {
            reduce(how, dtype, &source.at(&with(i, dimension, &along.variable))?, std::slice::from_ref(&along))
        })
    };
    let maximum = row_reduction(writer, "softmax_max", Reduction::Max, data)?;
    let shifted = |i: &[Expression]| -> std::result::Result<Expression, TvmError> {
        data.at(i)?.sub(&maximum.at(&without(i, dimension))?)
    };
    let exponential = writer
        .block(&output.name("softmax_exp"), Part::Helper, output.like(), |i| shifted(i)?.function("tirx.exp", dtype))?;
    let sum = row_reduction(writer, "softmax_sum", Reduction::Sum, &exponential)?;
    writer.block(&output.name("softmax"), Part::Anchor, output.like(), |i| {
        let total = sum.at(&without(i, dimension))?;
        if log { shifted(i)?.sub(&total.function("tirx.log", dtype)?) } else { exponential.at(i)?.div(&total) }
    })
}

fn without<T: Clone>(items: &[T], dimension: usize) -> Vec<T> {
    items.iter().enumerate().filter(|(place, _)| *place != dimension).map(|(_, item)| item.clone()).collect()
}

fn with(items: &[Expression], dimension: usize, item: &Expression) -> Vec<Expression> {
    let mut longer = items.to_vec();
    longer.insert(dimension, item.clone());
    longer
}
