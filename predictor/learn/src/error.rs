//! Errors of training and prediction.

/// An error of training or prediction.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The training data is unsuitable.
    #[error("{0}")]
    Data(String),
    /// The query cannot be predicted.
    #[error("{0}")]
    Query(String),
    /// The XGBoost library is missing or returned an error.
    #[error("{0}")]
    XgBoost(String),
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
