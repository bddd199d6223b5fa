//! The attributes that are a choice of a function.

use serde::{Deserialize, Serialize};

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
    /// `(sum |x|^order)^(1/order)`; the order is at least 1, and padding counts as zero.
    Lp {
        order: i64,
    },
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
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    /// The error function.
    Erf,
    Exp2,
    /// `exp(x) - 1`
    Expm1,
    Log2,
    Log10,
    /// `log(1 + x)`
    Log1p,
    /// `1 / sqrt(x)`
    Rsqrt,
    /// `1 / x`
    Reciprocal,
    /// `x · x`
    Square,
    Floor,
    Ceil,
    /// To the nearest whole number, ties to even.
    Round,
    /// Towards zero.
    Trunc,
    /// -1, 0 or 1.
    Sign,
    /// `x` above zero, `alpha · (exp(x) - 1)` below.
    Elu {
        alpha: f64,
    },
    /// `Elu` with the two constants that keep mean and variance.
    Selu,
    /// `max(x, 0) + min(alpha · (exp(x / alpha) - 1), 0)`
    Celu {
        alpha: f64,
    },
    /// `log(1 + exp(x))`
    Softplus,
    /// `x / (1 + |x|)`
    Softsign,
    /// `x · tanh(log(1 + exp(x)))`
    Mish,
    /// `min(max(slope · x + offset, 0), 1)`
    HardSigmoidOf {
        slope: f64,
        offset: f64,
    },
    /// The form with the hyperbolic tangent.
    GeluTanh,
    /// `x · sigmoid(beta · x)`
    Swish {
        beta: f64,
    },
    /// `x` above alpha, else 0.
    ThresholdedRelu {
        alpha: f64,
    },
    /// `x` moved towards zero by `bias` where it is further than `lambda` from it, else 0.
    Shrink {
        lambda: f64,
        bias: f64,
    },
    /// Whether it is no number, as `bool`.
    IsNan,
    /// Whether it is one of these infinities, as `bool`.
    IsInf {
        negative: bool,
        positive: bool,
    },
    /// Of a `bool`.
    Not,
    /// Every bit of an integer turned.
    BitNot,
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
    /// Of floats.
    Pow,
    /// The remainder with the sign of the divisor.
    Mod,
    /// The remainder with the sign of the dividend.
    Fmod,
    /// The quotient rounded down.
    FloorDiv,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    /// Copies the sign of a signed integer.
    ShiftRight,
    /// Of two `bool`.
    And,
    /// Of two `bool`.
    Or,
    /// Of two `bool`.
    Xor,
}

/// Comparisons of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// How the elements of whole dimensions become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    /// `sum |x|`
    L1,
    /// `sqrt(sum x²)`
    L2,
    /// `log(sum x)`
    LogSum,
    /// `log(sum exp(x))`, computed without overflow
    LogSumExp,
    /// `sum x²`
    SumSquare,
}

/// What becomes of an element that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum ScatterOp {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

/// Which element stands outside of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Border {
    /// Mirrored at the outermost element, which is not repeated.
    Reflect,
    /// The outermost element.
    Edge,
    /// As if the tensor stood there again.
    Wrap,
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
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Tan => "tan",
            UnaryOp::Asin => "asin",
            UnaryOp::Acos => "acos",
            UnaryOp::Atan => "atan",
            UnaryOp::Sinh => "sinh",
            UnaryOp::Cosh => "cosh",
            UnaryOp::Asinh => "asinh",
            UnaryOp::Acosh => "acosh",
            UnaryOp::Atanh => "atanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Exp2 => "exp2",
            UnaryOp::Expm1 => "expm1",
            UnaryOp::Log2 => "log2",
            UnaryOp::Log10 => "log10",
            UnaryOp::Log1p => "log1p",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Reciprocal => "reciprocal",
            UnaryOp::Square => "square",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Round => "round",
            UnaryOp::Trunc => "trunc",
            UnaryOp::Sign => "sign",
            UnaryOp::Elu { .. } => "elu",
            UnaryOp::Selu => "selu",
            UnaryOp::Celu { .. } => "celu",
            UnaryOp::Softplus => "softplus",
            UnaryOp::Softsign => "softsign",
            UnaryOp::Mish => "mish",
            UnaryOp::HardSigmoidOf { .. } => "hard_sigmoid_of",
            UnaryOp::GeluTanh => "gelu_tanh",
            UnaryOp::Swish { .. } => "swish",
            UnaryOp::ThresholdedRelu { .. } => "thresholded_relu",
            UnaryOp::Shrink { .. } => "shrink",
            UnaryOp::IsNan => "is_nan",
            UnaryOp::IsInf { .. } => "is_inf",
            UnaryOp::Not => "not",
            UnaryOp::BitNot => "bit_not",
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
            BinaryOp::Pow => "pow",
            BinaryOp::Mod => "mod",
            BinaryOp::Fmod => "fmod",
            BinaryOp::FloorDiv => "floor_div",
            BinaryOp::BitAnd => "bit_and",
            BinaryOp::BitOr => "bit_or",
            BinaryOp::BitXor => "bit_xor",
            BinaryOp::ShiftLeft => "shift_left",
            BinaryOp::ShiftRight => "shift_right",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Xor => "xor",
        }
    }
}

impl CompareOp {
    /// The function's name in texts.
    pub fn name(self) -> &'static str {
        match self {
            CompareOp::Equal => "equal",
            CompareOp::NotEqual => "not_equal",
            CompareOp::Less => "less",
            CompareOp::LessOrEqual => "less_or_equal",
            CompareOp::Greater => "greater",
            CompareOp::GreaterOrEqual => "greater_or_equal",
        }
    }
}

impl ReduceOp {
    /// The function's name in texts.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Mean => "reduce_mean",
            ReduceOp::Max => "reduce_max",
            ReduceOp::Min => "reduce_min",
            ReduceOp::Prod => "reduce_prod",
            ReduceOp::L1 => "reduce_l1",
            ReduceOp::L2 => "reduce_l2",
            ReduceOp::LogSum => "reduce_log_sum",
            ReduceOp::LogSumExp => "reduce_log_sum_exp",
            ReduceOp::SumSquare => "reduce_sum_square",
        }
    }
}
