//! Numbers with a scale and a zero point.

use super::tensor::{Array, round};
use models::operators::{Dequantize, Op, Quantize, Requantize};
use models::types::DType;

/// Calls with each element and the place of its scale.
fn each(x: &Array, scale: &Array, axis: i64, y: &mut Array, function: impl Fn(f64, usize) -> f64) {
    if scale.extents.is_empty() {
        y.data.iter_mut().zip(&x.data).for_each(|(y, x)| *y = function(*x, 0));
    } else {
        super::pointwise::per_channel(x, axis, y, function);
    }
}

/// Scales are worked with in 32-bit floats unless they are wider.
fn wide(scale: &Array) -> DType {
    if scale.ty().dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

fn zero_at(zero: Option<&&Array>, channel: usize) -> f64 {
    zero.map_or(0.0, |zero| zero.data[channel])
}

/// Computes conversions between numbers and quantised ones.
pub(super) fn compute(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    match op {
        Op::Quantize(Quantize { to, axis }) => quantize(inputs, *to, *axis, y),
        Op::Dequantize(Dequantize { axis }) => dequantize(inputs, *axis, y),
        Op::Requantize(Requantize { axis, zero, low, high, .. }) => {
            requantize(inputs[0], inputs[1], *axis, [*zero, *low, *high], y);
        }
        _ => return false,
    }
    true
}

fn quantize(inputs: &[&Array], to: DType, axis: i64, y: &mut Array) {
    let dtype = wide(inputs[1]);
    let (low, high) = to.integer_range().expect("a checked operator quantises to a narrow integer");
    each(inputs[0], inputs[1], axis, y, |x, channel| {
        let whole = round(dtype, x / inputs[1].data[channel]).round_ties_even();
        (whole + zero_at(inputs.get(2), channel)).clamp(low as f64, high as f64)
    });
}

fn dequantize(inputs: &[&Array], axis: i64, y: &mut Array) {
    each(inputs[0], inputs[1], axis, y, |x, channel| (x - zero_at(inputs.get(2), channel)) * inputs[1].data[channel]);
}

fn requantize(x: &Array, multiplier: &Array, axis: i64, [zero, low, high]: [i64; 3], y: &mut Array) {
    let dtype = wide(multiplier);
    each(x, multiplier, axis, y, |x, channel| {
        (round(dtype, round(dtype, x) * multiplier.data[channel]).round_ties_even() + zero as f64)
            .clamp(low as f64, high as f64)
    });
}

/// The same numbers, counted from a zero point.
pub(super) fn centred(x: &Array, zero: i64) -> Array {
    let mut centred = x.clone();
    centred.data.iter_mut().for_each(|x| *x -= zero as f64);
    centred
}
