//! Batch normalisation with its statistics, layer normalisation, and softmax.

use super::pointwise::axis_of;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Reduction, Tensor, axis, constant, index, reduce};
use models::Op;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    match op {
        Op::BatchNorm { epsilon } => batch_norm(writer, *epsilon, inputs, output),
        Op::LayerNorm { axis, epsilon } => {
            layer_norm(writer, axis_of(*axis, output.extents.len()), *epsilon, inputs, output)
        }
        Op::Softmax { axis, log } => softmax(writer, *axis, *log, &inputs[0], output),
        other => unreachable!("`{other:?}` does not normalise"),
    }
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
    let count: i64 = row.iter().product();
    let part = constant(dtype, 1.0 / count as f64)?;
    let axes = || -> Result<Vec<Axis>> {
        let axes = row.iter().enumerate().map(|(d, &extent)| axis(&format!("k{d}"), extent, true));
        Ok(axes.collect::<std::result::Result<_, _>>()?)
    };
    let along = |i: &[Expression], axes: &[Axis]| -> Vec<Expression> {
        i.iter().cloned().chain(axes.iter().map(|axis| axis.variable.clone())).collect()
    };
    // A function of a whole tensor still has one row.
    let (rows, is_whole) = if rows.is_empty() { (vec![1], true) } else { (rows.to_vec(), false) };
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

/// Maximum, exponential, sum, quotient: four blocks, each over rows.
fn softmax(writer: &mut Writer, dimension: i64, log: bool, data: &Tensor, output: &Output) -> Result<Tensor> {
    let dimension = axis_of(dimension, output.extents.len());
    let dtype = output.dtype;
    let rows: Vec<i64> = without(&output.extents, dimension);
    let row_reduction = |writer: &mut Writer, name: &str, how: Reduction, source: &Tensor| -> Result<Tensor> {
        let along: Axis = axis("k", output.extents[dimension], true)?;
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
