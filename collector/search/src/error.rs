//! Errors of a search.

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("the tuner cannot learn")]
    Learn(#[from] learn::Error),
    #[error("no schedules of TVM's own space can be bred: {0}")]
    Evolution(String),
}

pub type Result<T> = std::result::Result<T, Error>;
