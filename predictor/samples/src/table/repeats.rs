//! Detects rows with equal features that are no repeats: they differ in a text column that is not a feature, or in
//! their times by more than noise explains.

use super::mapping::Mapping;
use super::{Cells, Table};
use crate::error::{Error, Result};
use crate::samples::{RawSample, shape_hash};
use report::format_count;
use std::collections::HashMap;
use std::path::Path;

/// Tolerated share of rows that differ only in an unused text column: a repeated run may use another library kernel.
const DOUBTFUL: f64 = 0.001;

/// Rejects a table with rows that differ only in an unused text column; warns instead if such rows are rare.
pub(super) fn check_repeats(
    path: &Path,
    table: &Table,
    mapping: &Mapping,
    questions: &[RawSample],
) -> Result<Option<String>> {
    let mut first_of = HashMap::new();
    let mut differing: HashMap<&str, (usize, [usize; 2])> = HashMap::new();
    let columns: Vec<(&str, &[u32])> = mapping
        .unused_columns()
        .filter_map(|name| match &table.find_column(name)?.cells {
            Cells::Words { codes, .. } => Some((name, codes.as_slice())),
            Cells::Numbers(_) => None,
        })
        .collect();
    if columns.is_empty() {
        return Ok(None);
    }
    for (row, question) in questions.iter().enumerate() {
        let first = *first_of.entry(feature_identity(question)).or_insert(row);
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
        "the column `{name}` is not a feature, but it alone distinguishes {} from others of the same sizes (first: rows {} and {}); \
         use the column as the operator's name or part of it, or keep only rows with one value, because times of different \
         experiments must not be averaged",
        format_count(count, "row"),
        one + 1,
        other + 1
    );
    if count as f64 > DOUBTFUL * questions.len() as f64 {
        return Err(Error::table_error(path, problem));
    }
    Ok(Some(format!("`{}`: {problem}", path.display())))
}

/// Ratio of the times of one experiment above which they contradict each other.
const CONTRADICTION: f64 = 3.0;

/// Warns about rows with equal features whose times contradict each other.
pub(super) fn warn_of_contradictions(path: &Path, questions: &[RawSample], times_ns: &[f64]) -> Option<String> {
    let mut ranges: HashMap<_, (f64, f64, usize)> = HashMap::new();
    for (question, time_ns) in questions.iter().zip(times_ns).filter(|(_, time)| time.is_finite() && **time > 0.0) {
        let (low, high, rows) = ranges.entry(feature_identity(question)).or_insert((*time_ns, *time_ns, 0));
        (*low, *high, *rows) = (low.min(*time_ns), high.max(*time_ns), *rows + 1);
    }
    let repeated = ranges.values().filter(|(.., rows)| *rows > 1).count();
    let ratios: Vec<f64> =
        ranges.values().map(|(low, high, _)| high / low).filter(|ratio| *ratio > CONTRADICTION).collect();
    let most = ratios.iter().copied().reduce(f64::max)?;
    Some(format!(
        "`{}`: the rows of {} of {repeated} repeated experiments contradict each other: they have the same sizes, but \
         times that differ by a factor of up to {most:.1}; keep only comparable rows",
        path.display(),
        ratios.len()
    ))
}

fn feature_identity(question: &RawSample) -> (u64, &str, u32, u64) {
    let shape = shape_hash(&question.operator, &question.detail, &question.work);
    (shape, &question.model, question.device, question.threads.to_bits())
}
