//! SQL queries on Perfetto traces: slices, arguments, tracks and counters.
//!
//! Tables and columns are a compatible subset of Perfetto's trace processor, so that existing queries work without it.
//! Traces of other programs are supported, but only their track events are loaded.

pub mod bounds;
pub(crate) mod message;
pub(crate) mod packets;
mod tables;

pub use bounds::QueryBounds;
use report::{Table, figures, words};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Maximum size of a file, the same as that of a protobuf message.
const MAX_BYTES: u64 = 2 << 30;
/// Time for a query to notice that its time limit has passed, since a single step may be long.
const GRACE: Duration = Duration::from_secs(2);

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the trace `{}`: {source}", path.display())]
    Read {
        path: PathBuf,
        /// Reason given by the operating system.
        source: std::io::Error,
    },
    /// The file is not a trace.
    #[error("`{}` is no Perfetto trace: {source}", path.display())]
    Decode { path: PathBuf, source: prost::DecodeError },
    /// The file exceeds the size limit.
    #[error("`{}` has more than {} MiB; questions are answered about smaller traces", path.display(), MAX_BYTES >> 20)]
    Large { path: PathBuf },
    /// The decoded trace would be disproportionately large.
    #[error("the trace is not read: {0}")]
    TooLarge(String),
    /// The query is invalid, or the tables could not be filled.
    #[error("{0}")]
    Query(#[from] rusqlite::Error),
    /// The text is not exactly one statement.
    #[error("a question is one statement, such as \"select count(*) from slice\"")]
    Statements,
    /// The query does more than read the trace.
    #[error("a question can only read: {what}")]
    Refused {
        /// Rejected action.
        what: String,
    },
    /// The query exceeded its time limit.
    #[error("no answer after {seconds} s")]
    Late {
        /// Time limit in seconds.
        seconds: f64,
    },
    /// Tables or result exceed the memory limit.
    #[error("tables and answer need more than {mib} MiB of memory")]
    Memory {
        /// Memory limit in MiB.
        mib: u32,
    },
    /// The result exceeds its limits.
    #[error("the answer has more than {rows} rows or {} MiB", bytes >> 20)]
    Long { rows: usize, bytes: usize },
}

/// A value of a result.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    Null,
    Integer(i64),
    /// Floating-point number.
    Real(f64),
    Text(String),
}

/// Result of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Answer {
    /// Returns the rows as JSON objects.
    pub fn objects(&self) -> Vec<serde_json::Map<String, serde_json::Value>> {
        let object = |row: &Vec<Value>| {
            self.columns.iter().cloned().zip(row.iter().map(|value| serde_json::json!(value))).collect()
        };
        self.rows.iter().map(object).collect()
    }

    /// Returns the rows as a table. Columns without texts are right-aligned.
    pub fn table(&self) -> Table {
        let is_number = |at: usize| self.rows.iter().all(|row| !matches!(row[at], Value::Text(_)));
        let column = |(at, name): (usize, &String)| if is_number(at) { figures(name) } else { words(name) };
        let mut table = Table::new(self.columns.iter().enumerate().map(column));
        for row in &self.rows {
            table.row(row.iter().map(ToString::to_string));
        }
        table
    }
}

/// Runs a query on a trace file.
pub fn query(path: &Path, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let decode = |source| Error::Decode { path: path.to_owned(), source };
    let database = load(&read(path)?, bounds).map_err(|error| match error {
        tables::Error::Decode(source) => decode(source),
        tables::Error::Fill(source) => bounds::explain(source, &Default::default(), bounds),
        large @ tables::Error::TooLarge { .. } => Error::TooLarge(large.to_string()),
    })?;
    ask_in_time(database, sql.to_owned(), *bounds)
}

/// Loads the bytes of a trace into tables.
pub fn load(bytes: &[u8], bounds: &QueryBounds) -> Result<Connection, tables::Error> {
    let database = Connection::open_in_memory()?;
    bounds::bound_memory(&database, bounds)?;
    tables::fill(&database, bytes)?;
    database.pragma_update(None, "query_only", true)?;
    Ok(database)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::Large { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Runs a query on filled tables with a hard time limit. SQLite checks the time only between steps, and a single step,
/// such as a substring search in a long text, may take hours. The query therefore runs on another thread, which is
/// abandoned when the limit passes.
pub fn ask_in_time(mut database: Connection, sql: String, bounds: QueryBounds) -> Result<Answer, Error> {
    let (sender, receiver) = sync_channel(1);
    let asking = std::thread::spawn(move || {
        // The receiver is gone if the time limit has passed.
        let _ = sender.send(ask(&mut database, &sql, &bounds));
    });
    match receiver.recv_timeout(bounds.time.saturating_add(GRACE)) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(Error::Late { seconds: bounds.time.as_secs_f64() }),
        Err(RecvTimeoutError::Disconnected) => match asking.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("an answer is sent before the thread ends"),
        },
    }
}

/// Runs a query on filled tables.
pub fn ask(database: &mut Connection, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let refused = bounds::confine(database, tables::names(database)?, bounds)?;
    answer(database, sql, bounds).map_err(|error| match error {
        Error::Query(error) => bounds::explain(error, &refused, bounds),
        error => error,
    })
}

fn answer(database: &Connection, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let mut statements = Batch::new(database, sql);
    let mut statement = statements.next()?.ok_or(Error::Statements)?;
    if statements.next()?.is_some() {
        return Err(Error::Statements);
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = Answer { columns, rows: Vec::new() };
    let (mut rows, mut bytes) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        let cells = (0..answer.columns.len()).map(|index| Ok(value(row.get_ref(index)?)));
        let cells: Vec<Value> = cells.collect::<Result<_, rusqlite::Error>>()?;
        bytes += cells.iter().map(Value::bytes).sum::<usize>();
        if answer.rows.len() == bounds.rows || bytes > bounds.bytes {
            return Err(Error::Long { rows: bounds.rows, bytes: bounds.bytes });
        }
        answer.rows.push(cells);
    }
    Ok(answer)
}

impl Value {
    fn bytes(&self) -> usize {
        size_of::<Value>() + if let Value::Text(text) = self { text.len() } else { 0 }
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) | ValueRef::Blob(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Null => f.write_str("[NULL]"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Real(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}
