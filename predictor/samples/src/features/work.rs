//! Work of an operator, independent of the device: sizes, operations, bytes.
//!
//! Every operator is described by one of a few forms. A convolution is also a matrix product (pixels × channels ×
//! taps), so all contractions use the names `rows`, `columns` and `depth`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// `batch` products of `rows × depth` with `depth × columns`.
    Contraction,
    /// A contraction over image windows.
    Convolution,
    /// `rows` independent rows of `columns` elements, each reduced and scaled.
    Rows,
    Pointwise,
    Other,
}

/// Number of output dimensions with separate features.
pub const RANK: usize = 5;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub form: Form,
    pub batch: f64,
    /// Rows of the output; for a convolution, its pixels.
    pub rows: f64,
    /// Columns of the output; for a convolution, its channels per group.
    pub columns: f64,
    /// Number of elements summed for one output element; 1 without a sum.
    pub depth: f64,
    /// Taps of a window, such as 9 for 3 × 3; 1 without a window.
    pub taps: f64,
    /// Stride of the window; 1 without a window.
    pub stride: f64,
    pub groups: f64,
    /// Width of the image; 0 without an image.
    pub width: f64,
    /// Output extents, outermost first, padded with 1. Excess dimensions are folded into the first.
    pub output: [f64; RANK],
    pub rank: usize,
    /// Distance in elements between adjacent rows of the first input.
    #[serde(default = "one")]
    pub row_in: f64,
    /// Distance in elements between adjacent planes (of the last two dimensions) of the first input.
    #[serde(default = "one")]
    pub plane_in: f64,
    /// Padding before each image row, in elements; 0 without padding.
    #[serde(default)]
    pub pad: f64,
    /// Number of elements that are contiguous in source and destination; 1 for operators that also compute.
    #[serde(default = "one")]
    pub run: f64,
    /// Distance in the source between adjacent output elements; 1 for operators that also compute.
    #[serde(default = "one")]
    pub step: f64,
    #[serde(default)]
    pub offset: f64,
    pub epilogue: f64,
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: f64,
    /// Bytes of the inputs without weights, each read once.
    pub bytes_in: f64,
    pub bytes_weights: f64,
    pub bytes_out: f64,
    pub element_bytes: f64,
    #[serde(default = "of_single_precision")]
    pub input_element_bytes: f64,
}

fn of_single_precision() -> f64 {
    4.0
}

/// Default of fields that are missing in older files.
fn one() -> f64 {
    1.0
}

impl Work {
    pub fn with_unit_sizes(form: Form) -> Work {
        Work {
            form,
            batch: 1.0,
            rows: 1.0,
            columns: 1.0,
            depth: 1.0,
            taps: 1.0,
            stride: 1.0,
            groups: 1.0,
            width: 0.0,
            output: [1.0; RANK],
            rank: 0,
            row_in: 1.0,
            plane_in: 1.0,
            pad: 0.0,
            run: 1.0,
            step: 1.0,
            offset: 0.0,
            epilogue: 0.0,
            flops: 0.0,
            bytes_in: 0.0,
            bytes_weights: 0.0,
            bytes_out: 0.0,
            element_bytes: of_single_precision(),
            input_element_bytes: of_single_precision(),
        }
    }

    /// Describes `batch` matrix products; with `shared`, all have the same right-hand side, which counts as a weight.
    pub fn contraction_work(batch: f64, rows: f64, columns: f64, depth: f64, shared: bool) -> Work {
        let bytes_right = 4.0 * columns * depth * if shared { 1.0 } else { batch };
        Work {
            batch,
            rows,
            columns,
            depth,
            flops: 2.0 * batch * rows * columns * depth,
            bytes_in: 4.0 * batch * rows * depth + if shared { 0.0 } else { bytes_right },
            bytes_weights: if shared { bytes_right } else { 0.0 },
            bytes_out: 4.0 * batch * rows * columns,
            ..Work::with_unit_sizes(Form::Contraction)
        }
        .with_input(&[batch, rows, depth])
        .with_output(&[batch, rows, columns])
    }

    /// Describes a convolution with square kernels and square images.
    pub fn convolution_work(
        batch: f64,
        inputs: f64,
        outputs: f64,
        kernel: f64,
        size: f64,
        stride: f64,
        pad: f64,
    ) -> Work {
        let out = ((size + 2.0 * pad - kernel) / stride).floor() + 1.0;
        let (rows, depth) = (batch * out * out, inputs * kernel * kernel);
        Work {
            rows,
            columns: outputs,
            depth,
            taps: kernel * kernel,
            stride,
            pad,
            width: out,
            flops: 2.0 * rows * outputs * depth,
            bytes_in: 4.0 * batch * inputs * size * size,
            bytes_weights: 4.0 * outputs * depth,
            bytes_out: 4.0 * rows * outputs,
            ..Work::with_unit_sizes(Form::Convolution)
        }
        .with_input(&[batch, inputs, size, size])
        .with_output(&[batch, outputs, out, out])
    }

    /// Describes an operator on independent rows, such as a normalisation, that reads and writes each element once.
    pub fn rows_work(rows: f64, columns: f64, flops_per_element: f64) -> Work {
        let bytes = 4.0 * rows * columns;
        Work {
            rows,
            columns,
            depth: columns,
            flops: flops_per_element * rows * columns,
            bytes_in: bytes,
            bytes_out: bytes,
            ..Work::with_unit_sizes(Form::Rows)
        }
        .with_input(&[rows, columns])
        .with_output(&[rows, columns])
    }

    pub fn pointwise_work(rows: f64, columns: f64, operands: f64) -> Work {
        let bytes = 4.0 * rows * columns;
        Work {
            rows,
            columns,
            flops: rows * columns,
            bytes_in: operands * bytes,
            bytes_out: bytes,
            ..Work::with_unit_sizes(Form::Pointwise)
        }
        .with_input(&[rows, columns])
        .with_output(&[rows, columns])
    }

    pub fn with_output(mut self, extents: &[f64]) -> Work {
        let (folded, own) = extents.split_at(extents.len().saturating_sub(RANK));
        self.output = [1.0; RANK];
        self.output.iter_mut().zip(own).for_each(|(extent, given)| *extent = *given);
        self.output[0] *= folded.iter().product::<f64>();
        self.rank = own.len();
        self
    }

    pub fn with_input(mut self, extents: &[f64]) -> Work {
        self.row_in = extents.last().copied().unwrap_or(1.0);
        self.plane_in = extents.iter().rev().take(2).product();
        self
    }

    /// Returns the number of elements of an output row, and of an output plane (its last two dimensions).
    pub fn row_and_plane_out(&self) -> (f64, f64) {
        let own = &self.output[..self.rank];
        (own.last().copied().unwrap_or(1.0), own.iter().rev().take(2).product())
    }

    pub fn bytes(&self) -> f64 {
        self.bytes_in + self.bytes_weights + self.bytes_out
    }

    /// Returns whether algorithms such as Winograd's may need fewer products than `flops` counts.
    pub fn may_skip_products(&self) -> bool {
        self.form == Form::Convolution && self.taps == 9.0 && self.stride == 1.0
    }

    pub fn is_sound(&self) -> bool {
        let sizes = [self.batch, self.rows, self.columns, self.depth, self.taps, self.stride, self.groups, self.run];
        let costs = [self.flops, self.bytes_in, self.bytes_weights, self.bytes_out];
        sizes.iter().all(|size| size.is_finite() && *size >= 1.0)
            && costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0)
            && self.bytes() > 0.0
    }
}
