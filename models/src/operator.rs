//! Every operator we can measure.
//!
//! Adding one starts here; matches over `Op` have no `_` arm, so the compiler then lists what is missing: shape
//! rule (`infer`), work, reference computation, lowering. Inputs are tensors, attributes live in the variant. Biases
//! and activations are operators of their own; fusing them into an anchor is the business of a pass.

use crate::types::DType;
use serde::{Deserialize, Serialize};

/// One operator with its attributes. Spatial attributes have one entry per spatial dimension (1 to 3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Op {
    // --- contractions ---
    /// `x[n, ci, s…]`, `w[co, ci / groups, k…]`. `pads` holds all heads, then all tails.
    Conv {
        strides: Vec<i64>,
        pads: Vec<i64>,
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
    Softmax {
        axis: i64,
        log: bool,
    },
    // --- pooling ---
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
    // --- nothing at inference ---
    Identity,
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
    HardSigmoid,
    Tanh,
    Silu,
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
