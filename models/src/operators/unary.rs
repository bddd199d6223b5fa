//! Elementwise functions of one operand.

use super::functions::functions;
use super::prelude::*;
use crate::shapes::{boolean, integer};

functions! {
    /// Elementwise functions of one operand.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum UnaryOp {
        Relu => "relu", numeric, 1, 0;
        LeakyRelu { alpha: f64 } => "leaky_relu", floating, 3, 0;
        Sigmoid => "sigmoid", floating, 4, 1;
        /// `min(max(x / 6 + 1/2, 0), 1)`
        HardSigmoid => "hard_sigmoid", floating, 4, 0;
        Tanh => "tanh", floating, 1, 1;
        Silu => "silu", floating, 5, 1;
        /// `x · HardSigmoid(x)`
        HardSwish => "hard_swish", floating, 5, 0;
        /// The exact definition of GELU, with the error function.
        Gelu => "gelu", floating, 5, 1;
        Exp => "exp", floating, 1, 1;
        Log => "log", floating, 1, 1;
        Sqrt => "sqrt", floating, 1, 0;
        Neg => "neg", numeric, 1, 0;
        Abs => "abs", numeric, 1, 0;
        Sin => "sin", floating, 1, 1;
        Cos => "cos", floating, 1, 1;
        Tan => "tan", floating, 1, 1;
        Asin => "asin", floating, 1, 1;
        Acos => "acos", floating, 1, 1;
        Atan => "atan", floating, 1, 1;
        Sinh => "sinh", floating, 1, 1;
        Cosh => "cosh", floating, 1, 1;
        Asinh => "asinh", floating, 1, 1;
        Acosh => "acosh", floating, 1, 1;
        Atanh => "atanh", floating, 1, 1;
        /// The error function.
        Erf => "erf", floating, 1, 1;
        Exp2 => "exp2", floating, 1, 1;
        /// `exp(x) - 1`
        Expm1 => "expm1", floating, 1, 1;
        Log2 => "log2", floating, 1, 1;
        Log10 => "log10", floating, 1, 1;
        /// `log(1 + x)`
        Log1p => "log1p", floating, 1, 1;
        /// `1 / sqrt(x)`
        Rsqrt => "rsqrt", floating, 2, 0;
        /// `1 / x`
        Reciprocal => "reciprocal", floating, 1, 0;
        /// `x · x`
        Square => "square", numeric, 1, 0;
        Floor => "floor", floating, 1, 0;
        Ceil => "ceil", floating, 1, 0;
        /// Rounds to the nearest whole number, ties to even.
        Round => "round", floating, 1, 0;
        /// Rounds towards zero.
        Trunc => "trunc", floating, 1, 0;
        /// Returns -1, 0 or 1.
        Sign => "sign", numeric, 2, 0;
        /// `x` above zero, `alpha · (exp(x) - 1)` below.
        Elu { alpha: f64 } => "elu", floating, 5, 1;
        /// `Elu` with the two constants that preserve mean and variance.
        Selu => "selu", floating, 6, 1;
        /// `max(x, 0) + min(alpha · (exp(x / alpha) - 1), 0)`
        Celu { alpha: f64 } => "celu", floating, 6, 1;
        /// `log(1 + exp(x))`
        Softplus => "softplus", floating, 3, 2;
        /// `x / (1 + |x|)`
        Softsign => "softsign", floating, 3, 0;
        /// `x · tanh(log(1 + exp(x)))`
        Mish => "mish", floating, 5, 3;
        /// `min(max(slope · x + offset, 0), 1)`
        HardSigmoidOf { slope: f64, offset: f64 } => "hard_sigmoid_of", floating, 4, 0;
        /// The approximation of GELU with the hyperbolic tangent.
        GeluTanh => "gelu_tanh", floating, 9, 1;
        /// `x · sigmoid(beta · x)`
        Swish { beta: f64 } => "swish", floating, 6, 1;
        /// `x` above alpha, else 0.
        ThresholdedRelu { alpha: f64 } => "thresholded_relu", floating, 2, 0;
        /// `x` moved towards zero by `bias` if `|x| > lambda`, else 0.
        Shrink { lambda: f64, bias: f64 } => "shrink", floating, 6, 0;
        /// Whether `x` is NaN, as `bool`.
        IsNan => "is_nan", floating, 1, 0;
        /// Whether `x` is an infinity of a selected sign, as `bool`.
        IsInf { negative: bool, positive: bool } => "is_inf", floating, 1, 0;
        /// Negation of a `bool`.
        Not => "not", boolean, 1, 0;
        /// Bitwise complement of an integer.
        BitNot => "bit_not", integer, 1, 0;
    }
}

impl UnaryOp {
    fn check_numbers(self) -> Rule<()> {
        let finite = |name: &str, number: f64| {
            if number.is_finite() { Ok(()) } else { Err(format!("{name} {number} must be finite")) }
        };
        match self {
            UnaryOp::LeakyRelu { alpha } | UnaryOp::Elu { alpha } | UnaryOp::ThresholdedRelu { alpha } => {
                finite("alpha", alpha)
            }
            UnaryOp::Celu { alpha } => finite_positive(alpha, "alpha"),
            UnaryOp::HardSigmoidOf { slope, offset } => finite("slope", slope).and(finite("offset", offset)),
            UnaryOp::Swish { beta } => finite("beta", beta),
            UnaryOp::Shrink { lambda, bias } => finite("lambda", lambda).and(finite("bias", bias)),
            _ => Ok(()),
        }
    }

    /// Formats the attributes of a function, such as `(0.1)`; empty for functions without.
    fn attribute_suffix(self) -> String {
        match self {
            UnaryOp::LeakyRelu { alpha }
            | UnaryOp::Elu { alpha }
            | UnaryOp::Celu { alpha }
            | UnaryOp::ThresholdedRelu { alpha }
            | UnaryOp::Swish { beta: alpha } => format!("({alpha})"),
            UnaryOp::HardSigmoidOf { slope: a, offset: b } | UnaryOp::Shrink { lambda: a, bias: b } => {
                format!("({a},{b})")
            }
            _ => String::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unary {
    pub function: UnaryOp,
}

impl Operator for Unary {
    fn facts(&self) -> Facts {
        let repeats = match self.function {
            UnaryOp::Relu | UnaryOp::Neg => 0,
            // These read their operand far more often than others.
            UnaryOp::Sinh | UnaryOp::Expm1 => 3,
            _ => 1,
        };
        Facts::new(self.function.name(), Class::Pointwise, 1..=1).with_repeats(repeats)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let x = self.function.check(inputs[0])?;
        self.function.check_numbers()?;
        let is_test = matches!(self.function, UnaryOp::IsNan | UnaryOp::IsInf { .. });
        Ok(if is_test { TensorType { dtype: DType::Bool, shape: x.shape } } else { x })
    }

    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        self.function.work(output)
    }

    fn label_suffix(&self) -> String {
        self.function.attribute_suffix()
    }
}
