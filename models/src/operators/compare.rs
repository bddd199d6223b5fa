//! Comparisons.

use super::functions::functions;
use super::prelude::*;
use crate::shapes::anything;

functions! {
    /// Comparisons of two elements.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CompareOp {
        Equal => "equal", anything, 1, 0;
        NotEqual => "not_equal", anything, 1, 0;
        Less => "less", numeric, 1, 0;
        LessOrEqual => "less_or_equal", numeric, 1, 0;
        Greater => "greater", numeric, 1, 0;
        GreaterOrEqual => "greater_or_equal", numeric, 1, 0;
    }
}

/// Compares two broadcast tensors; the result is `bool`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    pub function: CompareOp,
}

impl Operator for Compare {
    fn facts(&self) -> Facts {
        Facts::new(self.function.name(), Class::Pointwise, 2..=2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, y) = (inputs[0], inputs[1]);
        same_dtype(x, y)?;
        self.function.check(x)?;
        Ok(TensorType { dtype: DType::Bool, shape: broadcast_shapes(&x.shape, &y.shape)? })
    }

    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        self.function.work(output)
    }
}
