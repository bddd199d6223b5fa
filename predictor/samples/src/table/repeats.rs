//! Rows with equal features that differ in a column of words which is no feature: they are not repeats of one measurement.

use super::mapping::Mapping;
use super::{Cells, Table};
use crate::error::{Error, Result};
use crate::samples::{RawSample, shape};
use std::collections::HashMap;
use std::path::Path;

/// The share of rows that may differ so: a library may choose another kernel when it runs again.
const DOUBTFUL: f64 = 0.001;

/// Refuses a table whose rows differ only in an unused column, such as a data type under `after_run`. Returns a
/// warning where only few rows are.
pub(super) fn check(path: &Path, table: &Table, mapping: &Mapping, questions: &[RawSample]) -> Result<Option<String>> {
    let mut first_of = HashMap::new();
    let mut differing: HashMap<&str, (usize, [usize; 2])> = HashMap::new();
    let columns: Vec<(&str, &[u32])> = mapping
        .unused()
        .filter_map(|name| match &table.column(name)?.cells {
            Cells::Words { codes, .. } => Some((name, codes.as_slice())),
            Cells::Numbers(_) => None,
        })
        .collect();
    if columns.is_empty() {
        return Ok(None);
    }
    for (row, question) in questions.iter().enumerate() {
        let first = *first_of.entry(features(question)).or_insert(row);
        for (name, codes) in &columns {
            if codes[first] != codes[row] {
                differing.entry(name).or_insert((0, [first, row])).0 += 1;
            }
        }
    }
    let Some((name, (count, [one, other]))) = differing.into_iter().max_by_key(|(name, (count, _))| (*count, *name))
    else {
        return Ok(None);
    };
    let problem = format!(
        "{count} rows have the sizes of another row and differ in `{name}`, which is no feature (first rows {} and {}); times of \
         different things must not be averaged: make the column the operator's name or part of it, or keep one value of it",
        one + 1,
        other + 1
    );
    if count as f64 > DOUBTFUL * questions.len() as f64 {
        return Err(Error::table(path, problem));
    }
    Ok(Some(format!("`{}`: {problem}", path.display())))
}

/// Returns what identifies the features of a row.
fn features(question: &RawSample) -> (u64, &str, u32, u64) {
    let shape = shape(&question.operator, &question.detail, &question.work);
    (shape, &question.model, question.device, question.threads.to_bits())
}
