//! Predictions for every row of a table of queries.

use crate::error::{Error, Result};
use crate::queries::{self, Cell, Operator, Setting};
use learn::predictor::{Prediction, Predictor};
use samples::table::{Cells, Mapping, Table};
use serde::Serialize;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub struct TableAnswers<A = Prediction> {
    pub rows: Vec<RowAnswer<A>>,
    pub refused: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct RowAnswer<A = Prediction> {
    pub operator: String,
    pub answer: Option<A>,
    /// Reasons why the row was refused, or reasons to doubt its answer.
    pub reasons: String,
}

impl<A> TableAnswers<A> {
    pub(super) fn from_rows(rows: Vec<RowAnswer<A>>) -> TableAnswers<A> {
        let refused = rows.iter().filter(|row| row.answer.is_none()).count();
        TableAnswers { rows, refused }
    }
}

/// Predicts every row. `usual` is the setting of rows that do not specify one. Fails if no row is a query.
pub fn answer_table(
    predictor: &Predictor,
    table: &Table,
    path: &Path,
    usual: &Setting,
    mapping: Option<&Mapping>,
) -> Result<TableAnswers> {
    let question = |row: usize| {
        let cells = row_cells(table, row);
        (
            queries::operator_text(&cells, mapping).unwrap_or_default().to_owned(),
            queries::parse_row(&cells, usual, mapping),
        )
    };
    let parsed: Vec<(String, Result<(Operator, Setting)>)> = (0..table.rows).map(question).collect();
    if parsed.iter().all(|(_, parsed)| parsed.is_err())
        && let Some((_, Err(error))) = parsed.first()
    {
        return Err(Error::table_error(path, format!("row 1: {error}")));
    }
    let questions: Vec<_> = parsed.iter().filter_map(|(_, parsed)| parsed.as_ref().ok().cloned()).collect();
    let mut predictions = queries::predict_each(predictor, &questions).into_iter();
    let answer = |(text, parsed): (String, Result<(Operator, Setting)>)| {
        let (operator, prediction) = match parsed {
            Ok((operator, _)) => (operator.text, predictions.next().expect("one prediction per query")),
            Err(error) => (text, Err(error)),
        };
        let reasons = prediction.as_ref().map_or_else(Error::to_string, |prediction| prediction.outside.join("; "));
        RowAnswer { operator, answer: prediction.ok(), reasons }
    };
    Ok(TableAnswers::from_rows(parsed.into_iter().map(answer).collect()))
}

/// Returns the cells of a row with the names of their columns.
pub fn row_cells(table: &Table, row: usize) -> Vec<(String, Cell)> {
    table.columns.iter().map(|column| (column.name.clone(), cell_value(&column.cells, row))).collect()
}

fn cell_value(cells: &Cells, row: usize) -> Cell {
    match cells {
        Cells::Numbers(numbers) if numbers[row].is_nan() => Cell::Absent,
        Cells::Numbers(numbers) => Cell::Number(numbers[row]),
        Cells::Words { words, codes } => match words[codes[row] as usize].as_str() {
            "" => Cell::Absent,
            word => Cell::from_text(word),
        },
    }
}
