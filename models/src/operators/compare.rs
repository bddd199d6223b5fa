//! Comparisons.

use super::prelude::*;

/// Comparisons of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareOp {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
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

/// Two tensors, broadcast; the answer is `bool`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    pub function: CompareOp,
}

impl Operator for Compare {
    fn facts(&self) -> Facts {
        Facts::new(self.function.name(), Class::Pointwise, 2..=2).with_flops(1)
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, y) = (inputs[0], inputs[1]);
        same_dtype(x, y)?;
        match self.function {
            CompareOp::Equal | CompareOp::NotEqual => {}
            CompareOp::Less | CompareOp::LessOrEqual | CompareOp::Greater | CompareOp::GreaterOrEqual => {
                numeric(x)?;
            }
        }
        Ok(TensorType { dtype: DType::Bool, shape: broadcast(&x.shape, &y.shape)? })
    }
}
