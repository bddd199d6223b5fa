//! Predictions for every row of a table of language-model kernels.

use super::table::{RowAnswer, TableAnswers, row_cells};
use crate::error::{Error, Result};
use crate::kernels::{KernelAnswer, find_device, predict_kernel};
use crate::queries::{self, Cell};
use rayon::prelude::*;
use samples::table::{Cells, Table};
use serving::{Kernel, Learned};
use std::path::Path;

/// Device and power limit of rows that do not state a device.
pub struct KernelDefaults<'a> {
    pub device: Option<&'a str>,
    /// Power limit of the GPU in watts.
    pub power_limit: Option<f64>,
}

/// Returns whether the column `operator` of a table has a kernel of language models, such as `gemm:m=64,n=4096,k=4096`.
pub fn lists_kernels(table: &Table) -> bool {
    match table.find_column("operator").map(|column| &column.cells) {
        Some(Cells::Words { words, .. }) => words.iter().any(|word| serving::text::is_kernel(word)),
        _ => false,
    }
}

/// Predicts every row with the columns `operator` and `device`. `path` is that of the table. Fails if no row is a query.
pub fn answer_kernel_table(
    learned: &Learned,
    table: &Table,
    path: &Path,
    defaults: &KernelDefaults<'_>,
) -> Result<TableAnswers<KernelAnswer>> {
    let rows: Vec<(String, Result<KernelAnswer>)> = (0..table.rows)
        .into_par_iter()
        .map(|row| {
            let cells = row_cells(table, row);
            let text = queries::operator_text(&cells, None).unwrap_or_default().to_owned();
            let answer = answer_row(learned, &text, &cells, defaults);
            (text, answer)
        })
        .collect();
    if rows.iter().all(|(_, answer)| answer.is_err())
        && let Some((_, Err(error))) = rows.first()
    {
        return Err(Error::table_error(path, format!("row 1: {error}")));
    }
    let row = |(operator, answer): (String, Result<KernelAnswer>)| {
        let reasons = answer.as_ref().map_or_else(Error::to_string, |answer| answer.warnings.join("; "));
        RowAnswer { operator, answer: answer.ok(), reasons }
    };
    Ok(TableAnswers::from_rows(rows.into_iter().map(row).collect()))
}

fn answer_row(
    learned: &Learned,
    text: &str,
    cells: &[(String, Cell)],
    defaults: &KernelDefaults<'_>,
) -> Result<KernelAnswer> {
    let mut device = defaults.device;
    for (name, cell) in cells {
        match (name.as_str(), cell) {
            (_, Cell::Absent) | ("operator", _) => {}
            ("device", Cell::Word(word)) => device = Some(word),
            ("device", Cell::Number(_)) => {
                return Err(Error::Query("the column `device` must contain names".to_owned()));
            }
            (name, _) => {
                let name = queries::excerpt_text(name);
                let problem = format!("unknown column `{name}`; tables of kernels have `operator` and `device`");
                return Err(Error::Query(problem));
            }
        }
    }
    let device = device.ok_or_else(|| Error::Query("the row has no `device`; give --device".to_owned()))?;
    let kernel: Kernel = text.parse().map_err(Error::from)?;
    predict_kernel(learned, &kernel, find_device(device)?, defaults.power_limit)
}
