//! Selects records whose versions are comparable.

use datasets::Record;
use datasets::record::standing::keep_newest_conditions;

/// Keeps the records of the newest versions and returns the number of removed records.
pub fn select_versions(records: Vec<Record>, all_versions: bool) -> (Vec<Record>, usize) {
    match all_versions {
        true => (records, 0),
        false => keep_newest_conditions(records, |record| (record.target, record.board.clone())),
    }
}
