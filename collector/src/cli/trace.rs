//! `trace`: questions about Perfetto traces.

use super::arguments::TraceCommand;
use super::failure::Failure;
use super::{DONE, Result, print, print_json};
use crate::report::table::new_table;
use crate::trace::{self, Answer, Error};

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
    let heads: Vec<&str> = answer.columns.iter().map(String::as_str).collect();
    let mut table = new_table(&heads);
    for row in &answer.rows {
        table.add_row(row.iter().map(ToString::to_string));
    }
    table.to_string()
}
