//! What can go wrong, said so that a person can act: what, where, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a row or one of its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowError {
    /// The column, once it is known.
    pub field: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
}

impl RowError {
    /// An error of a row as a whole, or of a cell whose column is not known yet.
    pub(crate) fn new(problem: impl Into<String>) -> RowError {
        RowError { field: None, problem: problem.into(), hint: None }
    }

    /// The same error, saying which column it is about unless it said so already.
    pub(crate) fn in_field(mut self, field: &str) -> RowError {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    /// The same error with advice.
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

/// What can go wrong with files of records.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A row cannot be trusted.
    #[error("cannot read record: {}\n  at {}{}{}{}", row.problem, file.display(), Counted::at(counted, *number),
        OfField(row.field.as_deref()), Hint(row.hint.as_deref()))]
    Row {
        /// The file that holds it.
        file: PathBuf,
        /// What `number` counts.
        counted: Counted,
        /// The line or row, counted from 1; 0 for what concerns the whole file.
        number: u64,
        /// What is wrong with it.
        row: RowError,
    },
    /// A record about to be written breaks a rule.
    #[error("cannot write record: {0}")]
    Unfit(#[from] RowError),
    /// A file is not what its name or place says.
    #[error("cannot read `{}`: {problem}{}", file.display(), Hint(hint.as_deref()))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do, where that is known.
        hint: Option<String>,
    },
    /// A folder is not a dataset store.
    #[error("`{}` is not a dataset store: {problem}\nhint: name an existing store, or an empty or new folder to create one", folder.display())]
    NotAStore {
        /// The folder.
        folder: PathBuf,
        /// What is there instead.
        problem: String,
    },
    /// The store or file was written by a newer program.
    #[error("`{}` has schema version {found}, this program reads up to {known}\nhint: update the program; nothing was changed", path.display())]
    Newer {
        /// The store or file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// Another process works on the same thing.
    #[error("`{}` is being {doing} by another process\nhint: run this again when it has finished", path.display())]
    Busy {
        /// What the other process does.
        doing: &'static str,
        /// The store.
        path: PathBuf,
    },
    /// The disk, a quota or a file-size limit is full.
    #[error("no space left while {doing} `{}`: {source}\nhint: free space or raise the limit, then run again; finished records are kept", path.display())]
    Full {
        /// What was being done.
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system refused something else.
    #[error("failed while {doing} `{}`: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// What a row number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Lines of a text file.
    Line,
    /// Rows of a Parquet file.
    Row,
}

impl Counted {
    fn at(&self, number: u64) -> String {
        match (self, number) {
            (_, 0) => String::new(),
            (Counted::Line, number) => format!(", line {number}"),
            (Counted::Row, number) => format!(", row {number}"),
        }
    }
}

/// The result of everything that touches files.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the machine cannot do it now, or does not let this user, rather than that what was named or given cannot be what it
    /// should.
    pub fn is_of_machine(&self) -> bool {
        use std::io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
        match self {
            Error::Full { .. } | Error::Busy { .. } => true,
            Error::Io { source, .. } => {
                !matches!(source.kind(), InvalidFilename | IsADirectory | NotADirectory | NotFound)
            }
            Error::Row { .. }
            | Error::Unfit(_)
            | Error::Damaged { .. }
            | Error::NotAStore { .. }
            | Error::Newer { .. } => false,
        }
    }

    /// The error of a system call, told apart by whether space ran out.
    pub(crate) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Error::Full { doing, path, source },
            _ => Error::Io { doing, path, source },
        }
    }

    /// A file that cannot be what it should be.
    pub(crate) fn damaged(file: &Path, problem: impl Into<String>) -> Error {
        Error::Damaged { file: file.to_owned(), problem: problem.into(), hint: None }
    }
}

/// Adds to a system error what was done and to which file.
pub(crate) trait IoContext<T> {
    /// Turns a system error into ours.
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
