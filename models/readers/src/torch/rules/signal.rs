//! Fourier transforms as products with matrices of cosines and sines. Complex numbers are pairs (see `complex`).

use super::movement::primary_input;
use super::{Call, Memory, Outputs, RuleOutput, numbers_of, own_output};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Border, BorderPad, Expand, Gather, Op, Pad, ScatterNd, ScatterOp, UnaryOp};
use models::types::{DType, TensorType};
use reference::Tensor;

/// Maximum number of points of one transform. For complex transforms, `MAX_MATRIX` is the tighter limit.
const MAX_POINTS: i64 = 4096;
const MAX_MATRIX: i64 = 1 << 25;

#[derive(Clone, Copy)]
struct Fourier {
    points: i64,
    kept: i64,
    is_inverse: bool,
    factor: f64,
}

impl Fourier {
    fn point_angle(self, time: i64, frequency: i64) -> f64 {
        let turns = (time * frequency % self.points) as f64 / self.points as f64;
        let angle = 2.0 * std::f64::consts::PI * turns;
        if self.is_inverse { angle } else { -angle }
    }

    /// Builds a constant matrix `[rows, columns]`; `number` gives the entry for a row and a column.
    fn build_matrix(
        self,
        emit: &mut Emit<'_>,
        dtype: DType,
        [rows, columns]: [i64; 2],
        number: impl Fn(i64, i64) -> f64,
    ) -> Outcome<ValueId> {
        if rows.checked_mul(columns).is_none_or(|count| count > MAX_MATRIX) {
            return unsupported(format!("a transform matrix of {rows} x {columns} is too large"));
        }
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let numbers: Vec<f64> = places.map(|(row, column)| number(row, column) * self.factor).collect();
        emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[rows, columns]), &numbers)?)
    }

    /// Transforms real numbers `[…, points]` to a spectrum `[…, kept, 2]`.
    fn transform_real(self, emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
        let number = |time: i64, column: i64| {
            let angle = self.point_angle(time, column / 2);
            if column % 2 == 0 { angle.cos() } else { angle.sin() }
        };
        let matrix = self.build_matrix(emit, emit.dtype(x)?, [self.points, 2 * self.kept], number)?;
        let y = product_of_rows(emit, x, matrix)?;
        let mut shape = emit.extents(y)?;
        shape.pop();
        shape.extend([self.kept, 2]);
        emit.reshape(y, &shape)
    }

    /// Transforms complex numbers `[…, points, 2]` to `[…, kept, 2]`.
    fn transform_complex(self, emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
        let number = |row: i64, column: i64| {
            let angle = self.point_angle(row / 2, column / 2);
            match (row % 2, column % 2) {
                (0, 0) | (1, 1) => angle.cos(),
                (0, _) => angle.sin(),
                _ => -angle.sin(),
            }
        };
        let matrix = self.build_matrix(emit, emit.dtype(x)?, [2 * self.points, 2 * self.kept], number)?;
        let mut shape = emit.extents(x)?;
        shape.truncate(shape.len() - 2);
        let flat = emit.reshape(x, &[shape.as_slice(), &[2 * self.points]].concat())?;
        let y = product_of_rows(emit, flat, matrix)?;
        shape.extend([self.kept, 2]);
        emit.reshape(y, &shape)
    }

    /// Transforms the first half of a spectrum, `[…, given, 2]`, to real numbers `[…, points]`.
    fn to_real(self, emit: &mut Emit<'_>, x: ValueId, given: i64) -> Outcome<ValueId> {
        let number = |row: i64, time: i64| {
            let (frequency, is_imaginary) = (row / 2, row % 2 == 1);
            // The other half mirrors all frequencies but zero and the Nyquist frequency.
            let is_alone = frequency == 0 || 2 * frequency == self.points;
            let times = if is_alone { 1.0 } else { 2.0 };
            let angle = self.point_angle(time, frequency);
            times * if is_imaginary { -angle.sin() } else { angle.cos() }
        };
        let matrix = self.build_matrix(emit, emit.dtype(x)?, [2 * given, self.points], number)?;
        let mut shape = emit.extents(x)?;
        shape.truncate(shape.len() - 2);
        let flat = emit.reshape(x, &[shape.as_slice(), &[2 * given]].concat())?;
        product_of_rows(emit, flat, matrix)
    }
}

fn product_of_rows(emit: &mut Emit<'_>, x: ValueId, matrix: ValueId) -> Outcome<ValueId> {
    if emit.rank(x)? >= 2 {
        return emit.mat_mul(x, matrix);
    }
    Ok(models::compose::mat_mul(&mut emit.builder, x, matrix)?)
}

/// Returns the scale of a normalisation mode: 1 for mode 0, 1/√points for mode 1, 1/points for mode 2.
fn scale_factor(mode: i64, points: i64) -> Outcome<f64> {
    match mode {
        0 => Ok(1.0),
        1 => Ok(1.0 / (points as f64).sqrt()),
        2 => Ok(1.0 / points as f64),
        other => malformed(format!("`normalization` has the unknown value {other}")),
    }
}

fn norm_mode(call: &Call<'_, '_>, is_inverse: bool) -> Outcome<i64> {
    Ok(match (call.text_argument("norm", "backward")?.as_str(), is_inverse) {
        ("ortho", _) => 1,
        ("backward", true) | ("forward", false) => 2,
        ("backward" | "forward", _) => 0,
        (other, _) => return unsupported(format!("`norm` with the value `{other}`")),
    })
}

/// Returns the rank, not counting the last dimension of a complex tensor, which holds the two parts.
pub(super) fn rank_of_numbers(emit: &Emit<'_>, x: ValueId, is_complex: bool) -> Outcome<usize> {
    let rank = emit.rank(x)?.checked_sub(usize::from(is_complex));
    rank.map_or_else(|| malformed("the last extent of a complex tensor is not 2"), Ok)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    RealToComplex,
    ComplexToComplex,
    ComplexToReal,
}

/// Transforms one axis; `axis` does not count the dimension of real and imaginary parts.
fn transform_axis(emit: &mut Emit<'_>, x: ValueId, axis: usize, ends: Ends, fourier: Fourier) -> Outcome<ValueId> {
    if !(1..=MAX_POINTS).contains(&fourier.points) {
        return unsupported(format!("a transform of {} points; 1 to {MAX_POINTS} are supported", fourier.points));
    }
    let is_complex = ends != Ends::RealToComplex;
    let rank = rank_of_numbers(emit, x, is_complex)?;
    let mut order: Vec<usize> = (0..rank).filter(|&at| at != axis).collect();
    order.push(axis);
    let mut back: Vec<usize> = (0..rank - 1).collect();
    back.insert(axis, rank - 1);
    if is_complex {
        order.push(rank);
    }
    if ends != Ends::ComplexToReal {
        back.push(rank);
    }
    let transposed = emit.transpose(x, &order)?;
    let given = emit.extents(transposed)?[rank - 1];
    let y = match ends {
        Ends::RealToComplex => {
            let transposed = resize_axis(emit, transposed, rank - 1, fourier.points)?;
            fourier.transform_real(emit, transposed)?
        }
        Ends::ComplexToComplex => {
            let transposed = resize_axis(emit, transposed, rank - 1, fourier.points)?;
            fourier.transform_complex(emit, transposed)?
        }
        Ends::ComplexToReal => {
            let used = given.min(fourier.points / 2 + 1);
            let transposed = emit.slice(transposed, rank - 1, 0, used)?;
            fourier.to_real(emit, transposed, used)?
        }
    };
    emit.transpose(y, &back)
}

fn resize_axis(emit: &mut Emit<'_>, x: ValueId, axis: usize, extent: i64) -> Outcome<ValueId> {
    let extents = emit.extents(x)?;
    if extents[axis] >= extent {
        return emit.slice(x, axis, 0, extent);
    }
    let mut pads = vec![0; 2 * extents.len()];
    pads[extents.len() + axis] = extent - extents[axis];
    emit.push(Op::Pad(Pad { pads, value: 0.0 }), &[x])
}

pub(super) fn single_transform(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let is_complex = call.complex.contains(&"self");
    let rank = rank_of_numbers(call.emit, x, is_complex)?;
    let axis = call.emit.resolve_axis(call.int_argument("dim", -1)?, rank)?;
    let given = call.axis_extent(x, axis)?;
    let is_inverse = matches!(call.operator, "fft_ifft" | "fft_irfft");
    let to_real = call.operator == "fft_irfft";
    let points = call.int_argument("n", if to_real { 2 * (given - 1) } else { given })?;
    let kept = if call.operator == "fft_rfft" { points / 2 + 1 } else { points };
    let factor = scale_factor(norm_mode(call, is_inverse)?, points)?;
    let ends = match (to_real, is_complex) {
        (true, true) => Ends::ComplexToReal,
        (false, true) => Ends::ComplexToComplex,
        (false, false) => Ends::RealToComplex,
        (true, false) => return unsupported("a real spectrum"),
    };
    own_output(transform_axis(call.emit, x, axis, ends, Fourier { points, kept, is_inverse, factor })?)
}

/// Emits a transform of several axes. Of real signals, half of the spectrum along the last axis is kept.
pub(super) fn multi_transform(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let mut is_complex = call.complex.contains(&"self");
    let rank = rank_of_numbers(call.emit, x, is_complex)?;
    let is_inverse = call.operator.starts_with("fft_i");
    let is_half = call.operator.contains("rfft");
    let sizes = call.int_list("s")?;
    let mut dims = call.int_list("dim")?;
    if dims.is_empty() {
        dims = match (sizes.len(), call.operator.ends_with('2')) {
            (_, true) => vec![-2, -1],
            (0, false) => (0..rank as i64).collect(),
            (count, false) => (-(count as i64)..0).collect(),
        };
    }
    if !sizes.is_empty() && sizes.len() != dims.len() {
        return malformed(format!("{} sizes do not fit {} dimensions", sizes.len(), dims.len()));
    }
    if is_half && is_complex != is_inverse {
        return unsupported(if is_inverse { "a real spectrum" } else { "a complex signal" });
    }
    let mode = norm_mode(call, is_inverse)?;
    // A real signal is transformed along the last axis first, and a half spectrum along the last axis last.
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if is_half && !is_inverse {
        order.reverse();
    }
    for (index, &at) in order.iter().enumerate() {
        let axis = call.emit.resolve_axis(dims[at], rank)?;
        let given = call.axis_extent(x, axis)?;
        let to_real = is_half && is_inverse && index + 1 == order.len();
        let size = sizes.get(at).copied().filter(|&size| size != -1);
        let points = size.unwrap_or(if to_real { 2 * (given - 1) } else { given });
        let kept = if is_half && !is_complex { points / 2 + 1 } else { points };
        let ends = match (to_real, is_complex) {
            (true, _) => Ends::ComplexToReal,
            (false, true) => Ends::ComplexToComplex,
            (false, false) => Ends::RealToComplex,
        };
        let fourier = Fourier { points, kept, is_inverse, factor: scale_factor(mode, points)? };
        x = transform_axis(call.emit, x, axis, ends, fourier)?;
        is_complex = true;
    }
    own_output(x)
}

/// Rotates each axis: `fft_fftshift` moves frequency zero to the middle, `fft_ifftshift` moves it to index 0.
pub(super) fn shift_frequencies(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    for axis in call.axis_list(x, "dim")? {
        let axis = axis as usize;
        let half = call.axis_extent(x, axis)? / 2;
        x = call.emit.rotate(x, axis, if call.operator == "fft_fftshift" { half } else { -half })?;
    }
    own_output(x)
}

/// Emits the frequencies of a transform's points.
pub(super) fn frequencies(call: &mut Call<'_, '_>) -> Outputs {
    let (points, spacing) = (call.int_argument("n", 0)?, call.float_argument("d", 1.0)?);
    numbers_of(&[points])?;
    if points < 1 {
        return unsupported(format!("a transform of {points} points"));
    }
    let is_half = call.operator == "fft_rfftfreq";
    let kept = if is_half { points / 2 + 1 } else { points };
    let number = |at: i64| if is_half || at < (points + 1) / 2 { at } else { at - points };
    let numbers: Vec<f64> = (0..kept).map(|at| number(at) as f64 / (points as f64 * spacing)).collect();
    let ty = TensorType::new(call.result_dtype()?, &[kept]);
    own_output(call.emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?)
}

pub(super) fn core_transform(call: &mut Call<'_, '_>) -> Outputs {
    let mut x = primary_input(call)?;
    let to_real = call.operator == "_fft_c2r";
    let from_real = call.operator == "_fft_r2c";
    let rank = rank_of_numbers(call.emit, x, !from_real)?;
    let (dims, mode) = (call.int_list("dim")?, call.int_argument("normalization", 0)?);
    let is_inverse = to_real || (!from_real && !call.flag_argument("forward", true)?);
    let is_half = from_real && call.flag_argument("onesided", true)?;
    let Some(&last) = dims.last() else { return malformed("`dim` is empty") };
    // The last dimension is the real one: transformed first, and last in the inverse.
    let order: Vec<i64> = if from_real { dims.iter().rev().copied().collect() } else { dims.clone() };
    for (index, &dim) in order.iter().enumerate() {
        let axis = call.emit.resolve_axis(dim, rank)?;
        let given = call.axis_extent(x, axis)?;
        let ends = match (from_real && index == 0, to_real && dim == last) {
            (true, _) => Ends::RealToComplex,
            (_, true) => Ends::ComplexToReal,
            _ => Ends::ComplexToComplex,
        };
        let points =
            if ends == Ends::ComplexToReal { call.int_argument("last_dim_size", 2 * (given - 1))? } else { given };
        let kept = if is_half && index == 0 { points / 2 + 1 } else { points };
        let fourier = Fourier { points, kept, is_inverse, factor: scale_factor(mode, points)? };
        x = transform_axis(call.emit, x, axis, ends, fourier)?;
    }
    own_output(x)
}

struct Frames {
    points: i64,
    hop: i64,
    window: ValueId,
    is_centred: bool,
    kept: i64,
    factor: f64,
}

impl Frames {
    fn parse_frames(call: &mut Call<'_, '_>, dtype: DType) -> Outcome<Frames> {
        let points = call.int_argument("n_fft", 0)?;
        let (hop, length) = (call.int_argument("hop_length", points / 4)?, call.int_argument("win_length", points)?);
        if !(1..=MAX_POINTS).contains(&points) || hop < 1 || !(1..=points).contains(&length) {
            return unsupported(format!("frames of {points} points in steps of {hop}"));
        }
        let window = match call.optional_tensor("window")? {
            Some(window) => call.emit.cast(window, dtype)?,
            None => call.emit.add_filled(dtype, &[length], 1.0)?,
        };
        // A short window is centred in its frame.
        let before = (points - length) / 2;
        let window = match points - length {
            0 => window,
            rest => call.emit.push(Op::Pad(Pad { pads: vec![before, rest - before], value: 0.0 }), &[window])?,
        };
        let kept = if call.flag_argument("onesided", true)? { points / 2 + 1 } else { points };
        let factor = if call.flag_argument("normalized", false)? { 1.0 / (points as f64).sqrt() } else { 1.0 };
        // Overloads without the argument `center` do not centre frames.
        let is_centred = call.flag_argument("center", call.operator == "istft")?;
        Ok(Frames { points, hop, window, is_centred, kept, factor })
    }

    fn frame_positions(&self, emit: &mut Emit<'_>, count: i64, has_own_dimension: bool) -> Outcome<ValueId> {
        numbers_of(&[count, self.points])?;
        let frames = (0..count).flat_map(|frame| (0..self.points).map(move |at| (frame, at)));
        let places: Vec<f64> = frames.map(|(frame, at)| (frame * self.hop + at) as f64).collect();
        let shape = if has_own_dimension { vec![count * self.points, 1] } else { vec![count, self.points] };
        emit.constant_of(&Tensor::from_numbers(TensorType::new(DType::I64, &shape), &places)?)
    }
}

/// Emits the short-time Fourier transform: `[…, samples]` to `[…, frequencies, frames, 2]`.
pub(super) fn short_time(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    if call.complex.contains(&"self") {
        return unsupported("a complex signal");
    }
    let frames = Frames::parse_frames(call, call.emit.dtype(x)?)?;
    let border = match call.text_argument("pad_mode", "reflect")?.as_str() {
        "reflect" => Border::Reflect,
        "replicate" => Border::Edge,
        "circular" => Border::Wrap,
        "constant" => return unsupported("padding the signal with zeros"),
        other => return unsupported(format!("`pad_mode` with the value `{other}`")),
    };
    let emit = &mut *call.emit;
    let rank = emit.rank(x)?;
    if rank == 0 {
        return malformed("the signal has no dimension");
    }
    let mut signal = x;
    if frames.is_centred {
        let mut pads = vec![0; 2 * rank];
        (pads[rank - 1], pads[2 * rank - 1]) = (frames.points / 2, frames.points / 2);
        signal = emit.push(Op::BorderPad(BorderPad { border, pads }), &[x])?;
    }
    let samples = emit.extents(signal)?[rank - 1];
    if samples < frames.points {
        return malformed(format!("a signal of {samples} samples is shorter than a frame of {}", frames.points));
    }
    let count = (samples - frames.points) / frames.hop + 1;
    let places = frames.frame_positions(emit, count, false)?;
    let cut = emit.push(Op::Gather(Gather { axis: rank as i64 - 1 }), &[signal, places])?;
    let shaped = emit.binary(BinaryOp::Mul, cut, frames.window)?;
    let fourier = Fourier { points: frames.points, kept: frames.kept, is_inverse: false, factor: frames.factor };
    let spectra = fourier.transform_real(emit, shaped)?;
    let mut order: Vec<usize> = (0..rank + 2).collect();
    order.swap(rank - 1, rank);
    own_output(emit.transpose(spectra, &order)?)
}

pub(super) fn inverse_short_time(call: &mut Call<'_, '_>) -> Outputs {
    let x = primary_input(call)?;
    let dtype = call.emit.dtype(x)?;
    let frames = Frames::parse_frames(call, dtype)?;
    let length = call.optional_int("length")?;
    if call.flag_argument("return_complex", false)? || frames.kept != frames.points / 2 + 1 {
        return unsupported("a complex signal");
    }
    let emit = &mut *call.emit;
    let mut shape = emit.extents(x)?;
    let is_single = shape.len() == 3;
    if is_single {
        shape.insert(0, 1);
    }
    let [batch, given, count, 2] = shape[..] else { return malformed("the spectra must have 3 or 4 dimensions") };
    let x = emit.reshape(x, &shape)?;
    let transposed = emit.transpose(x, &[0, 2, 1, 3])?;
    let factor = 1.0 / (frames.points as f64 * frames.factor);
    let fourier = Fourier { points: frames.points, kept: frames.kept, is_inverse: true, factor };
    let pieces = fourier.to_real(emit, transposed, given)?;
    let pieces = emit.binary(BinaryOp::Mul, pieces, frames.window)?;
    let total = frames.hop.checked_mul(count - 1).and_then(|rest| rest.checked_add(frames.points));
    let Some(total) = total else {
        return unsupported(format!("{count} frames with a hop of {} are too long", frames.hop));
    };
    let sum = overlap_add(emit, &frames, pieces, [batch, count, total])?;
    // Sum of the squared windows, by which the result is divided.
    let weights = emit.unary(UnaryOp::Square, frames.window)?;
    let weights = emit.push(Op::Expand(Expand { shape: vec![1, count, frames.points] }), &[weights])?;
    let weight = overlap_add(emit, &frames, weights, [1, count, total])?;
    let start = if frames.is_centred { frames.points / 2 } else { 0 };
    let end = match length {
        Some(length) => start.saturating_add(length),
        None => total - start,
    };
    if end <= start || end > total {
        return unsupported(format!("an output length of {end} samples, of which frames cover {total}"));
    }
    let (sum, weight) = (emit.slice(sum, 1, start, end)?, emit.slice(weight, 1, start, end)?);
    let y = emit.binary(BinaryOp::Div, sum, weight)?;
    let id = if is_single { emit.reshape(y, &[end - start])? } else { y };
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}

/// Sums overlapping frames at their positions: `[batch, frames, points]` to `[batch, samples]`.
fn overlap_add(
    emit: &mut Emit<'_>,
    frames: &Frames,
    pieces: ValueId,
    [batch, count, total]: [i64; 3],
) -> Outcome<ValueId> {
    let flat = emit.reshape(pieces, &[batch, count * frames.points])?;
    let updates = emit.transpose(flat, &[1, 0])?;
    let zeros = emit.add_filled(emit.dtype(pieces)?, &[total, batch], 0.0)?;
    let places = frames.frame_positions(emit, count, true)?;
    let sum = emit.push(Op::ScatterNd(ScatterNd { combine: ScatterOp::Add }), &[zeros, places, updates])?;
    emit.transpose(sum, &[1, 0])
}
