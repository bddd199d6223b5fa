//! Every operator we can measure.
//!
//! Adding one starts here; matches over `Op` have no `_` arm, so the compiler then lists what is missing: shape
//! rule (`infer`), work, reference computation, lowering. Inputs are tensors, attributes live in the variant. Biases
//! and activations are operators of their own; fusing them into an anchor is the business of a pass.

mod functions;

pub use functions::{BinaryOp, Border, CompareOp, PoolMode, ReduceOp, ResizeMode, ScatterOp, UnaryOp};

use crate::types::DType;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// One operator with its attributes. Spatial attributes have one entry per spatial dimension (1 to 3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Op {
    // --- contractions: integers below 32 bits are summed in `i32`, every other type in itself ---
    /// `x[n, ci, s…]`, `w[co, ci / groups, k…]`. `pads` holds all heads, then all tails.
    Conv {
        strides: Vec<i64>,
        pads: Vec<i64>,
        dilations: Vec<i64>,
        groups: i64,
    },
    /// The gradient of a convolution: `x[n, ci, s…]`, `w[ci, co / groups, k…]`; `output_pads` adds to the trailing ends.
    ConvTranspose {
        strides: Vec<i64>,
        pads: Vec<i64>,
        output_pads: Vec<i64>,
        dilations: Vec<i64>,
        groups: i64,
    },
    /// `a[…, m, k] · b[…, k, n]`, leading dimensions broadcast.
    MatMul {
        transpose_a: bool,
        transpose_b: bool,
    },
    /// `x[…, k]`, `w[n, k]` (the usual storage) gives `[…, n]`.
    Dense,
    /// One to eight operands in Einstein's notation, such as `bhqd,bhkd->bhqk`. Letters that the result lacks are summed;
    /// `...` stands for leading dimensions that broadcast. Without `->` the result has every letter that stands once.
    Einsum {
        equation: String,
    },
    /// `q[b, h, s, d]`, `k[b, g, t, d]`, `v[b, g, t, e]` and perhaps a mask that is added and broadcasts to
    /// `[b, h, s, t]`; each of the `g` heads of keys serves `h / g` neighbouring heads of queries. The query of row `i`
    /// stands at place `i + t - s`: with `causal` it sees no later place, with `window` only the last so many up to its
    /// own. With `softcap` scores become `softcap · tanh(score / softcap)` before the mask.
    Attention {
        causal: bool,
        scale: f64,
        window: Option<i64>,
        softcap: Option<f64>,
    },
    // --- quantised contractions: 8-bit operands, each less its zero point, summed in `i32`; pads are zero points ---
    /// `Conv` of `(x - x_zero)` and `(w - w_zero)`.
    QConv {
        strides: Vec<i64>,
        pads: Vec<i64>,
        dilations: Vec<i64>,
        groups: i64,
        x_zero: i64,
        w_zero: i64,
    },
    /// `Dense` of `(x - x_zero)` and `(w - w_zero)`.
    QDense {
        x_zero: i64,
        w_zero: i64,
    },
    /// `MatMul` of `(a - a_zero)` and `(b - b_zero)`, neither transposed.
    QMatMul {
        a_zero: i64,
        b_zero: i64,
    },
    // --- normalisation ---
    /// `x, scale, shift, mean, variance`; channel is dimension 1.
    BatchNorm {
        epsilon: f64,
    },
    /// `x · scale[c] + shift[c]` along `axis`: batch normalisation after its statistics are folded.
    ScaleShift {
        axis: i64,
    },
    /// `x, scale, shift`, both of the shape of the dimensions from `axis` on, over which it normalises.
    LayerNorm {
        axis: i64,
        epsilon: f64,
    },
    Softmax {
        axis: i64,
        log: bool,
    },
    /// `x / sqrt(mean(x²) + epsilon) · scale` over the dimensions from `axis` on, whose shape `scale` has.
    RmsNorm {
        axis: i64,
        epsilon: f64,
    },
    /// `x[n, c, s…], scale[c], shift[c]`, normalised over each group of channels and all of space. As many groups as
    /// channels is instance normalisation.
    GroupNorm {
        groups: i64,
        epsilon: f64,
    },
    /// `(x - mean) / (sqrt(variance) + epsilon)` over these dimensions, which stand in ascending order.
    MeanVarianceNorm {
        axes: Vec<i64>,
        epsilon: f64,
    },
    /// `x / (sum |x|^order)^(1/order)` along `axis`, zeros where that is zero; the order is 1 or 2.
    LpNorm {
        axis: i64,
        order: i64,
    },
    /// `x / (bias + alpha / size · sum x²)^beta`, the sum over `size` neighbouring channels.
    Lrn {
        size: i64,
        alpha: f64,
        beta: f64,
        bias: f64,
    },
    // --- pooling ---
    /// An average divides by the kernel's elements inside the data, with `count_pad` also by those inside the pads; those
    /// that only `ceil` reaches never count. Padding never is a maximum.
    Pool {
        mode: PoolMode,
        kernel: Vec<i64>,
        strides: Vec<i64>,
        pads: Vec<i64>,
        dilations: Vec<i64>,
        ceil: bool,
        count_pad: bool,
    },
    /// Over all spatial dimensions, which stay with extent 1.
    GlobalPool {
        mode: PoolMode,
    },
    /// Spatial dimensions become these extents: place `i` of `n` reduces elements `floor(i · old / n)` to
    /// `ceil((i + 1) · old / n)`, excluded.
    AdaptivePool {
        mode: PoolMode,
        extents: Vec<i64>,
    },
    // --- reductions ---
    /// Over these dimensions, which stand in ascending order; with `keep` they stay with extent 1.
    Reduce {
        function: ReduceOp,
        axes: Vec<i64>,
        keep: bool,
    },
    /// Where the largest (or smallest) element along `axis` stands, as `i64`: the first of equals, or the last.
    ArgReduce {
        largest: bool,
        axis: i64,
        keep: bool,
        last: bool,
    },
    /// Where the `count` largest (or smallest) elements along `axis` stand, as `i64`, the best first and of equals the one
    /// that comes first. `GatherElements` then gives the elements themselves.
    ArgTop {
        count: i64,
        axis: i64,
        largest: bool,
    },
    /// Sums of all elements up to each (with `reverse`: from each on), without itself when `exclusive`.
    CumSum {
        axis: i64,
        exclusive: bool,
        reverse: bool,
    },
    // --- pointwise ---
    /// `x + bias[c]` along `axis`.
    BiasAdd {
        axis: i64,
    },
    Unary {
        function: UnaryOp,
    },
    Clip {
        low: f64,
        high: f64,
    },
    /// Two tensors, broadcast as numpy does.
    Binary {
        function: BinaryOp,
    },
    Cast {
        to: DType,
    },
    /// Two tensors, broadcast; the answer is `bool`.
    Compare {
        function: CompareOp,
    },
    /// `condition, yes, no`, broadcast.
    Where,
    /// `x, slope`: the slope broadcasts to `x` and scales negative elements.
    PRelu,
    /// `x, scale` and perhaps the zero point, of type `to`: `clamp(round(x / scale) + zero)`, the quotient in 32-bit
    /// floats unless the scale is wider, ties to even, into the range of `to`. Scale and zero point are scalars (`axis` is then 0) or vectors along `axis`.
    Quantize {
        to: DType,
        axis: i64,
    },
    /// `x, scale` and perhaps the zero point, of the type of `x`: `(x - zero) · scale` in the type of the scale.
    Dequantize {
        axis: i64,
    },
    /// `x: i32, multiplier`: `clamp(round(x · multiplier) + zero, low, high)`, the product in 32-bit floats unless the
    /// multiplier is wider, ties to even. The multiplier is a scalar
    /// (`axis` is then 0) or a vector along `axis`.
    Requantize {
        to: DType,
        axis: i64,
        zero: i64,
        low: i64,
        high: i64,
    },
    // --- movement ---
    /// One extent may be -1 (deduced); 0 keeps the input's.
    Reshape {
        shape: Vec<i64>,
    },
    /// `[d0 … d(axis-1)]` and the rest become two dimensions.
    Flatten {
        axis: i64,
    },
    Transpose {
        permutation: Vec<i64>,
    },
    Concat {
        axis: i64,
    },
    Pad {
        pads: Vec<i64>,
        value: f64,
    },
    /// Surrounds with elements of `x` itself.
    BorderPad {
        border: Border,
        pads: Vec<i64>,
    },
    /// Elements `starts` to `stops` (excluded) of these dimensions, which stand in ascending order. With a negative step
    /// they go down, and a stop of -1 is before the first element.
    Slice {
        axes: Vec<i64>,
        starts: Vec<i64>,
        stops: Vec<i64>,
        steps: Vec<i64>,
    },
    /// Repeated to what `x` and this shape broadcast to.
    Expand {
        shape: Vec<i64>,
    },
    /// Each dimension so many times.
    Tile {
        repeats: Vec<i64>,
    },
    /// `x, indices`: dimension `axis` becomes the dimensions of the indices. Here and below negative indices count from
    /// the end, and an index outside of its dimension is undefined.
    Gather {
        axis: i64,
    },
    /// `x, indices` of one rank: element `[i, j, …]` is that of `x` with the index of dimension `axis` replaced.
    GatherElements {
        axis: i64,
    },
    /// `x, indices[b…, i…, k]`: the first `batch` dimensions go together, the next `k` are looked up.
    GatherNd {
        batch: i64,
    },
    /// `x, indices, updates`: writes elements where `GatherElements` would read them; of two at one place the later counts.
    ScatterElements {
        axis: i64,
        combine: ScatterOp,
    },
    /// `x, indices[i…, k], updates[i…, s…]`: writes slices where `GatherNd` would read them.
    ScatterNd {
        combine: ScatterOp,
    },
    /// `indices`: a new dimension `axis` of extent `depth`, `on` at the index and `off` elsewhere.
    OneHot {
        axis: i64,
        depth: i64,
        on: f64,
        off: f64,
        to: DType,
    },
    /// The upper (or lower) triangle of the last two dimensions; the rest is zero.
    Trilu {
        upper: bool,
        diagonal: i64,
    },
    /// `x[…, s, d], cos[…, s, r / 2], sin[…, s, r / 2]`, both broadcast to the leading dimensions of `x`: turns pairs of
    /// the first `rotary` elements, which are neighbours when `interleaved`, else half of `rotary` apart.
    Rope {
        rotary: i64,
        interleaved: bool,
    },
    // --- resampling ---
    /// Spatial dimensions change to these extents.
    Resize {
        mode: ResizeMode,
        extents: Vec<i64>,
    },
    // --- nothing at inference ---
    Identity,
}

/// What a pass may assume of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sums products over a dimension.
    Contraction,
    /// Looks at many elements to scale each.
    Normalisation,
    /// Reduces windows.
    Pool,
    /// Reduces whole dimensions, or all that stands before each element.
    Reduction,
    /// Makes one element of one element of each input.
    Pointwise,
    /// Moves elements, or blends neighbours.
    Movement,
    /// The same elements in the same order, under another shape: free.
    View,
}

/// How an operator slides windows over the spatial dimensions of its first input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows<'a> {
    /// Extents of a window; none where its weight has them.
    pub kernel: &'a [i64],
    /// Elements from one window to the next.
    pub strides: &'a [i64],
    /// All heads, then all tails.
    pub pads: &'a [i64],
    /// Groups of channels that do not mix; 1 where channels never mix.
    pub groups: i64,
    /// Whether strides are those of the output.
    pub is_transposed: bool,
}

impl Op {
    /// The operator's name in texts.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Conv { .. } => "conv",
            Op::ConvTranspose { .. } => "conv_transpose",
            Op::MatMul { .. } => "mat_mul",
            Op::Dense => "dense",
            Op::BatchNorm { .. } => "batch_norm",
            Op::ScaleShift { .. } => "scale_shift",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Softmax { .. } => "softmax",
            Op::Pool { .. } => "pool",
            Op::GlobalPool { .. } => "global_pool",
            Op::BiasAdd { .. } => "bias_add",
            Op::Unary { function } => function.name(),
            Op::Clip { .. } => "clip",
            Op::Binary { function } => function.name(),
            Op::Cast { .. } => "cast",
            Op::Reshape { .. } => "reshape",
            Op::Flatten { .. } => "flatten",
            Op::Transpose { .. } => "transpose",
            Op::Concat { .. } => "concat",
            Op::Pad { .. } => "pad",
            Op::Slice { .. } => "slice",
            Op::Resize { .. } => "resize",
            Op::Identity => "identity",
            Op::Einsum { .. } => "einsum",
            Op::Attention { .. } => "attention",
            Op::QConv { .. } => "q_conv",
            Op::QDense { .. } => "q_dense",
            Op::QMatMul { .. } => "q_mat_mul",
            Op::RmsNorm { .. } => "rms_norm",
            Op::GroupNorm { .. } => "group_norm",
            Op::MeanVarianceNorm { .. } => "mean_variance_norm",
            Op::LpNorm { .. } => "lp_norm",
            Op::Lrn { .. } => "lrn",
            Op::AdaptivePool { .. } => "adaptive_pool",
            Op::Reduce { function, .. } => function.name(),
            Op::ArgReduce { largest: true, .. } => "arg_max",
            Op::ArgReduce { largest: false, .. } => "arg_min",
            Op::ArgTop { .. } => "arg_top",
            Op::CumSum { .. } => "cum_sum",
            Op::Compare { function } => function.name(),
            Op::Where => "where",
            Op::PRelu => "p_relu",
            Op::Quantize { .. } => "quantize",
            Op::Dequantize { .. } => "dequantize",
            Op::Requantize { .. } => "requantize",
            Op::BorderPad { .. } => "border_pad",
            Op::Expand { .. } => "expand",
            Op::Tile { .. } => "tile",
            Op::Gather { .. } => "gather",
            Op::GatherElements { .. } => "gather_elements",
            Op::GatherNd { .. } => "gather_nd",
            Op::ScatterElements { .. } => "scatter_elements",
            Op::ScatterNd { .. } => "scatter_nd",
            Op::OneHot { .. } => "one_hot",
            Op::Trilu { .. } => "trilu",
            Op::Rope { .. } => "rope",
        }
    }

    /// How many inputs it takes.
    pub fn arity(&self) -> RangeInclusive<usize> {
        match self {
            Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::MatMul { .. }
            | Op::Dense
            | Op::BiasAdd { .. }
            | Op::Binary { .. }
            | Op::QConv { .. }
            | Op::QDense { .. }
            | Op::QMatMul { .. }
            | Op::RmsNorm { .. }
            | Op::Compare { .. }
            | Op::PRelu
            | Op::Requantize { .. }
            | Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. } => 2..=2,
            Op::BatchNorm { .. } => 5..=5,
            Op::ScaleShift { .. }
            | Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::Where
            | Op::ScatterElements { .. }
            | Op::ScatterNd { .. }
            | Op::Rope { .. } => 3..=3,
            Op::Quantize { .. } | Op::Dequantize { .. } => 2..=3,
            Op::Attention { .. } => 3..=4,
            Op::Einsum { .. } => 1..=8,
            Op::Concat { .. } => 1..=4096,
            Op::Softmax { .. }
            | Op::Pool { .. }
            | Op::GlobalPool { .. }
            | Op::Unary { .. }
            | Op::Clip { .. }
            | Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Flatten { .. }
            | Op::Transpose { .. }
            | Op::Pad { .. }
            | Op::Slice { .. }
            | Op::Resize { .. }
            | Op::MeanVarianceNorm { .. }
            | Op::LpNorm { .. }
            | Op::Lrn { .. }
            | Op::AdaptivePool { .. }
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::ArgTop { .. }
            | Op::CumSum { .. }
            | Op::BorderPad { .. }
            | Op::Expand { .. }
            | Op::Tile { .. }
            | Op::OneHot { .. }
            | Op::Trilu { .. }
            | Op::Identity => 1..=1,
        }
    }

    /// What a pass may assume of it.
    pub fn class(&self) -> Class {
        match self {
            Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::MatMul { .. }
            | Op::Dense
            | Op::Einsum { .. }
            | Op::Attention { .. }
            | Op::QConv { .. }
            | Op::QDense { .. }
            | Op::QMatMul { .. } => Class::Contraction,
            Op::BatchNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Softmax { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::MeanVarianceNorm { .. }
            | Op::LpNorm { .. }
            | Op::Lrn { .. } => Class::Normalisation,
            Op::Pool { .. } | Op::GlobalPool { .. } | Op::AdaptivePool { .. } => Class::Pool,
            Op::Reduce { .. } | Op::ArgReduce { .. } | Op::ArgTop { .. } | Op::CumSum { .. } => Class::Reduction,
            Op::ScaleShift { .. }
            | Op::BiasAdd { .. }
            | Op::Unary { .. }
            | Op::Clip { .. }
            | Op::Binary { .. }
            | Op::Cast { .. }
            | Op::Compare { .. }
            | Op::Where
            | Op::PRelu
            | Op::Quantize { .. }
            | Op::Dequantize { .. }
            | Op::Requantize { .. } => Class::Pointwise,
            Op::Transpose { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Slice { .. }
            | Op::Resize { .. }
            | Op::BorderPad { .. }
            | Op::Expand { .. }
            | Op::Tile { .. }
            | Op::Gather { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::ScatterElements { .. }
            | Op::ScatterNd { .. }
            | Op::OneHot { .. }
            | Op::Trilu { .. }
            | Op::Rope { .. } => Class::Movement,
            Op::Reshape { .. } | Op::Flatten { .. } | Op::Identity => Class::View,
        }
    }

    /// The windows it slides; nothing where it has none, or finds them from extents.
    pub fn windows(&self) -> Option<Windows<'_>> {
        let is_transposed = matches!(self, Op::ConvTranspose { .. });
        if let Op::Pool { kernel, strides, pads, .. } = self {
            return Some(Windows { kernel, strides, pads, groups: 1, is_transposed });
        }
        let (Op::Conv { strides, pads, groups, .. }
        | Op::QConv { strides, pads, groups, .. }
        | Op::ConvTranspose { strides, pads, groups, .. }) = self
        else {
            return None;
        };
        Some(Windows { kernel: &[], strides, pads, groups: *groups, is_transposed })
    }

    /// Whether an input at this position usually is a constant of the model.
    pub fn is_weight(&self, input: usize) -> bool {
        match self {
            Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::Dense
            | Op::BatchNorm { .. }
            | Op::LayerNorm { .. }
            | Op::ScaleShift { .. }
            | Op::BiasAdd { .. }
            | Op::QConv { .. }
            | Op::QDense { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::PRelu
            | Op::Quantize { .. }
            | Op::Dequantize { .. }
            | Op::Requantize { .. }
            | Op::Rope { .. } => input > 0,
            // Tables of embeddings.
            Op::Gather { .. } => input == 0,
            Op::MatMul { .. }
            | Op::Softmax { .. }
            | Op::Pool { .. }
            | Op::GlobalPool { .. }
            | Op::Unary { .. }
            | Op::Clip { .. }
            | Op::Binary { .. }
            | Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Flatten { .. }
            | Op::Transpose { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Slice { .. }
            | Op::Resize { .. }
            | Op::Einsum { .. }
            | Op::Attention { .. }
            | Op::QMatMul { .. }
            | Op::MeanVarianceNorm { .. }
            | Op::LpNorm { .. }
            | Op::Lrn { .. }
            | Op::AdaptivePool { .. }
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::ArgTop { .. }
            | Op::CumSum { .. }
            | Op::Compare { .. }
            | Op::Where
            | Op::BorderPad { .. }
            | Op::Expand { .. }
            | Op::Tile { .. }
            | Op::GatherElements { .. }
            | Op::GatherNd { .. }
            | Op::ScatterElements { .. }
            | Op::ScatterNd { .. }
            | Op::OneHot { .. }
            | Op::Trilu { .. }
            | Op::Identity => false,
        }
    }

    /// The same operator with a negative axis counted from the front, the one form that is stored.
    pub fn with_front_axis(mut self, rank: usize) -> Op {
        let front = |axis: &mut i64| {
            if *axis < 0 {
                *axis = axis.saturating_add(i64::try_from(rank).unwrap_or(i64::MAX));
            }
        };
        match &mut self {
            Op::ScaleShift { axis }
            | Op::BiasAdd { axis }
            | Op::Softmax { axis, .. }
            | Op::LayerNorm { axis, .. }
            | Op::Flatten { axis }
            | Op::Concat { axis }
            | Op::RmsNorm { axis, .. }
            | Op::LpNorm { axis, .. }
            | Op::ArgReduce { axis, .. }
            | Op::ArgTop { axis, .. }
            | Op::CumSum { axis, .. }
            | Op::Quantize { axis, .. }
            | Op::Dequantize { axis }
            | Op::Requantize { axis, .. }
            | Op::Gather { axis }
            | Op::GatherElements { axis }
            | Op::ScatterElements { axis, .. } => front(axis),
            // The new dimension counts too.
            Op::OneHot { axis, .. } => {
                if *axis < 0 {
                    *axis = axis.saturating_add(i64::try_from(rank).unwrap_or(i64::MAX)).saturating_add(1);
                }
            }
            Op::Transpose { permutation: axes } | Op::Slice { axes, .. } => axes.iter_mut().for_each(front),
            Op::MeanVarianceNorm { axes, .. } | Op::Reduce { axes, .. } => {
                axes.iter_mut().for_each(front);
                axes.sort_unstable();
            }
            Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::MatMul { .. }
            | Op::Dense
            | Op::BatchNorm { .. }
            | Op::Pool { .. }
            | Op::GlobalPool { .. }
            | Op::Unary { .. }
            | Op::Clip { .. }
            | Op::Binary { .. }
            | Op::Cast { .. }
            | Op::Reshape { .. }
            | Op::Pad { .. }
            | Op::Resize { .. }
            | Op::Einsum { .. }
            | Op::Attention { .. }
            | Op::QConv { .. }
            | Op::QDense { .. }
            | Op::QMatMul { .. }
            | Op::GroupNorm { .. }
            | Op::Lrn { .. }
            | Op::AdaptivePool { .. }
            | Op::Compare { .. }
            | Op::Where
            | Op::PRelu
            | Op::BorderPad { .. }
            | Op::Expand { .. }
            | Op::Tile { .. }
            | Op::GatherNd { .. }
            | Op::ScatterNd { .. }
            | Op::Trilu { .. }
            | Op::Rope { .. }
            | Op::Identity => {}
        }
        self
    }
}
