//! Errors of training and prediction.

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

pub type Result<T> = std::result::Result<T, Error>;
