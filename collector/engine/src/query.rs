//! SQL queries over the records of a store, executed by SQLite in memory.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{note_damage, open_existing, store_failure};
use capture::trace::bounds::bound_memory;
use capture::trace::{Answer, Error, QueryBounds, ask_in_time};
use datasets::{COLUMNS, Cell, Choose, Column, Kind, Record};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::path::Path;

/// Result of a query.
pub struct QueryReport {
    /// Columns and rows of the result.
    pub answer: Answer,
    /// Whether damaged records were skipped.
    pub has_damage: bool,
}

/// Runs one SQL statement over the table `records` within limits of time and memory.
pub fn run_query(
    store: &Path,
    sql: &str,
    choose: Choose,
    bounds: QueryBounds,
    observer: &dyn Observer,
) -> Result<QueryReport> {
    let records = open_existing(store)?.select_records(choose).map_err(store_failure)?;
    note_damage(records.damage(), observer);
    let has_damage = !records.damage().is_empty();
    let database = Connection::open_in_memory().map_err(Failure::environment)?;
    bound_memory(&database, &bounds).map_err(Failure::environment)?;
    fill_database(&database, &named_columns(sql), records)?;
    let answer = ask_in_time(database, sql.to_owned(), bounds).map_err(|error| {
        let tables =
            "the table is `records`; `opcollect dataset schema` lists its columns, and sqlite.org the functions";
        query_failure(error, tables, "name fewer columns, or give more with `--memory-mib`")
    })?;
    Ok(QueryReport { answer, has_damage })
}

/// Returns the rows of a result as JSON objects. Fails if two columns have the same name.
pub fn json_rows(answer: &Answer) -> Result<Vec<serde_json::Map<String, serde_json::Value>>> {
    answer.json_objects().map_err(|error| query_failure(error, "", ""))
}

/// Fails if two columns of a result have the same name.
pub fn check_names(answer: &Answer) -> Result<()> {
    answer.check_names().map_err(|error| query_failure(error, "", ""))
}

/// Converts the error of a query. `tables` is the hint for wrong statements, `memory` the hint for exceeded memory.
pub(crate) fn query_failure(error: Error, tables: &'static str, memory: &'static str) -> Failure {
    let hint = match error {
        Error::Query(_) | Error::Refused { .. } => tables,
        Error::Late { .. } => "narrow it with `where` or `limit`, or give more time with `--seconds`",
        Error::Memory { .. } => memory,
        Error::EqualNames { .. } => "give one of them another name with `as`",
        Error::Long { .. } => "narrow it with `where` or `limit`, or aggregate with `group by`",
        _ => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}

/// Returns the columns that a statement names; all columns if the statement contains `*` outside `count(*)`.
fn named_columns(sql: &str) -> Vec<&'static Column> {
    let compact: String = sql.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let wants_all = compact.replace("count(*)", "").contains('*');
    let lower = sql.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    COLUMNS.iter().filter(|column| wants_all || words.contains(&column.name)).collect()
}

fn fill_database(
    database: &Connection,
    columns: &[&'static Column],
    records: impl Iterator<Item = datasets::Result<Record>>,
) -> Result<()> {
    // A SQLite table needs at least one column.
    let kind = |column: &Column| match column.kind {
        Kind::Bool | Kind::Integer | Kind::Time => "INTEGER",
        Kind::Float => "REAL",
        Kind::Text | Kind::Label | Kind::Json | Kind::List | Kind::Key => "TEXT",
    };
    let named: Vec<String> = columns.iter().map(|column| format!("\"{}\" {}", column.name, kind(column))).collect();
    let definition = if named.is_empty() { "\"row\" INTEGER".to_owned() } else { named.join(", ") };
    let marks = vec!["?"; columns.len().max(1)].join(", ");
    let of_sqlite = |error: rusqlite::Error| {
        Failure::usage(format!("the records do not fit into memory: {error}"))
            .with_hint("name fewer columns, or give more with `--memory-mib`")
    };
    database.execute_batch(&format!("CREATE TABLE records ({definition}); BEGIN")).map_err(of_sqlite)?;
    {
        let mut insert = database.prepare(&format!("INSERT INTO records VALUES ({marks})")).map_err(of_sqlite)?;
        for record in records {
            let record = record.map_err(store_failure)?;
            let mut values: Vec<Value> = columns.iter().map(|column| to_value(record.cell(column.id))).collect();
            values.resize(columns.len().max(1), Value::Null);
            insert.execute(params_from_iter(values)).map_err(of_sqlite)?;
        }
    }
    database.execute_batch("COMMIT; PRAGMA query_only = 1").map_err(of_sqlite)
}

fn to_value(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Bool(claim) => Value::Integer(i64::from(claim)),
        Cell::Integer(number) => Value::Integer(number),
        Cell::Float(number) => Value::Real(number),
        Cell::Text(text) => Value::Text(text.to_owned()),
        Cell::List(values) => Value::Text(serde_json::to_string(values).unwrap_or_default()),
        Cell::Key(key) => Value::Text(key.to_hex()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_columns_are_read() {
        let names = |sql: &str| named_columns(sql).iter().map(|column| column.name).collect::<Vec<_>>();
        assert_eq!(names("select count( * ) from records"), Vec::<&str>::new());
        assert_eq!(names("SELECT Op_Kind, min(median_ns) FROM records GROUP BY 1"), ["op_kind", "median_ns"]);
        assert_eq!(names("select r.* from records r").len(), COLUMNS.len());
    }
}
