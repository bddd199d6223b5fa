//! Batch normalisation with its statistics, and softmax.

use super::pointwise::axis_of;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Reduction, Tensor, axis, constant, reduce};
use models::Op;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    match op {
        Op::BatchNorm { epsilon } => batch_norm(writer, *epsilon, inputs, output),
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
