//! Answers to questions in SQL: as JSON and as tables.

use super::paper;
use capture::trace::{self, Answer};
use report::{Table, figures, words};

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
