//! What can go wrong between samples and an answer, said so that a person can act.

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data does not allow what was asked.
    #[error("{0}")]
    Data(String),
    /// The question is outside of what can be answered.
    #[error("{0}")]
    Query(String),
    /// XGBoost's library is missing or refused a call.
    #[error("{0}")]
    XgBoost(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
