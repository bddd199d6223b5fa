//! Errors of reading files and of queries, with messages that state the remedy.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Samples(#[from] samples::Error),
    #[error(transparent)]
    Learn(#[from] learn::Error),
    #[error("cannot use the predictor `{}`: {problem}", path.display())]
    Bundle { path: PathBuf, problem: String },
    #[error("{0}")]
    Data(String),
    #[error("{0}")]
    Query(String),
    /// A valid query outside of the training data.
    #[error("{0}")]
    Outside(String),
    #[error("{0}")]
    Probe(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<datasets::Error> for Error {
    fn from(error: datasets::Error) -> Error {
        Error::Samples(error.into())
    }
}

impl From<serving::Error> for Error {
    fn from(error: serving::Error) -> Error {
        match error {
            serving::Error::Data(problem) => Error::Data(problem),
            other => Error::Query(other.to_string()),
        }
    }
}

impl Error {
    pub fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::Samples(samples::Error::io_error(doing, path, source))
    }

    pub(crate) fn table_error(path: &Path, problem: impl Into<String>) -> Error {
        Error::Samples(samples::Error::table_error(path, problem))
    }

    pub fn unknown_name<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
        Error::Query(format!("unknown {what} `{name}`; {}", models::names::name_hint(name, known)))
    }

    pub(crate) fn bundle_error(path: &Path, problem: impl Into<String>) -> Error {
        Error::Bundle { path: path.to_owned(), problem: problem.into() }
    }

    /// Returns whether the error is caused by the installation, not by the input.
    pub fn is_of_environment(&self) -> bool {
        matches!(self, Error::Learn(learn::Error::XgBoost(_)) | Error::Probe(_))
    }
}
