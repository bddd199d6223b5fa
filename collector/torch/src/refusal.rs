//! Why PyTorch gives no result.

use tch::TchError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// PyTorch has no form of it.
    #[error("{0}")]
    Unsupported(String),
    /// PyTorch refused.
    #[error("{0}")]
    Failed(String),
}

/// A result, or why there is none.
pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    /// Something PyTorch has no form of.
    pub fn unsupported(why: impl Into<String>) -> Refusal {
        Refusal::Unsupported(why.into())
    }
}

impl From<TchError> for Refusal {
    fn from(error: TchError) -> Refusal {
        let text = error.to_string();
        let why = text.lines().next().unwrap_or_default().trim().to_owned();
        // What a kernel says that was not written for an element type.
        if why.contains("not implemented for") || why.contains("not supported") || why.contains("does not support") {
            Refusal::Unsupported(why)
        } else {
            Refusal::Failed(why)
        }
    }
}
