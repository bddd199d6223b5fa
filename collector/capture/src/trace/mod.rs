//! SQL queries on Perfetto traces. Tables and columns are a compatible subset of Perfetto's trace processor, so that
//! existing queries work without it. Only track events are loaded.

pub mod bounds;
pub(crate) mod message;
pub(crate) mod packets;
mod tables;

use crate::compressed::open_uncompressed;
pub use bounds::QueryBounds;
use report::{Table, number_column, text_column};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection};
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Maximum uncompressed size of a file, the same as that of a protobuf message.
const MAX_BYTES: u64 = 2 << 30;
/// Additional time for a query to stop by itself after its time limit, since a single step may take long.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the trace `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not a Perfetto trace: {source}", path.display())]
    Decode { path: PathBuf, source: prost::DecodeError },
    #[error("`{}` exceeds the limit of {} MiB for queries", path.display(), MAX_BYTES >> 20)]
    Large { path: PathBuf },
    #[error("cannot load the trace: {0}")]
    TooLarge(String),
    #[error("{0}")]
    Query(#[from] rusqlite::Error),
    #[error("the query must be one SQL statement; run several queries one after the other")]
    Statements,
    #[error("the query is empty")]
    NoStatement,
    #[error("query rejected: {what}")]
    Refused { what: String },
    #[error("the query did not finish within {seconds} s")]
    Late { seconds: f64 },
    #[error("tables and result of the query need more than {mib} MiB of memory")]
    Memory { mib: u32 },
    #[error("the result of the query has more than {rows} rows or {} MiB", bytes >> 20)]
    Long { rows: usize, bytes: usize },
    #[error("two columns of the result are named `{name}`, but names must differ")]
    EqualNames { name: String },
}

/// A cell of a result. A blob is the text of its bytes in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    Null,
    Integer(i64),
    /// In JSON, which has no infinities, these are the texts `inf` and `-inf`, as in tables.
    #[serde(serialize_with = "serialize_real")]
    Real(f64),
    Text(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

impl Answer {
    /// Fails if two columns have the same name, of which JSON objects and Python dictionaries would keep one.
    pub fn check_names(&self) -> Result<(), Error> {
        let mut names = HashSet::new();
        match self.columns.iter().find(|name| !names.insert(*name)) {
            Some(name) => Err(Error::EqualNames { name: name.clone() }),
            None => Ok(()),
        }
    }

    /// Converts each row to a JSON object. Columns must have different names.
    pub fn json_objects(&self) -> Result<Vec<serde_json::Map<String, serde_json::Value>>, Error> {
        self.check_names()?;
        let object = |row: &Vec<Value>| {
            self.columns.iter().cloned().zip(row.iter().map(|value| serde_json::json!(value))).collect()
        };
        Ok(self.rows.iter().map(object).collect())
    }

    /// Converts the result to a table, in which columns without texts are right-aligned.
    pub fn to_table(&self) -> Table {
        let is_number = |at: usize| self.rows.iter().all(|row| !matches!(row[at], Value::Text(_)));
        let column = |(at, name): (usize, &String)| if is_number(at) { number_column(name) } else { text_column(name) };
        let mut table = Table::new(self.columns.iter().enumerate().map(column));
        for row in &self.rows {
            table.add_row(row.iter().map(ToString::to_string));
        }
        table
    }
}

pub fn query_trace(path: &Path, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let decode = |source| Error::Decode { path: path.to_owned(), source };
    let database = load_tables(&read_limited(path)?, bounds).map_err(|error| match error {
        tables::Error::Decode(source) => decode(source),
        tables::Error::Fill(source) => bounds::explain_error(source, &Default::default(), bounds),
        large @ tables::Error::TooLarge { .. } => Error::TooLarge(large.to_string()),
    })?;
    ask_in_time(database, sql.to_owned(), *bounds)
}

pub fn load_tables(bytes: &[u8], bounds: &QueryBounds) -> Result<Connection, tables::Error> {
    let database = Connection::open_in_memory()?;
    bounds::bound_memory(&database, bounds)?;
    tables::fill_tables(&database, bytes)?;
    database.pragma_update(None, "query_only", true)?;
    Ok(database)
}

fn read_limited(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let content = open_uncompressed(path).map_err(failed)?;
    content.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::Large { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Runs a query on a thread that is abandoned at the time limit, since SQLite checks the time only between steps.
pub fn ask_in_time(mut database: Connection, sql: String, bounds: QueryBounds) -> Result<Answer, Error> {
    let (sender, receiver) = sync_channel(1);
    let asking = std::thread::spawn(move || {
        // The receiver is gone if the time limit has passed.
        let _ = sender.send(run_query(&mut database, &sql, &bounds));
    });
    match receiver.recv_timeout(bounds.time.saturating_add(GRACE)) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(Error::Late { seconds: bounds.time.as_secs_f64() }),
        Err(RecvTimeoutError::Disconnected) => match asking.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the result is sent before the thread ends"),
        },
    }
}

pub fn run_query(database: &mut Connection, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let refused = bounds::confine_queries(database, tables::table_names(database)?, bounds)?;
    execute_statement(database, sql, bounds).map_err(|error| match error {
        Error::Query(error) => bounds::explain_error(error, &refused, bounds),
        error => error,
    })
}

fn execute_statement(database: &Connection, sql: &str, bounds: &QueryBounds) -> Result<Answer, Error> {
    let mut statements = Batch::new(database, sql);
    let mut statement = statements.next()?.ok_or(Error::NoStatement)?;
    if statements.next()?.is_some() {
        return Err(Error::Statements);
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = Answer { columns, rows: Vec::new() };
    let (mut rows, mut bytes) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        let cells = (0..answer.columns.len()).map(|index| Ok(convert_value(row.get_ref(index)?)));
        let cells: Vec<Value> = cells.collect::<Result<_, rusqlite::Error>>()?;
        bytes += cells.iter().map(Value::held_bytes).sum::<usize>();
        let most = bounds.bytes.min((bounds.memory_mib as usize) << 20);
        if answer.rows.len() == bounds.rows || bytes > most {
            return Err(Error::Long { rows: bounds.rows, bytes: most });
        }
        answer.rows.push(cells);
    }
    Ok(answer)
}

fn serialize_real<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
}

impl Value {
    fn held_bytes(&self) -> usize {
        size_of::<Value>() + if let Value::Text(text) = self { text.len() } else { 0 }
    }
}

fn convert_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
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
