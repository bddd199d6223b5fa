//! `dataset query`: a question in SQL over records, answered by SQLite in memory.

use super::{Result, paper, print, print_json, tell_damage};
use capture::trace::bounds::bound_memory;
use capture::trace::{Bounds, Error, ask_in_time};
use datasets::{COLUMNS, Cell, Choose, Column, Kind, Record};
use engine::failure::Failure;
use engine::stores::{failed, open};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use std::path::Path;
use std::time::Duration;

/// Answers one question.
pub fn run(store: &Path, sql: &str, choose: Choose, (seconds, memory_mib): (f64, u32), as_json: bool) -> Result<u8> {
    let bounds = Bounds { time: Duration::from_secs_f64(seconds), memory_mib, ..Bounds::default() };
    let records = open(store)?.records(choose).map_err(failed)?;
    let code = tell_damage(records.damage());
    let database = Connection::open_in_memory().map_err(Failure::environment)?;
    bound_memory(&database, &bounds).map_err(Failure::environment)?;
    fill(&database, &asked(sql), records)?;
    let answer = ask_in_time(database, sql.to_owned(), bounds).map_err(told)?;
    if as_json {
        print_json(&answer.objects())?
    } else {
        print(&answer.table().on(&paper()))?
    }
    Ok(code)
}

fn told(error: Error) -> Failure {
    let hint = match error {
        Error::Query(_) | Error::Refused { .. } => {
            "the table is `records`; `opcollect dataset schema` lists its columns, and sqlite.org the functions"
        }
        Error::Late { .. } => "narrow it with `where` or `limit`, or give more time with `--seconds`",
        Error::Memory { .. } => "name fewer columns, or give more with `--memory-mib`",
        Error::Long { .. } => "narrow it with `where` or `limit`, or sum up with `group by`",
        _ => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}

/// The columns that a question names; all where it may mean all.
fn asked(sql: &str) -> Vec<&'static Column> {
    let compact: String = sql.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
    let wants_all = compact.replace("count(*)", "").contains('*');
    let lower = sql.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    COLUMNS.iter().filter(|column| wants_all || words.contains(&column.name)).collect()
}

fn fill(
    database: &Connection,
    columns: &[&'static Column],
    records: impl Iterator<Item = datasets::Result<Record>>,
) -> Result<()> {
    // A table has a column, whether one is asked for or not.
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
            let record = record.map_err(failed)?;
            let mut values: Vec<Value> = columns.iter().map(|column| value(record.cell(column.id))).collect();
            values.resize(columns.len().max(1), Value::Null);
            insert.execute(params_from_iter(values)).map_err(of_sqlite)?;
        }
    }
    database.execute_batch("COMMIT; PRAGMA query_only = 1").map_err(of_sqlite)
}

fn value(cell: Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Bool(claim) => Value::Integer(i64::from(claim)),
        Cell::Integer(number) => Value::Integer(number),
        Cell::Float(number) => Value::Real(number),
        Cell::Text(text) => Value::Text(text.to_owned()),
        Cell::List(values) => Value::Text(serde_json::to_string(values).unwrap_or_default()),
        Cell::Key(key) => Value::Text(key.hex()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_read() {
        let names = |sql: &str| asked(sql).iter().map(|column| column.name).collect::<Vec<_>>();
        assert_eq!(names("select count( * ) from records"), Vec::<&str>::new());
        assert_eq!(names("SELECT Op_Kind, min(median_ns) FROM records GROUP BY 1"), ["op_kind", "median_ns"]);
        assert_eq!(names("select r.* from records r").len(), COLUMNS.len());
    }
}
