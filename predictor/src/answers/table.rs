//! Answers for every row of a table of questions.

use crate::error::{Error, Result};
use crate::queries::{self, Cell, Setting};
use learn::predictor::{Prediction, Predictor};
use samples::table::{self, Cells, Mapping};
use serde::Serialize;
use std::path::Path;

/// Answers for a table, in the order of its rows.
#[derive(Clone, Debug, Serialize)]
pub struct TableAnswers {
    /// An answer for each row.
    pub rows: Vec<RowAnswer>,
    /// How many rows have no time.
    pub refused: usize,
}

/// An answer for a row.
#[derive(Clone, Debug, Serialize)]
pub struct RowAnswer {
    /// The question as a person reads it.
    pub operator: String,
    /// The answer; None where there is none.
    pub answer: Option<Prediction>,
    /// Why there is no answer, or why it lies outside of what was learned.
    pub reasons: String,
}

/// Predicts every row of a table. A row that is no question is an error.
pub fn answer_table(
    predictor: &Predictor,
    path: &Path,
    usual: &Setting,
    mapping: Option<&Mapping>,
) -> Result<TableAnswers> {
    let table = table::read(path)?;
    let question = |row: usize| {
        let cells: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), cell(&column.cells, row))).collect();
        queries::row(&cells, usual, mapping).map_err(|error| Error::table(path, format!("row {}: {error}", row + 1)))
    };
    let questions = (0..table.rows).map(question).collect::<Result<Vec<_>>>()?;
    let predictions = queries::predict_each(predictor, &questions);
    let rows: Vec<RowAnswer> = questions
        .into_iter()
        .zip(predictions)
        .map(|((operator, _), prediction)| {
            let reasons = prediction.as_ref().map_or_else(Error::to_string, |prediction| prediction.outside.join("; "));
            RowAnswer { operator: operator.text, answer: prediction.ok(), reasons }
        })
        .collect();
    let refused = rows.iter().filter(|row| row.answer.is_none()).count();
    Ok(TableAnswers { rows, refused })
}

fn cell(cells: &Cells, row: usize) -> Cell {
    match cells {
        Cells::Numbers(numbers) if numbers[row].is_nan() => Cell::Absent,
        Cells::Numbers(numbers) => Cell::Number(numbers[row]),
        Cells::Words { words, codes } => match words[codes[row] as usize].as_str() {
            "" => Cell::Absent,
            word => word.parse().map_or_else(|_| Cell::Word(word.to_owned()), Cell::Number),
        },
    }
}
