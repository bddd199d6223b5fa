//! What can go wrong between a file and samples, said so that a person can act.

use std::path::{Path, PathBuf};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of records is refused by its reader.
    #[error(transparent)]
    Records(#[from] datasets::Error),
    /// A table of others, its mapping or a device file is wrong.
    #[error("cannot read `{}`: {problem}", path.display())]
    Table {
        path: PathBuf,
        /// What is wrong, with the line or column where that is known, and what to do.
        problem: String,
    },
    /// The data does not allow what was asked.
    #[error("{0}")]
    Data(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failed system call on a file.
    pub fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::Io { doing, path: path.to_owned(), source }
    }

    /// A table that cannot be used.
    pub fn table(path: &Path, problem: impl Into<String>) -> Error {
        Error::Table { path: path.to_owned(), problem: problem.into() }
    }
}
