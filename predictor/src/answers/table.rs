//! Predictions for every row of a table of queries.

use crate::error::{Error, Result};
use crate::queries::{self, Cell, Setting};
use learn::predictor::{Prediction, Predictor};
use samples::table::{self, Cells, Mapping};
use serde::Serialize;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub struct TableAnswers {
    pub rows: Vec<RowAnswer>,
    pub refused: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct RowAnswer {
    pub operator: String,
    pub answer: Option<Prediction>,
    /// Reasons why the row was refused, or why its prediction is an extrapolation.
    pub reasons: String,
}

/// Predicts every row. `usual` is the setting of rows that do not specify one. A row that is not a query is an error.
pub fn answer_table(
    predictor: &Predictor,
    path: &Path,
    usual: &Setting,
    mapping: Option<&Mapping>,
) -> Result<TableAnswers> {
    let table = table::read_table(path)?;
    let question = |row: usize| {
        let cells: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), cell_value(&column.cells, row))).collect();
        queries::parse_row(&cells, usual, mapping)
            .map_err(|error| Error::table_error(path, format!("row {}: {error}", row + 1)))
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

fn cell_value(cells: &Cells, row: usize) -> Cell {
    match cells {
        Cells::Numbers(numbers) if numbers[row].is_nan() => Cell::Absent,
        Cells::Numbers(numbers) => Cell::Number(numbers[row]),
        Cells::Words { words, codes } => match words[codes[row] as usize].as_str() {
            "" => Cell::Absent,
            word => word.parse().map_or_else(|_| Cell::Word(word.to_owned()), Cell::Number),
        },
    }
}
