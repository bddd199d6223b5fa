//! Functions of one element.

use super::prelude::*;
use crate::shapes::{boolean, integer};

/// Functions of one element.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// The type of the result; which element types the function takes, and which numbers.
    fn output(self, x: &TensorType) -> Rule<TensorType> {
        let finite = |name: &str, number: f64| {
            if number.is_finite() { Ok(()) } else { Err(format!("{name} {number} must be finite")) }
        };
        match self {
            UnaryOp::Relu | UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Square | UnaryOp::Sign => return numeric(x),
            UnaryOp::Not => return boolean(x),
            UnaryOp::BitNot => return integer(x),
            UnaryOp::IsNan | UnaryOp::IsInf { .. } => {
                return Ok(TensorType { dtype: DType::Bool, shape: floating(x)?.shape });
            }
            UnaryOp::LeakyRelu { alpha } | UnaryOp::Elu { alpha } | UnaryOp::ThresholdedRelu { alpha } => {
                finite("alpha", alpha)?;
            }
            UnaryOp::Celu { alpha } => finite_positive(alpha, "alpha")?,
            UnaryOp::HardSigmoidOf { slope, offset } => finite("slope", slope).and(finite("offset", offset))?,
            UnaryOp::Swish { beta } => finite("beta", beta)?,
            UnaryOp::Shrink { lambda, bias } => finite("lambda", lambda).and(finite("bias", bias))?,
            UnaryOp::Sigmoid
            | UnaryOp::HardSigmoid
            | UnaryOp::Tanh
            | UnaryOp::Silu
            | UnaryOp::HardSwish
            | UnaryOp::Gelu
            | UnaryOp::Exp
            | UnaryOp::Log
            | UnaryOp::Sqrt
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Asin
            | UnaryOp::Acos
            | UnaryOp::Atan
            | UnaryOp::Sinh
            | UnaryOp::Cosh
            | UnaryOp::Asinh
            | UnaryOp::Acosh
            | UnaryOp::Atanh
            | UnaryOp::Erf
            | UnaryOp::Exp2
            | UnaryOp::Expm1
            | UnaryOp::Log2
            | UnaryOp::Log10
            | UnaryOp::Log1p
            | UnaryOp::Rsqrt
            | UnaryOp::Reciprocal
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::Selu
            | UnaryOp::Softplus
            | UnaryOp::Softsign
            | UnaryOp::Mish
            | UnaryOp::GeluTanh => {}
        }
        floating(x)
    }

    /// Operations and transcendental functions of one element.
    fn cost(self) -> (u64, u64) {
        match self {
            UnaryOp::Relu
            | UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Reciprocal
            | UnaryOp::Square
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::IsNan
            | UnaryOp::IsInf { .. }
            | UnaryOp::Not
            | UnaryOp::BitNot => (1, 0),
            UnaryOp::Exp
            | UnaryOp::Log
            | UnaryOp::Tanh
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Asin
            | UnaryOp::Acos
            | UnaryOp::Atan
            | UnaryOp::Sinh
            | UnaryOp::Cosh
            | UnaryOp::Asinh
            | UnaryOp::Acosh
            | UnaryOp::Atanh
            | UnaryOp::Erf
            | UnaryOp::Exp2
            | UnaryOp::Expm1
            | UnaryOp::Log2
            | UnaryOp::Log10
            | UnaryOp::Log1p => (1, 1),
            // Two of comparison, selection, root, division, absolute value.
            UnaryOp::Rsqrt | UnaryOp::Sign | UnaryOp::ThresholdedRelu { .. } => (2, 0),
            // Comparison, multiplication, selection.
            UnaryOp::LeakyRelu { .. } | UnaryOp::Softsign => (3, 0),
            // Multiplication, addition, maximum, minimum.
            UnaryOp::HardSigmoid | UnaryOp::HardSigmoidOf { .. } => (4, 0),
            // Two comparisons, two additions, two selections.
            UnaryOp::Shrink { .. } => (6, 0),
            UnaryOp::HardSwish => (5, 0),
            // Exponential, subtraction, multiplication, comparison, selection; a division or a scaling more.
            UnaryOp::Elu { .. } => (5, 1),
            UnaryOp::Selu | UnaryOp::Celu { .. } => (6, 1),
            // Negation, exponential, addition, division.
            UnaryOp::Sigmoid => (4, 1),
            UnaryOp::Silu => (5, 1),
            UnaryOp::Swish { .. } => (6, 1),
            // Exponential, addition, logarithm; then tangent and multiplication.
            UnaryOp::Softplus => (3, 2),
            UnaryOp::Mish => (5, 3),
            // Scaling, error function, addition, two multiplications.
            UnaryOp::Gelu => (5, 1),
            // A cube and its sum, scaling, tangent, addition, two multiplications.
            UnaryOp::GeluTanh => (9, 1),
        }
    }

    /// The numbers that tell two functions of one name apart.
    fn numbers(self) -> String {
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

/// A function of each element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unary {
    pub function: UnaryOp,
}

impl Operator for Unary {
    fn facts(&self) -> Facts {
        Facts::new(self.function.name(), Class::Pointwise, 1..=1)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        self.function.output(inputs[0])
    }

    fn arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let (flops, exps) = self.function.cost();
        Ok(Work { exps: elements(output)?.saturating_mul(exps), ..pointwise(output, flops)? })
    }

    fn numbers(&self) -> String {
        self.function.numbers()
    }
}
