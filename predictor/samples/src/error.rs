//! Errors in the conversion of files to samples, with messages that state the remedy.

use models::names;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Records(#[from] datasets::Error),
    #[error("cannot read `{}`: {problem}", path.display())]
    Table {
        path: PathBuf,
        /// The problem with its line or column, if known, and the remedy.
        problem: String,
    },
    #[error("`{}` is not a mapping of {content}: {problem}", path.display())]
    Mapping {
        path: PathBuf,
        /// What a mapping of this kind describes, such as `thread counts`.
        content: &'static str,
        /// Problem of the parser, with its line.
        problem: String,
    },
    #[error("{0}")]
    Data(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io_error(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::Io { doing, path: path.to_owned(), source }
    }

    pub fn table_error(path: &Path, problem: impl Into<String>) -> Error {
        Error::Table { path: path.to_owned(), problem: problem.into() }
    }

    pub fn mapping_error(path: &Path, content: &'static str, problem: &toml::de::Error) -> Error {
        let problem = names::with_hint(problem.to_string().trim_end());
        Error::Mapping { path: path.to_owned(), content, problem }
    }
}
