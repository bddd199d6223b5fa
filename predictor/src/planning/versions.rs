//! Selection of records with comparable versions.

use datasets::Record;
use datasets::record::standing::newest;

/// Returns the records of one class of hosts whose versions count, and the number of those left out. This program measures nothing,
/// so the newest versions of a store stand for the current ones.
pub fn of_versions(records: Vec<Record>, all_versions: bool) -> (Vec<Record>, usize) {
    match all_versions {
        true => (records, 0),
        false => newest(records, |record| (record.target, record.board.clone())),
    }
}
