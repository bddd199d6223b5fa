//! `trace`: questions about Perfetto traces.

use super::arguments::TraceCommand;
use super::failure::Failure;
use super::{DONE, Result, paper, print, print_json};
use crate::trace::{self, Answer, Error};
use report::{Table, figures, words};

/// Does one of them.
pub fn run(command: &TraceCommand) -> Result<u8> {
    let TraceCommand::Query { file, sql, json } = command;
    let answer = trace::query(file, sql).map_err(|error| match error {
        Error::Query(_) => Failure::usage(error).with_hint("the tables are slice, track, counter and args"),
        _ => Failure::usage(error),
    })?;
    if *json {
        print_json(&rows(&answer))?
    } else {
        print(&table(&answer))?
    }
    Ok(DONE)
}

fn rows(answer: &Answer) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let row = |row: &Vec<trace::Value>| {
        answer.columns.iter().cloned().zip(row.iter().map(|value| serde_json::json!(value))).collect()
    };
    answer.rows.iter().map(row).collect()
}

fn table(answer: &Answer) -> String {
    let is_number = |at: usize| answer.rows.iter().all(|row| !matches!(row[at], trace::Value::Text(_)));
    let columns = answer.columns.iter().enumerate();
    let mut table = Table::new(columns.map(|(at, name)| if is_number(at) { figures(name) } else { words(name) }));
    for row in &answer.rows {
        table.row(row.iter().map(ToString::to_string));
    }
    table.on(&paper())
}
