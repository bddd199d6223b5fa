//! Quantisation, dequantisation and requantisation.

use super::tensor::{Array, round_to};
use models::operators::{Dequantize, Op, Quantize, Requantize};
use models::types::DType;

fn for_each_scaled(x: &Array, scale: &Array, axis: i64, y: &mut Array, function: impl Fn(f64, usize) -> f64) {
    if scale.extents.is_empty() {
        y.data.iter_mut().zip(&x.data).for_each(|(y, x)| *y = function(*x, 0));
    } else {
        super::pointwise::per_channel(x, axis, y, function);
    }
}

/// Returns the type in which scales are applied: 32-bit floats unless the scale is wider.
fn scale_dtype(scale: &Array) -> DType {
    if scale.tensor_type().dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

fn zero_at(zero: Option<&&Array>, channel: usize) -> f64 {
    zero.map_or(0.0, |zero| zero.data[channel])
}

pub(super) fn compute_quantised(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    match op {
        Op::Quantize(Quantize { to, axis }) => quantize_array(inputs, *to, *axis, y),
        Op::Dequantize(Dequantize { axis }) => dequantize_array(inputs, *axis, y),
        Op::Requantize(Requantize { axis, zero, low, high, .. }) => {
            requantize_array(inputs[0], inputs[1], *axis, [*zero, *low, *high], y);
        }
        _ => return false,
    }
    true
}

fn quantize_array(inputs: &[&Array], to: DType, axis: i64, y: &mut Array) {
    let dtype = scale_dtype(inputs[1]);
    let (low, high) = to.integer_range().expect("a checked operator quantises to a narrow integer");
    for_each_scaled(inputs[0], inputs[1], axis, y, |x, channel| {
        let whole = round_to(dtype, x / inputs[1].data[channel]).round_ties_even();
        (whole + zero_at(inputs.get(2), channel)).clamp(low as f64, high as f64)
    });
}

fn dequantize_array(inputs: &[&Array], axis: i64, y: &mut Array) {
    for_each_scaled(inputs[0], inputs[1], axis, y, |x, channel| {
        (x - zero_at(inputs.get(2), channel)) * inputs[1].data[channel]
    });
}

fn requantize_array(x: &Array, multiplier: &Array, axis: i64, [zero, low, high]: [i64; 3], y: &mut Array) {
    let dtype = scale_dtype(multiplier);
    for_each_scaled(x, multiplier, axis, y, |x, channel| {
        (round_to(dtype, round_to(dtype, x) * multiplier.data[channel]).round_ties_even() + zero as f64)
            .clamp(low as f64, high as f64)
    });
}

pub(super) fn subtract_zero(x: &Array, zero: i64) -> Array {
    let mut centred = x.clone();
    centred.data.iter_mut().for_each(|x| *x -= zero as f64);
    centred
}
