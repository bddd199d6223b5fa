//! Convolutions and matrix products, computed directly from their definition. The innermost loop always adds a multiple
//! of one contiguous row to another row, which compilers vectorise without reordering a sum.

use super::movement::{broadcast_strides, strided_offsets};
use super::quantised::subtract_zero;
use super::tensor::Array;
use super::window::WindowAxis;
use models::operators::{ConvWindow, MatMul, Op, QConv, QDense, QMatMul};

pub(super) fn compute_contraction(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let (x, Some(w)) = (inputs[0], inputs.get(1)) else { return false };
    match op {
        Op::Conv(_) => convolve_windows(x, w, &window_of(op), y),
        Op::QConv(QConv { x_zero, w_zero, .. }) => {
            convolve_windows(&subtract_zero(x, *x_zero), &subtract_zero(w, *w_zero), &window_of(op), y);
        }
        Op::ConvTranspose(_) => conv_transpose(x, w, &window_of(op), y),
        Op::MatMul(MatMul { transpose_a, transpose_b }) => mat_mul(x, w, *transpose_a, *transpose_b, y),
        Op::QMatMul(QMatMul { a_zero, b_zero }) => {
            mat_mul(&subtract_zero(x, *a_zero), &subtract_zero(w, *b_zero), false, false, y);
        }
        Op::Dense(_) => dense_product(x, w, y),
        Op::QDense(QDense { x_zero, w_zero }) => {
            dense_product(&subtract_zero(x, *x_zero), &subtract_zero(w, *w_zero), y)
        }
        _ => return false,
    }
    true
}

fn window_of(op: &Op) -> ConvWindow<'_> {
    op.window().expect("a convolution has a window")
}

fn convolve_windows(x: &Array, w: &Array, window: &ConvWindow<'_>, y: &mut Array) {
    let mut axes = WindowAxis::three_axes(x, y, &w.extents[2..], window);
    // For a 1x1 window with stride 1, rows do not matter: each plane is treated as one long row.
    if axes.iter().all(|axis| axis.kernel == 1 && axis.input == axis.output && axis.stride == 1) {
        axes = [
            WindowAxis::single_element(1),
            WindowAxis::single_element(1),
            WindowAxis::single_element(axes.iter().map(|axis| axis.input).product()),
        ];
    }
    let [depth, height, width] = axes;
    let groups = usize::try_from(window.groups).expect("checked attributes are positive");
    let (channels_in, channels_out, per_group) = (x.extents[1], w.extents[0], w.extents[1]);
    let in_plane = depth.input * height.input * width.input;
    let out_plane = depth.output * height.output * width.output;
    let kernel = depth.kernel * height.kernel * width.kernel;
    if out_plane == 0 || in_plane == 0 || channels_out == 0 {
        return;
    }
    for (index, y) in y.data.chunks_exact_mut(out_plane).enumerate() {
        let (batch, out) = (index / channels_out, index % channels_out);
        let group = out / (channels_out / groups);
        for channel in 0..per_group {
            let x = &x.data[(batch * channels_in + group * per_group + channel) * in_plane..][..in_plane];
            let w = &w.data[(out * per_group + channel) * kernel..][..kernel];
            add_filtered(x, w, depth, height, width, y);
        }
    }
}

/// Computes a transposed convolution, the adjoint of the convolution that reads `y` and writes `x`.
fn conv_transpose(x: &Array, w: &Array, window: &ConvWindow<'_>, y: &mut Array) {
    let [depth, height, width] = WindowAxis::three_axes(y, x, &w.extents[2..], window);
    let groups = usize::try_from(window.groups).expect("checked attributes are positive");
    let (channels_in, per_group) = (w.extents[0], w.extents[1]);
    let channels_out = per_group * groups;
    let x_plane = depth.output * height.output * width.output;
    let y_plane = depth.input * height.input * width.input;
    let kernel = depth.kernel * height.kernel * width.kernel;
    if channels_out == 0 {
        return;
    }
    for (index, y) in y.data.chunks_exact_mut(y_plane).enumerate() {
        let (batch, out) = (index / channels_out, index % channels_out);
        let (group, out) = (out / per_group, out % per_group);
        for channel in group * (channels_in / groups)..(group + 1) * (channels_in / groups) {
            let x = &x.data[(batch * channels_in + channel) * x_plane..][..x_plane];
            let w = &w.data[(channel * per_group + out) * kernel..][..kernel];
            add_spread(x, w, depth, height, width, y);
        }
    }
}

fn add_spread(x: &[f64], w: &[f64], depth: WindowAxis, height: WindowAxis, width: WindowAxis, y: &mut [f64]) {
    for (tap, &weight) in w.iter().enumerate() {
        let (kz, ky, kx) =
            (tap / (height.kernel * width.kernel), tap / width.kernel % height.kernel, tap % width.kernel);
        let columns = width.tap_places(kx);
        if columns.is_empty() {
            continue;
        }
        for iz in depth.tap_places(kz) {
            for iy in height.tap_places(ky) {
                let row = depth.input_at(iz, kz) * height.input + height.input_at(iy, ky);
                let y = &mut y[row * width.input + width.input_at(columns.start, kx)..];
                let x = &x[(iz * height.output + iy) * width.output..][columns.clone()];
                y.iter_mut().step_by(width.stride).zip(x).for_each(|(y, x)| *y += weight * x);
            }
        }
    }
}

fn add_filtered(x: &[f64], w: &[f64], depth: WindowAxis, height: WindowAxis, width: WindowAxis, y: &mut [f64]) {
    for (tap, &weight) in w.iter().enumerate() {
        let (kz, ky, kx) =
            (tap / (height.kernel * width.kernel), tap / width.kernel % height.kernel, tap % width.kernel);
        let columns = width.tap_places(kx);
        if columns.is_empty() {
            continue;
        }
        for oz in depth.tap_places(kz) {
            for oy in height.tap_places(ky) {
                let row = depth.input_at(oz, kz) * height.input + height.input_at(oy, ky);
                let x = &x[row * width.input + width.input_at(columns.start, kx)..];
                let y = &mut y[(oz * height.output + oy) * width.output..][columns.clone()];
                if width.stride == 1 {
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
                } else {
                    y.iter_mut().zip(x.iter().step_by(width.stride)).for_each(|(y, x)| *y += weight * x);
                }
            }
        }
    }
}

fn mat_mul(a: &Array, b: &Array, transpose_a: bool, transpose_b: bool, y: &mut Array) {
    let rank = y.extents.len();
    let (m, n) = (y.extents[rank - 2], y.extents[rank - 1]);
    let (a_rows, a_columns) = last_two(a);
    let (b_rows, b_columns) = last_two(b);
    let k = if transpose_a { a_rows } else { a_columns };
    let batch = &y.extents[..rank - 2].to_vec();
    let starts = |array: &Array| {
        let matrix = array.extents.len() - 2;
        let strides = broadcast_strides(&array.extents[..matrix], batch.len());
        strided_offsets(batch, &strides)
    };
    for (index, (a_start, b_start)) in starts(a).zip(starts(b)).enumerate() {
        let a = &a.data[a_start * a_rows * a_columns..][..a_rows * a_columns];
        let b = &b.data[b_start * b_rows * b_columns..][..b_rows * b_columns];
        // Rows of `a` run along the summed dimension, rows of `b` along the result.
        let a = if transpose_a { transpose_matrix(a, a_rows, a_columns) } else { a.to_vec() };
        let b = if transpose_b { transpose_matrix(b, b_rows, b_columns) } else { b.to_vec() };
        matrix_product(&a, &b, k, n, &mut y.data[index * m * n..][..m * n]);
    }
}

fn dense_product(x: &Array, w: &Array, y: &mut Array) {
    let (n, k) = (w.extents[0], w.extents[1]);
    matrix_product(&x.data, &transpose_matrix(&w.data, n, k), k, n, &mut y.data);
}

/// Rows computed together, so that each row of `b` is read once for all of them.
const ROWS: usize = 16;
/// Columns computed together, so that their sums stay in cache.
const COLUMNS: usize = 512;
/// Number of terms that are added, in order, per pass over a row of sums.
const TERMS: usize = 4;

/// Computes `y[m, n] = a[m, k] · b[k, n]`; each sum is accumulated in order of `k`.
fn matrix_product(a: &[f64], b: &[f64], k: usize, n: usize, y: &mut [f64]) {
    if k == 0 || n == 0 {
        return;
    }
    for (a, y) in a.chunks(ROWS * k).zip(y.chunks_mut(ROWS * n)) {
        for start in (0..n).step_by(COLUMNS) {
            let columns = start..n.min(start + COLUMNS);
            for first in (0..k).step_by(TERMS) {
                let rows = first..k.min(first + TERMS);
                for (a, y) in a.chunks_exact(k).zip(y.chunks_exact_mut(n)) {
                    add_terms(
                        &a[rows.clone()],
                        |term| &b[(first + term) * n..][columns.clone()],
                        &mut y[columns.clone()],
                    );
                }
            }
        }
    }
}

/// Adds the rows, each times its factor, to `y`; for each element, the rows are added in order.
fn add_terms<'b>(factors: &[f64], row: impl Fn(usize) -> &'b [f64], y: &mut [f64]) {
    if let &[a, b, c, d] = factors {
        let rows = row(0).iter().zip(row(1)).zip(row(2)).zip(row(3));
        y.iter_mut().zip(rows).for_each(|(y, (((p, q), r), s))| *y = *y + a * p + b * q + c * r + d * s);
        return;
    }
    for (term, factor) in factors.iter().enumerate() {
        y.iter_mut().zip(row(term)).for_each(|(y, x)| *y += factor * x);
    }
}

/// Side of the square blocks in which a matrix is transposed, so that source and target stay in cache.
const SQUARE: usize = 32;

fn transpose_matrix(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut transposed = vec![0.0; matrix.len()];
    for top in (0..rows).step_by(SQUARE) {
        for left in (0..columns).step_by(SQUARE) {
            for column in left..columns.min(left + SQUARE) {
                for row in top..rows.min(top + SQUARE) {
                    transposed[column * rows + row] = matrix[row * columns + column];
                }
            }
        }
    }
    transposed
}

fn last_two(array: &Array) -> (usize, usize) {
    let rank = array.extents.len();
    (array.extents[rank - 2], array.extents[rank - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that computing in blocks, also in smaller last ones, gives exactly the sums in order.
    #[test]
    fn products_are_sums_from_the_first_term_to_the_last() {
        for (m, k, n) in [(1, 1, 1), (ROWS + 1, TERMS, COLUMNS), (3, 2 * TERMS + 3, COLUMNS + 1), (2 * ROWS, 7, 33)] {
            let numbers = |count: usize, step: usize| -> Vec<f64> {
                (0..count).map(|place| 1.0 / ((place * step % 101) as f64 - 50.5)).collect()
            };
            let (a, b) = (numbers(m * k, 7), numbers(k * n, 13));
            let mut y = vec![0.0; m * n];
            matrix_product(&a, &b, k, n, &mut y);
            for (place, y) in y.iter().enumerate() {
                let (row, column) = (place / n, place % n);
                let sum = (0..k).fold(0.0, |sum, term| sum + a[row * k + term] * b[term * n + column]);
                assert_eq!(*y, sum, "{m} x {k} x {n} at {place}");
            }
            let transposed = transpose_matrix(&b, k, n);
            assert!((0..k * n).all(|place| transposed[place % n * k + place / n] == b[place]));
        }
    }
}
