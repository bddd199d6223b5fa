//! Errors of record files and stores, with the location and a remedy.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of a row or of one of its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// Column, if known.
    pub field: Option<String>,
    /// Description of the problem.
    pub problem: String,
    /// Remedy, if known.
    pub hint: Option<String>,
}

impl RowError {
    /// Returns an error of a row, or of a cell whose column is not known yet.
    pub(crate) fn new(problem: impl Into<String>) -> RowError {
        RowError { field: None, problem: problem.into(), hint: None }
    }

    pub(crate) fn in_field(mut self, field: &str) -> RowError {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> RowError {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        if let Some(field) = &self.field {
            write!(f, "\n  at field `{field}`")?;
        }
        write_hint(f, self.hint.as_deref())
    }
}

impl std::error::Error for RowError {}

/// An error of record files or stores.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A row is invalid.
    #[error("cannot read record: {}\n  at {}{}{}{}", row.problem, file.display(), RowUnit::describe_position(counted, *number),
        OfField(row.field.as_deref()), Hint(row.hint.as_deref()))]
    Row {
        /// File of the row.
        file: PathBuf,
        /// Unit of `number`.
        counted: RowUnit,
        /// Line or row, counted from 1; 0 for the whole file.
        number: u64,
        /// Problem of the row.
        row: RowError,
    },
    /// A record to be written violates a rule.
    #[error("cannot write record: {0}")]
    Unfit(#[from] RowError),
    /// A file does not contain what its name or location implies.
    #[error("cannot read `{}`: {problem}{}", file.display(), Hint(hint.as_deref()))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Problem of the file.
        problem: String,
        /// Remedy, if known.
        hint: Option<String>,
    },
    /// A folder is not a dataset store.
    #[error("`{}` is not a dataset store: {problem}\nhint: name an existing store, or an empty or new folder to create one", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
        /// Description of what the folder contains.
        problem: String,
    },
    /// The folder of a store that is being written to has disappeared.
    #[error("the store `{}` was moved or deleted during the run\nhint: records of this run may be in a new store at the same place; `dataset merge` adds them to the moved store", folder.display())]
    Gone {
        /// The store.
        folder: PathBuf,
    },
    /// An output file would lie in a store.
    #[error("cannot write `{}`: it lies in the store `{}`\nhint: name a file outside of the store", path.display(), folder.display())]
    InsideStore {
        /// The output file.
        path: PathBuf,
        /// The store.
        folder: PathBuf,
    },
    /// A newer program wrote the store or file.
    #[error("`{}` has schema version {found}, but this program supports only versions up to {known}\nhint: update the program; nothing was changed", path.display())]
    Newer {
        /// The store or file.
        path: PathBuf,
        /// Version found.
        found: i64,
        /// Newest supported version.
        known: i64,
    },
    /// Another process holds the lock.
    #[error("`{}` is being {doing} by another process\nhint: run this again when it has finished", path.display())]
    Busy {
        /// Operation of the other process.
        doing: &'static str,
        /// The store.
        path: PathBuf,
    },
    /// The disk, a quota or a file-size limit is exhausted.
    #[error("no space left while {doing} `{}`: {source}\nhint: free space or raise the limit, then run again; finished records are kept", path.display())]
    Full {
        /// Operation that failed.
        doing: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Another error of the system.
    #[error("failed while {doing} `{}`: {source}", path.display())]
    Io {
        /// Operation that failed.
        doing: &'static str,
        /// Path of the operation.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Why an output file cannot be written; the content of an error of the standard library.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`: {source}", path.display())]
pub(crate) struct UnwrittenFile {
    pub path: PathBuf,
    pub source: std::io::Error,
}

/// Unit of a position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowUnit {
    /// Lines of a text file.
    Line,
    /// Rows of a Parquet file.
    Row,
}

impl RowUnit {
    fn describe_position(&self, number: u64) -> String {
        match (self, number) {
            (_, 0) => String::new(),
            (RowUnit::Line, number) => format!(", line {number}"),
            (RowUnit::Row, number) => format!(", row {number}"),
        }
    }
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether the error is caused by the state or permissions of the machine, not by an invalid name or file.
    pub fn is_of_machine(&self) -> bool {
        use std::io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
        match self {
            Error::Full { .. } | Error::Busy { .. } | Error::Gone { .. } => true,
            Error::Io { source, .. } => {
                !matches!(source.kind(), InvalidFilename | IsADirectory | NotADirectory | NotFound)
            }
            Error::Row { .. }
            | Error::Unfit(_)
            | Error::Damaged { .. }
            | Error::NotAStore { .. }
            | Error::InsideStore { .. }
            | Error::Newer { .. } => false,
        }
    }

    /// Wraps the error of an output that could not be written.
    pub fn unwritten(path: &Path, source: std::io::Error) -> Error {
        Error::io("writing", path, source)
    }

    /// Wraps a system error; exhausted space has a separate variant.
    pub(crate) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.to_owned();
        // The error of an output names its file, too.
        let source = source.downcast::<UnwrittenFile>().map_or_else(|source| source, |unwritten| unwritten.source);
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Error::Full { doing, path, source },
            _ => Error::Io { doing, path, source },
        }
    }

    pub(crate) fn damaged(file: &Path, problem: impl Into<String>) -> Error {
        Error::Damaged { file: file.to_owned(), problem: problem.into(), hint: None }
    }
}

pub(crate) trait IoContext<T> {
    fn context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::io(doing, path, source))
    }
}

struct Hint<'a>(Option<&'a str>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hint(f, self.0)
    }
}

struct OfField<'a>(Option<&'a str>);

impl fmt::Display for OfField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |field| write!(f, ", field `{field}`"))
    }
}

fn write_hint(f: &mut fmt::Formatter<'_>, hint: Option<&str>) -> fmt::Result {
    hint.map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
}
