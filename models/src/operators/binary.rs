//! Elementwise functions of two operands.

use super::functions::functions;
use super::prelude::*;
use crate::shapes::{boolean, integer};

functions! {
    /// Elementwise functions of two operands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum BinaryOp {
        Add => "add", numeric, 1, 0;
        Sub => "sub", numeric, 1, 0;
        Mul => "mul", numeric, 1, 0;
        Div => "div", numeric, 1, 0;
        Max => "max", numeric, 1, 0;
        Min => "min", numeric, 1, 0;
        Pow => "pow", floating, 1, 1;
        /// The remainder with the sign of the divisor.
        Mod => "mod", numeric, 1, 0;
        /// The remainder with the sign of the dividend.
        Fmod => "fmod", numeric, 1, 0;
        /// The quotient rounded down.
        FloorDiv => "floor_div", numeric, 1, 0;
        BitAnd => "bit_and", integer, 1, 0;
        BitOr => "bit_or", integer, 1, 0;
        BitXor => "bit_xor", integer, 1, 0;
        ShiftLeft => "shift_left", integer, 1, 0;
        /// Arithmetic shift for signed integers: the sign bit is copied.
        ShiftRight => "shift_right", integer, 1, 0;
        And => "and", boolean, 1, 0;
        Or => "or", boolean, 1, 0;
        Xor => "xor", boolean, 1, 0;
    }
}

/// Applies a function to two tensors, broadcast as in NumPy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    pub function: BinaryOp,
}

impl Operator for Binary {
    fn facts(&self) -> Facts {
        let repeats = matches!(self.function, BinaryOp::Pow | BinaryOp::Mod | BinaryOp::Fmod | BinaryOp::FloorDiv);
        Facts::new(self.function.name(), Class::Pointwise, 2..=2).with_repeats(usize::from(repeats))
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, y) = (inputs[0], inputs[1]);
        same_dtype(x, y)?;
        self.function.check(x)?;
        Ok(TensorType { dtype: x.dtype, shape: broadcast_shapes(&x.shape, &y.shape)? })
    }

    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        self.function.work(output)
    }
}
