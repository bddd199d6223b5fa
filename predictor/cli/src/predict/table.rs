//! Predictions for the rows of a table.

use super::{Predict, read_setting};
use crate::csv::quote_cell;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_line};
use learn::predictor::{Basis, Predictor};
use predictor::Result;
use predictor::answers::{RowAnswer, TableAnswers, answer_table};
use report::terminal::print_notes;
use samples::table::Mapping;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Exit code if no row of the table could be predicted.
const NOTHING_ANSWERED: u8 = 2;

pub fn predict_table(predictor: &Predictor, path: &Path, mapping: Option<&Mapping>, predict: &Predict) -> Result<u8> {
    let answers = answer_table(predictor, path, &read_setting(predict)?, mapping)?;
    match predict.json {
        true => print_json(&json!(answers))?,
        false => print_line(&format_csv(&answers))?,
    }
    let TableAnswers { rows, refused } = &answers;
    if *refused > 0 {
        print_notes(
            "note",
            [format!("{refused} of {} rows were not predicted; the column `reasons` states why", rows.len())],
        );
    }
    let is_bound = |row: &RowAnswer| row.answer.as_ref().is_some_and(|answer| answer.basis == Basis::Bound);
    Ok(match *refused {
        0 if rows.iter().any(is_bound) => DONE_WITH_LOSSES,
        0 => DONE,
        some if some < rows.len() => DONE_WITH_LOSSES,
        _ => NOTHING_ANSWERED,
    })
}

fn format_csv(answers: &TableAnswers) -> String {
    let mut text = "row,operator,time_ns,low_ns,high_ns,reasons,threads,held_out_percent".to_owned();
    for (number, row) in (1..).zip(&answers.rows) {
        let (numbers, known) = row.answer.as_ref().map_or((",,".to_owned(), ",".to_owned()), |answer| {
            let held_out = answer.held_out.map_or(String::new(), |error| error.median_percent.to_string());
            // A lower bound has no upper end.
            let high = if answer.high_ns.is_finite() { answer.high_ns.to_string() } else { String::new() };
            (format!("{},{},{high}", answer.time_ns, answer.low_ns), format!("{},{held_out}", answer.threads))
        });
        let _ = write!(text, "\n{number},{},{numbers},{},{known}", quote_cell(&row.operator), quote_cell(&row.reasons));
    }
    text
}
