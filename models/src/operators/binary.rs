//! Functions of two elements.

use super::prelude::*;
use crate::shapes::{boolean, integer};

/// Functions of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

    /// Which element types the function takes.
    fn check(self, x: &TensorType) -> Rule<TensorType> {
        match self {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Max
            | BinaryOp::Min
            | BinaryOp::Mod
            | BinaryOp::Fmod
            | BinaryOp::FloorDiv => numeric(x),
            BinaryOp::Pow => floating(x),
            BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::ShiftLeft | BinaryOp::ShiftRight => {
                integer(x)
            }
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => boolean(x),
        }
    }
}

/// Two tensors, broadcast as numpy does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    pub function: BinaryOp,
}

impl Operator for Binary {
    fn facts(&self) -> Facts {
        Facts::new(self.function.name(), Class::Pointwise, 2..=2)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, y) = (inputs[0], inputs[1]);
        same_dtype(x, y)?;
        self.function.check(x)?;
        Ok(TensorType { dtype: x.dtype, shape: broadcast(&x.shape, &y.shape)? })
    }

    fn arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let exps = if self.function == BinaryOp::Pow { elements(output)? } else { 0 };
        Ok(Work { exps, ..pointwise(output, 1)? })
    }
}
