//! Reductions over dimensions, cumulative sums, and normalisations that are based on reductions.

use super::movement::{dense_strides, strided_offsets};
use super::tensor::Array;
use models::operators::{
    ArgReduce, ArgTop, CumSum, GroupNorm, LpNorm, Lrn, MeanVarianceNorm, Op, Reduce, ReduceOp, RmsNorm,
};

/// Returns, for each element of `x` in storage order, the index of the result that it contributes to.
pub(super) fn reduction_targets(x: &Array, axes: &[i64]) -> impl Iterator<Item = usize> + use<> {
    let is_reduced = |axis: usize| axes.iter().any(|&reduced| usize::try_from(reduced) == Ok(axis));
    let mut kept = vec![0; x.extents.len()];
    let mut stride = 1;
    for axis in (0..x.extents.len()).rev().filter(|&axis| !is_reduced(axis)) {
        kept[axis] = stride;
        stride *= x.extents[axis];
    }
    strided_offsets(&x.extents, &kept)
}

fn fold_axes(x: &Array, axes: &[i64], count: usize, start: f64, combine: impl Fn(f64, f64, usize) -> f64) -> Vec<f64> {
    let mut folded = vec![start; count];
    for (x, target) in x.data.iter().zip(reduction_targets(x, axes)) {
        folded[target] = combine(folded[target], *x, target);
    }
    folded
}

pub(super) fn compute_reduction(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let x = inputs[0];
    match op {
        Op::Reduce(Reduce { function, axes, .. }) => reduce_axes(x, *function, axes, y),
        Op::ArgReduce(ArgReduce { largest, axis, last, .. }) => arg_reduce(x, *largest, *axis, *last, y),
        Op::ArgTop(ArgTop { count, axis, largest }) => arg_top(x, *count, *axis, *largest, y),
        Op::CumSum(CumSum { axis, exclusive, reverse }) => cum_sum(x, *axis, *exclusive, *reverse, y),
        Op::RmsNorm(RmsNorm { epsilon, .. }) => rms_norm(x, inputs[1], *epsilon, y),
        Op::GroupNorm(GroupNorm { groups, epsilon }) => group_norm(x, inputs[1], inputs[2], *groups, *epsilon, y),
        Op::MeanVarianceNorm(MeanVarianceNorm { axes, epsilon }) => mean_variance_norm(x, axes, *epsilon, y),
        Op::LpNorm(LpNorm { axis, order }) => lp_norm(x, *axis, *order, y),
        Op::Lrn(Lrn { size, alpha, beta, bias }) => normalise_local(x, *size, *alpha, *beta, *bias, y),
        _ => return false,
    }
    true
}

/// Whether an operator returns places of elements, so that only their order matters.
pub(super) fn returns_places(op: &Op) -> bool {
    matches!(op, Op::ArgReduce(_) | Op::ArgTop(_))
}

fn reduce_axes(x: &Array, function: ReduceOp, axes: &[i64], y: &mut Array) {
    let count = y.data.len();
    let terms = x.data.len() as f64 / count.max(1) as f64;
    let sum = |term: &dyn Fn(f64) -> f64| fold_axes(x, axes, count, 0.0, |sum, x, _| sum + term(x));
    let each = |numbers: Vec<f64>, last: &dyn Fn(f64) -> f64| numbers.into_iter().map(last).collect::<Vec<f64>>();
    y.data = match function {
        ReduceOp::Sum => sum(&|x| x),
        ReduceOp::Mean => each(sum(&|x| x), &|sum| sum / terms),
        ReduceOp::Max => fold_axes(x, axes, count, f64::NEG_INFINITY, |largest, x, _| largest.max(x)),
        ReduceOp::Min => fold_axes(x, axes, count, f64::INFINITY, |smallest, x, _| smallest.min(x)),
        ReduceOp::Prod => fold_axes(x, axes, count, 1.0, |product, x, _| product * x),
        ReduceOp::L1 => sum(&f64::abs),
        ReduceOp::L2 => each(sum(&|x| x * x), &f64::sqrt),
        ReduceOp::LogSum => each(sum(&|x| x), &f64::ln),
        ReduceOp::SumSquare => sum(&|x| x * x),
        ReduceOp::LogSumExp => {
            let largest = fold_axes(x, axes, count, f64::NEG_INFINITY, |largest, x, _| largest.max(x));
            // The difference of two infinities is no number.
            let shift: Vec<f64> = largest.iter().map(|largest| largest.clamp(f64::MIN, f64::MAX)).collect();
            let sums = fold_axes(x, axes, count, 0.0, |sum, x, place| sum + (x - shift[place]).exp());
            sums.iter().zip(&largest).map(|(sum, largest)| sum.ln() + largest).collect()
        }
    };
}

fn arg_reduce(x: &Array, largest: bool, axis: i64, last: bool, y: &mut Array) {
    for_each_row(x, axis, |row, result| {
        let mut best = 0;
        for (index, x) in row.iter().enumerate() {
            let is_better = if largest { *x > row[best] } else { *x < row[best] };
            if is_better || (last && *x == row[best]) {
                best = index;
            }
        }
        y.data[result] = best as f64;
    });
}

fn arg_top(x: &Array, count: i64, axis: i64, largest: bool, y: &mut Array) {
    let count = usize::try_from(count).unwrap_or(0);
    let stride = dense_strides(&x.extents)[usize::try_from(axis).unwrap_or(0)];
    for_each_row(x, axis, |row, place| {
        let start = place / stride * stride * count + place % stride;
        let mut order: Vec<usize> = (0..row.len()).collect();
        // Adding 0.0 makes both zeros equal.
        let compare = |a: usize, b: usize| (row[a] + 0.0).total_cmp(&(row[b] + 0.0));
        order.sort_by(|&a, &b| if largest { compare(b, a) } else { compare(a, b) });
        for (rank, index) in order.into_iter().take(count).enumerate() {
            y.data[start + rank * stride] = index as f64;
        }
    });
}

fn for_each_row(x: &Array, axis: i64, mut visit: impl FnMut(&[f64], usize)) {
    let axis = usize::try_from(axis).unwrap_or(0);
    let extent = x.extents[axis];
    let inner: usize = x.extents[axis + 1..].iter().product();
    if extent * inner == 0 {
        return;
    }
    for (outer, block) in x.data.chunks_exact(extent * inner).enumerate() {
        for column in 0..inner {
            let row: Vec<f64> = block[column..].iter().step_by(inner).copied().collect();
            visit(&row, outer * inner + column);
        }
    }
}

fn cum_sum(x: &Array, axis: i64, exclusive: bool, reverse: bool, y: &mut Array) {
    let stride = dense_strides(&x.extents)[usize::try_from(axis).unwrap_or(0)];
    let extent = x.extents[usize::try_from(axis).unwrap_or(0)];
    for_each_row(x, axis, |row, place| {
        let start = place / stride * stride * extent + place % stride;
        let mut sum = 0.0;
        for step in 0..extent {
            let index = if reverse { extent - 1 - step } else { step };
            let before = sum;
            sum += row[index];
            y.data[start + index * stride] = if exclusive { before } else { sum };
        }
    });
}

fn rms_norm(x: &Array, scale: &Array, epsilon: f64, y: &mut Array) {
    let length = scale.data.len();
    if length == 0 {
        return;
    }
    for (x, y) in x.data.chunks_exact(length).zip(y.data.chunks_exact_mut(length)) {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / length as f64;
        for (index, y) in y.iter_mut().enumerate() {
            *y = x[index] / (mean + epsilon).sqrt() * scale.data[index];
        }
    }
}

fn group_norm(x: &Array, scale: &Array, shift: &Array, groups: i64, epsilon: f64, y: &mut Array) {
    let channels = x.extents[1];
    let per_group = channels / usize::try_from(groups).expect("checked attributes are positive");
    let plane: usize = x.extents[2..].iter().product();
    let length = per_group * plane;
    if length == 0 {
        return;
    }
    for (index, (x, y)) in x.data.chunks_exact(length).zip(y.data.chunks_exact_mut(length)).enumerate() {
        let mean = x.iter().sum::<f64>() / length as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / length as f64;
        for (place, (x, y)) in x.iter().zip(y).enumerate() {
            let channel = (index * per_group + place / plane) % channels;
            *y = (x - mean) / (variance + epsilon).sqrt() * scale.data[channel] + shift.data[channel];
        }
    }
}

fn mean_variance_norm(x: &Array, axes: &[i64], epsilon: f64, y: &mut Array) {
    let reduced = |axis: usize| axes.iter().any(|&reduced| usize::try_from(reduced) == Ok(axis));
    let terms: usize = (0..x.extents.len()).filter(|&axis| reduced(axis)).map(|axis| x.extents[axis]).product();
    let count = x.data.len() / terms.max(1);
    let means = fold_axes(x, axes, count, 0.0, |sum, x, _| sum + x / terms as f64);
    let variances = fold_axes(x, axes, count, 0.0, |sum, x, place| sum + (x - means[place]).powi(2) / terms as f64);
    for ((x, y), place) in x.data.iter().zip(&mut y.data).zip(reduction_targets(x, axes)) {
        *y = (x - means[place]) / (variances[place].sqrt() + epsilon);
    }
}

fn lp_norm(x: &Array, axis: i64, order: i64, y: &mut Array) {
    let count = x.data.len() / x.extents[usize::try_from(axis).unwrap_or(0)].max(1);
    let sums = fold_axes(x, &[axis], count, 0.0, |sum, x, _| sum + if order == 1 { x.abs() } else { x * x });
    for ((x, y), place) in x.data.iter().zip(&mut y.data).zip(reduction_targets(x, &[axis])) {
        let norm = if order == 1 { sums[place] } else { sums[place].sqrt() };
        *y = if norm == 0.0 { 0.0 } else { x / norm };
    }
}

fn normalise_local(x: &Array, size: i64, alpha: f64, beta: f64, bias: f64, y: &mut Array) {
    let size = usize::try_from(size).expect("checked attributes are positive");
    let channels = x.extents[1];
    let plane: usize = x.extents[2..].iter().product();
    for (index, y) in y.data.iter_mut().enumerate() {
        let (before, channel, place) = (index / (channels * plane), index / plane % channels, index % plane);
        let first = channel.saturating_sub((size - 1) / 2);
        let end = (channel + size / 2 + 1).min(channels);
        let squares = (first..end).map(|near| x.data[(before * channels + near) * plane + place].powi(2));
        *y = x.data[index] / (bias + alpha / size as f64 * squares.sum::<f64>()).powf(beta);
    }
}
