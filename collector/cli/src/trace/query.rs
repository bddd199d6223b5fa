//! `trace query`: questions in SQL about Perfetto traces.

use super::super::{DONE, Result, paper, print, print_json};
use super::arguments::Query;
use capture::trace::{self, Answer, Bounds, Error};
use engine::failure::Failure;
use report::{Table, figures, words};
use std::time::Duration;

/// Answers one.
pub fn run(query: &Query) -> Result<u8> {
    let Query { file, sql, seconds, memory_mib, json } = query;
    let bounds = Bounds { time: Duration::from_secs_f64(*seconds), memory_mib: *memory_mib, ..Bounds::default() };
    let answer = trace::query(file, sql, &bounds).map_err(failed)?;
    if *json {
        print_json(&rows(&answer))?
    } else {
        print(&table(&answer))?
    }
    Ok(DONE)
}

fn failed(error: Error) -> Failure {
    let hint = match error {
        Error::Query(_) | Error::Refused { .. } => "the tables are slice, track, counter and args",
        Error::Late { .. } => "narrow it with `where` or `limit`, or give more time with `--seconds`",
        Error::Memory { .. } => "narrow it with `where` or `limit`, or give more with `--memory-mib`",
        Error::Long { .. } => "narrow it with `where` or `limit`, or sum up with `group by`",
        _ => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}

/// Rows as JSON objects.
pub fn rows(answer: &Answer) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let row = |row: &Vec<trace::Value>| {
        answer.columns.iter().cloned().zip(row.iter().map(|value| serde_json::json!(value))).collect()
    };
    answer.rows.iter().map(row).collect()
}

/// Rows as a table.
pub fn table(answer: &Answer) -> String {
    let is_number = |at: usize| answer.rows.iter().all(|row| !matches!(row[at], trace::Value::Text(_)));
    let columns = answer.columns.iter().enumerate();
    let mut table = Table::new(columns.map(|(at, name)| if is_number(at) { figures(name) } else { words(name) }));
    for row in &answer.rows {
        table.row(row.iter().map(ToString::to_string));
    }
    table.on(&paper())
}
