//! Errors of a search.

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("cannot train the tuner's cost model")]
    Learn(#[from] learn::Error),
    #[error("TVM's evolutionary search failed: {0}")]
    Evolution(String),
}

pub type Result<T> = std::result::Result<T, Error>;
