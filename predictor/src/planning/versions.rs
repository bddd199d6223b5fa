//! Selects records of one host class, whose versions are comparable.

use crate::error::{Error, Result};
use datasets::Record;
use datasets::record::standing::keep_newest_conditions;
use std::collections::BTreeMap;

/// Returns the given or the only host class, and its records. `describe_lack` describes the error if there is no class.
pub fn select_class(
    mut by_class: BTreeMap<String, Vec<Record>>,
    class: Option<&str>,
    describe_lack: impl FnOnce() -> String,
) -> Result<(String, Vec<Record>)> {
    let known: Vec<&str> = by_class.keys().map(String::as_str).collect();
    let class = match (class, known.as_slice()) {
        (Some(class), known) if !known.contains(&class) => {
            return Err(Error::unknown_name("hardware", class, known.iter().copied()));
        }
        (Some(class), _) | (None, &[class]) => class.to_owned(),
        (None, []) => return Err(Error::Query(describe_lack())),
        (None, several) => return Err(Error::Query(format!("give --hardware; the store has {}", several.join(", ")))),
    };
    let records = by_class.remove(&class).unwrap_or_default();
    Ok((class, records))
}

/// Keeps the records of the newest versions and returns the number of removed records.
pub fn select_versions(records: Vec<Record>, all_versions: bool) -> (Vec<Record>, usize) {
    match all_versions {
        true => (records, 0),
        false => keep_newest_conditions(records, |record| (record.target, record.board.clone())),
    }
}
