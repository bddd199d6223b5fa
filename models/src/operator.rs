//! Every operator we can measure.
//!
//! Adding one starts here; matches over `Op` have no `_` arm, so the compiler then lists what is missing: shape
//! rule (`infer`), work, reference computation, lowering. Inputs are tensors, attributes live in the variant. Biases
//! and activations are operators of their own; fusing them into an anchor is the business of a pass.

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
    /// Elements `starts` to `stops` (excluded) of these dimensions, which stand in ascending order; steps are positive.
    Slice {
        axes: Vec<i64>,
        starts: Vec<i64>,
        stops: Vec<i64>,
        steps: Vec<i64>,
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
    /// Makes one element of one element of each input.
    Pointwise,
    /// Moves elements, or blends neighbours.
    Movement,
    /// The same elements in the same order, under another shape: free.
    View,
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
            | Op::Binary { .. } => 2..=2,
            Op::BatchNorm { .. } => 5..=5,
            Op::ScaleShift { .. } | Op::LayerNorm { .. } => 3..=3,
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
            | Op::Identity => 1..=1,
        }
    }

    /// What a pass may assume of it.
    pub fn class(&self) -> Class {
        match self {
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } | Op::Dense => Class::Contraction,
            Op::BatchNorm { .. } | Op::LayerNorm { .. } | Op::Softmax { .. } => Class::Normalisation,
            Op::Pool { .. } | Op::GlobalPool { .. } => Class::Pool,
            Op::ScaleShift { .. }
            | Op::BiasAdd { .. }
            | Op::Unary { .. }
            | Op::Clip { .. }
            | Op::Binary { .. }
            | Op::Cast { .. } => Class::Pointwise,
            Op::Transpose { .. } | Op::Concat { .. } | Op::Pad { .. } | Op::Slice { .. } | Op::Resize { .. } => {
                Class::Movement
            }
            Op::Reshape { .. } | Op::Flatten { .. } | Op::Identity => Class::View,
        }
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
            | Op::BiasAdd { .. } => input > 0,
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
            | Op::Concat { axis } => front(axis),
            Op::Transpose { permutation: axes } | Op::Slice { axes, .. } => axes.iter_mut().for_each(front),
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
            | Op::Identity => {}
        }
        self
    }
}

/// Where a resized element comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// Element `floor(place · old extent / new extent)`.
    Nearest,
    /// A blend of the neighbours of `(place + 1/2) · old / new - 1/2`, kept inside.
    Linear,
    /// A blend of the neighbours of `place · (old - 1) / (new - 1)`: the corners coincide.
    LinearAligned,
}

/// How a window becomes one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum PoolMode {
    Max,
    Average,
}

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum UnaryOp {
    Relu,
    LeakyRelu {
        alpha: f64,
    },
    Sigmoid,
    /// `min(max(x / 6 + 1/2, 0), 1)`
    HardSigmoid,
    Tanh,
    Silu,
    /// `x · HardSigmoid(x)`
    HardSwish,
    /// The exact form, with the error function.
    Gelu,
    Exp,
    Log,
    Sqrt,
    Neg,
    Abs,
}

/// Functions of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
}

impl UnaryOp {
    /// The function's name in texts.
    pub fn name(self) -> &'static str {
        match self {
            UnaryOp::Relu => "relu",
            UnaryOp::LeakyRelu { .. } => "leaky_relu",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::HardSigmoid => "hard_sigmoid",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Silu => "silu",
            UnaryOp::HardSwish => "hard_swish",
            UnaryOp::Gelu => "gelu",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
        }
    }
}

impl BinaryOp {
    /// The function's name in texts.
    pub fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
            BinaryOp::Max => "max",
            BinaryOp::Min => "min",
        }
    }
}
