//! Errors of training and prediction.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Data(String),
    #[error("{0}")]
    Query(String),
    #[error("{0}")]
    XgBoost(String),
}

pub type Result<T> = std::result::Result<T, Error>;
