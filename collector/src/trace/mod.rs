//! Perfetto traces, read back: any question that SQL can ask about slices, their arguments, tracks and counters.
//!
//! The tables and columns are those of Perfetto's own trace processor as far as they hold what our traces hold, so that
//! queries written for it run here without it. Traces of other programs are read the same way; what is not a track
//! event is left out.

mod message;
mod tables;

use message::Trace;
use prost::Message;
use rusqlite::types::ValueRef;
use std::path::{Path, PathBuf};

/// Why a trace cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the trace `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no trace.
    #[error("`{}` is no Perfetto trace: {source}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Why.
        source: prost::DecodeError,
    },
    /// The query is wrong, or the tables could not be filled.
    #[error("{0}")]
    Query(#[from] rusqlite::Error),
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// NULL.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
}

/// Asks a trace in a file.
pub fn query(path: &Path, sql: &str) -> Result<Answer, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let trace = Trace::decode(bytes.as_slice()).map_err(|source| Error::Decode { path: path.to_owned(), source })?;
    let database = tables::load(&trace)?;
    database.pragma_update(None, "query_only", true)?;
    let mut statement = database.prepare(sql)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut answer = Answer { columns, rows: Vec::new() };
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let cells = (0..answer.columns.len()).map(|index| Ok(value(row.get_ref(index)?)));
        answer.rows.push(cells.collect::<Result<_, rusqlite::Error>>()?);
    }
    Ok(answer)
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
