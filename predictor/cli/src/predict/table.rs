//! Predictions for the rows of a table.

use super::{Predict, read_setting};
use crate::csv::quote_cell;
use crate::kernels::kernel_file;
use crate::{DONE, DONE_WITH_LOSSES, print_json, print_line};
use learn::predictor::{Basis, Predictor};
use predictor::Result;
use predictor::answers::{KernelDefaults, RowAnswer, TableAnswers, answer_kernel_table, answer_table};
use predictor::kernels::{self, KernelAnswer};
use report::terminal::print_notes;
use samples::table::{Mapping, Table};
use serde_json::json;
use serving::learned::Distance;
use std::fmt::Write;
use std::path::Path;

/// Exit code if no row of the table could be predicted.
const NOTHING_ANSWERED: u8 = 2;

pub fn predict_table(
    predictor: &Predictor,
    (table, path): (&Table, &Path),
    mapping: Option<&Mapping>,
    predict: &Predict,
) -> Result<u8> {
    let answers = answer_table(predictor, table, path, &read_setting(predict)?, mapping)?;
    match predict.json {
        true => print_json(&json!(answers))?,
        false => print_line(&format_csv(&answers))?,
    }
    let TableAnswers { rows, refused } = &answers;
    let is_bound = |row: &RowAnswer| row.answer.as_ref().is_some_and(|answer| answer.basis == Basis::Bound);
    Ok(exit_code(rows.len(), *refused, rows.iter().any(is_bound)))
}

/// Predicts every row of a table of language-model kernels.
pub fn predict_kernel_table((table, path): (&Table, &Path), predict: &Predict) -> Result<u8> {
    let file = kernel_file(predict.asked.predictor.as_deref())?;
    let learned = file.as_deref().map(kernels::read_learned).transpose()?.unwrap_or_default();
    let defaults = KernelDefaults { device: predict.device.as_deref(), power_limit: predict.power_limit };
    let answers = answer_kernel_table(&learned, table, path, &defaults)?;
    match predict.json {
        true => print_json(&json!(answers))?,
        false => print_line(&format_kernel_csv(&answers))?,
    }
    let TableAnswers { rows, refused } = &answers;
    let is_bound = |row: &RowAnswer<KernelAnswer>| {
        row.answer.as_ref().is_some_and(|answer| answer.answer.distance == Distance::Bound)
    };
    Ok(exit_code(rows.len(), *refused, rows.iter().any(is_bound)))
}

/// Returns the exit code of a table, and prints how many rows were not predicted, or that there are none.
fn exit_code(rows: usize, refused: usize, has_bounds: bool) -> u8 {
    if rows == 0 {
        print_notes("warning", ["the table has no rows"]);
    }
    if refused > 0 {
        print_notes("note", [format!("{refused} of {rows} rows were not predicted; the column `reasons` states why")]);
    }
    match refused {
        0 if has_bounds => DONE_WITH_LOSSES,
        0 => DONE,
        some if some < rows => DONE_WITH_LOSSES,
        _ => NOTHING_ANSWERED,
    }
}

fn format_kernel_csv(answers: &TableAnswers<KernelAnswer>) -> String {
    let mut text = "row,operator,device,time_ns,low_ns,high_ns,power_w,energy_j,source,reasons".to_owned();
    for (number, row) in (1..).zip(&answers.rows) {
        let numbers = row.answer.as_ref().map_or(",,,,,,".to_owned(), |row| {
            let KernelAnswer { device, answer, power, joules, .. } = row;
            let [time, low, high] = [answer.time.seconds, answer.time.low, answer.time.high].map(|s| 1e9 * s);
            let watts = power.as_ref().map_or(String::new(), |power| power.watts.watts.to_string());
            let joules = joules.map_or(String::new(), |joules| joules.to_string());
            let source = json!(answer.distance);
            let source = source.as_str().unwrap_or_default();
            format!("{},{time},{low},{high},{watts},{joules},{source}", quote_cell(device))
        });
        let _ = write!(text, "\n{number},{},{numbers},{}", quote_cell(&row.operator), quote_cell(&row.reasons));
    }
    text
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
