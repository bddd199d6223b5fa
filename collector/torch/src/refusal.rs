//! The reasons why PyTorch gives no result.

use tch::TchError;

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Unsupported(String),
    #[error("{0}")]
    Failed(String),
}

pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    pub fn unsupported_operator(why: impl Into<String>) -> Refusal {
        Refusal::Unsupported(why.into())
    }
}

impl From<TchError> for Refusal {
    fn from(error: TchError) -> Refusal {
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default().trim().to_owned();
        // PyTorch's messages about kernels without support for an element type.
        if why.contains("not implemented for") || why.contains("not supported") || why.contains("does not support") {
            Refusal::Unsupported(why)
        } else {
            Refusal::Failed(why)
        }
    }
}
