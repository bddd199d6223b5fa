//! What can go wrong between a file and an answer, said so that a person can act.

use std::path::{Path, PathBuf};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written, or makes no samples.
    #[error(transparent)]
    Samples(#[from] samples::Error),
    /// Nothing can be learned, or what was learned does not answer.
    #[error(transparent)]
    Learn(#[from] learn::Error),
    /// A bundle is damaged, foreign or newer.
    #[error("cannot use the predictor `{}`: {problem}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The data does not allow what was asked.
    #[error("{0}")]
    Data(String),
    /// The question is outside of what can be answered.
    #[error("{0}")]
    Query(String),
    /// A measurement that was asked for failed.
    #[error("{0}")]
    Probe(String),
}

/// A result of this crate.
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
    /// A failed system call on a file.
    pub fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::Samples(samples::Error::io(doing, path, source))
    }

    /// A table that cannot be used.
    pub(crate) fn table(path: &Path, problem: impl Into<String>) -> Error {
        Error::Samples(samples::Error::table(path, problem))
    }

    /// A word of a question that is none of those we know.
    pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
        Error::Query(format!("unknown {what} `{name}`; {}", models::names::hint(name, known)))
    }

    /// A bundle that cannot be used.
    pub(crate) fn bundle(path: &Path, problem: impl Into<String>) -> Error {
        Error::Bundle { path: path.to_owned(), problem: problem.into() }
    }

    /// Whether the installation, not the input, is at fault.
    pub fn is_of_environment(&self) -> bool {
        matches!(self, Error::Learn(learn::Error::XgBoost(_)) | Error::Probe(_))
    }
}
