//! Fourier transforms as products with constant matrices; window functions and mel filters as constants.

use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Conv, Dense, Op};
use models::types::{DType, TensorType};
use reference::Tensor;
use std::f64::consts::PI;

type Outputs = Outcome<Vec<ValueId>>;

const MAX_MADE: i64 = 1 << 24;

fn constant_matrix(
    emit: &mut Emit<'_>,
    dtype: DType,
    [rows, columns]: [i64; 2],
    number: impl Fn(i64, i64) -> f64,
) -> Outcome<ValueId> {
    // A matrix without columns has no elements, but its rows would be counted one by one.
    if rows.max(1).checked_mul(columns.max(1)).is_none_or(|count| count > MAX_MADE) {
        return unsupported(format!("a matrix of {rows} x {columns} elements is too large"));
    }
    let numbers: Vec<f64> = (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| number(row, column))
        .collect();
    emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[rows, columns]), &numbers)?)
}

/// Returns the angle of a Fourier coefficient. Full turns are removed in integers first, to keep precision.
fn dft_angle(frequency: i64, element: i64, length: i64) -> f64 {
    2.0 * PI * (i128::from(frequency) * i128::from(element) % i128::from(length)) as f64 / length as f64
}

/// Emits `DFT` of `x[…, n, …, 1 or 2]`; the last dimension holds the real and optionally the imaginary part.
pub(super) fn dft(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let rank = extents.len();
    let axis = match call.optional_input(2).filter(|_| call.opset >= 20) {
        Some(axis) => emit.require_number(axis, "axis")? as i64,
        None if call.opset >= 20 => -2,
        None => call.int_attribute("axis", 1),
    };
    let axis = emit.resolve_axis(axis, rank)?;
    let parts = extents.last().copied().unwrap_or(0);
    if axis + 1 >= rank || !matches!(parts, 1 | 2) {
        return malformed(format!(
            "{} must have a last dimension of 1 or 2 (real and imaginary part) after axis {axis}",
            emit.ty(x)?
        ));
    }
    let (is_inverse, is_half) = (call.flag_attribute("inverse"), call.flag_attribute("onesided"));
    let given = extents[axis];
    let stated_length =
        call.optional_input(1).map(|id| emit.require_number(id, "dft_length")).transpose()?.map(|length| length as i64);
    let default = if is_inverse && is_half { (given - 1).saturating_mul(2) } else { given };
    let length = stated_length.unwrap_or(default);
    if length < 1 {
        return malformed(format!("the transform length is {length}, must be at least 1"));
    }
    let dtype = emit.dtype(x)?;
    let mut order: Vec<usize> = (0..rank - 1).filter(|&other| other != axis).collect();
    order.extend([rank - 1, axis]);
    let transposed = emit.transpose(x, &order)?;
    let real = emit.slice(transposed, rank - 2, 0, 1)?;
    let imaginary = if parts == 2 { Some(emit.slice(transposed, rank - 2, 1, 2)?) } else { None };
    let used = given.min(if is_inverse && is_half { length / 2 + 1 } else { length });
    let form = Transform { length, used, is_inverse, is_half };
    let (cosines, sines) = form.transform_matrices(emit, dtype, imaginary.is_some())?;
    let mut product = |part: ValueId, matrix: ValueId| -> Outcome<ValueId> {
        let part = emit.slice(part, rank - 1, 0, used)?;
        emit.push(Op::Dense(Dense {}), &[part, matrix])
    };
    let mut y = vec![product(real, cosines)?, product(real, sines)?];
    if let Some(imaginary) = imaginary {
        let (cosine, sine) = (product(imaginary, cosines)?, product(imaginary, sines)?);
        y[0] = emit.binary(BinaryOp::Sub, y[0], sine)?;
        y[1] = emit.binary(BinaryOp::Add, y[1], cosine)?;
    }
    if is_inverse && is_half {
        y.truncate(1);
    }
    let all = emit.concat_parts(&y, rank - 2)?;
    let mut back: Vec<usize> = (0..rank - 2).collect();
    back.insert(axis, rank - 1);
    back.push(rank - 2);
    Ok(vec![emit.transpose(all, &back)?])
}

struct Transform {
    length: i64,
    used: i64,
    is_inverse: bool,
    is_half: bool,
}

impl Transform {
    fn transform_matrices(&self, emit: &mut Emit<'_>, dtype: DType, is_complex: bool) -> Outcome<(ValueId, ValueId)> {
        let Transform { length, used, is_inverse, is_half } = *self;
        if is_inverse && is_half && !is_complex {
            return malformed("a one-sided inverse transform needs real and imaginary parts");
        }
        let rows = if is_half && !is_inverse { length / 2 + 1 } else { length };
        let factor = |element: i64| {
            let share = if is_inverse { 1.0 / length as f64 } else { 1.0 };
            // The omitted half of a real signal's spectrum mirrors the other half.
            let is_mirrored = is_inverse && is_half && element > 0 && 2 * element != length;
            if is_mirrored { 2.0 * share } else { share }
        };
        let sign = if is_inverse { 1.0 } else { -1.0 };
        let cosines = constant_matrix(emit, dtype, [rows, used], |row, column| {
            dft_angle(row, column, length).cos() * factor(column)
        })?;
        let sines = constant_matrix(emit, dtype, [rows, used], |row, column| {
            sign * dft_angle(row, column, length).sin() * factor(column)
        })?;
        Ok((cosines, sines))
    }
}

/// Emits `STFT` as a convolution; inputs: `signal[n, length, 1], step, window, frame length`.
pub(super) fn stft(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let signal = call.input(0)?;
    let step = emit.require_number(call.input(1)?, "frame_step")? as i64;
    let (n, length) = match emit.extents(signal)?[..] {
        [n, length] | [n, length, 1] => (n, length),
        _ => return unsupported("complex signals"),
    };
    let window = call.optional_input(2);
    let frame = match (call.optional_input(3), window) {
        (Some(frame), _) => emit.require_number(frame, "frame_length")? as i64,
        (None, Some(window)) => emit.extents(window)?.first().copied().unwrap_or(0),
        (None, None) => return malformed("both the window and `frame_length` are missing"),
    };
    if frame < 1 || step < 1 || frame > length {
        return malformed(format!("frames of {frame} elements in steps of {step} do not fit a signal of {length}"));
    }
    let dtype = emit.dtype(signal)?;
    let count = if call.int_attribute("onesided", 1) != 0 { frame / 2 + 1 } else { frame };
    let rows = count.saturating_mul(2);
    let waves = constant_matrix(emit, dtype, [rows, frame], |row, element| match row < count {
        true => dft_angle(row, element, frame).cos(),
        false => -dft_angle(row - count, element, frame).sin(),
    })?;
    let mut kernel = waves;
    if let Some(window) = window {
        let window = emit.cast(window, dtype)?;
        let own = emit.extents(window)?.first().copied().unwrap_or(0);
        if own != frame {
            return unsupported(format!("a window of {own} elements that differs from the frame length {frame}"));
        }
        kernel = emit.binary(BinaryOp::Mul, waves, window)?;
    }
    let kernel = emit.reshape(kernel, &[rows, 1, frame])?;
    let signal = emit.reshape(signal, &[n, 1, length])?;
    let op = Op::Conv(Conv { strides: vec![step], pads: vec![0, 0], dilations: vec![1], groups: 1 });
    let y = emit.push(op, &[signal, kernel])?;
    let frames = emit.extents(y)?[2];
    let split = emit.reshape(y, &[n, 2, count, frames])?;
    Ok(vec![emit.transpose(split, &[0, 3, 2, 1])?])
}

pub(super) fn hann_window(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    cosine_window(emit, call, [0.5, 0.5, 0.0])
}

pub(super) fn hamming_window(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    cosine_window(emit, call, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

pub(super) fn blackman_window(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    cosine_window(emit, call, [0.42, 0.5, 0.08])
}

fn cosine_window(emit: &mut Emit<'_>, call: &Call<'_>, [flat, one, two]: [f64; 3]) -> Outputs {
    let size = emit.require_number(call.input(0)?, "size")? as i64;
    if !(1..=MAX_MADE).contains(&size) {
        return malformed(format!("the window has {size} elements; 1 to {MAX_MADE} are supported"));
    }
    let span = if call.int_attribute("periodic", 1) != 0 { size } else { (size - 1).max(1) };
    let dtype = output_dtype(call)?;
    let number =
        |_: i64, element: i64| flat - one * dft_angle(1, element, span).cos() + two * dft_angle(2, element, span).cos();
    let row = constant_matrix(emit, dtype, [1, size], number)?;
    Ok(vec![emit.reshape(row, &[size])?])
}

fn output_dtype(call: &Call<'_>) -> Outcome<DType> {
    let code = i32::try_from(call.int_attribute("output_datatype", 1)).unwrap_or(0);
    tensor::dtype_of_code(code).or_else(|reason| unsupported(format!("result type: {reason}")))
}

/// Returns the mel filter bank: triangles that overlap by half, evenly spaced on the mel scale.
pub(super) fn mel_weights(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let known = |index: usize, name: &str| emit.require_number(call.input(index)?, name);
    let (bins, length, rate) = (known(0, "num_mel_bins")?, known(1, "dft_length")?, known(2, "sample_rate")?);
    let (low, high) = (known(3, "lower_edge_hertz")?, known(4, "upper_edge_hertz")?);
    let (bins, rows) = (bins as i64, (length as i64) / 2 + 1);
    if bins < 1 || rows < 1 || rows.checked_mul(bins).is_none_or(|count| count > MAX_MADE) || rate <= 0.0 {
        return malformed(format!("{bins} mel bins of transforms of length {length} are out of range"));
    }
    let pitch = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (pitch(high) - pitch(low)) / (bins + 2) as f64;
    let edge = |index: i64| {
        let hertz = 700.0 * (10f64.powf((index as f64 * step + pitch(low)) / 2595.0) - 1.0);
        ((length + 1.0) * hertz / rate).floor().clamp(-1e15, 1e15) as i64
    };
    let edges: Vec<i64> = (0..bins + 2).map(edge).collect();
    let number = |row: i64, bin: i64| {
        let [low, centre, high] = [0, 1, 2].map(|shift| edges[(bin + shift) as usize]);
        if low == centre && row == centre {
            1.0
        } else if low < centre && (low..=centre).contains(&row) {
            (row - low) as f64 / (centre - low) as f64
        } else if centre < high && (centre..high).contains(&row) {
            (high - row) as f64 / (high - centre) as f64
        } else {
            0.0
        }
    };
    Ok(vec![constant_matrix(emit, output_dtype(call)?, [rows, bins], number)?])
}
