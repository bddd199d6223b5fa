//! Which of two rows with the same key stays.
//!
//! Everywhere the same: one that is `ok` beats one that is not; among equals the one that started first stays. The
//! rest of the comparison only makes the order total, so that the choice never depends on the order of files.

use super::table::Record;
use super::words::Outcome;
use std::cmp::Ordering;

/// `Less` when `left` stays, `Greater` when `right` does, `Equal` when they are the same row.
///
/// A pure function of the two rows; meaningful for rows with the same key.
pub fn choose(left: &Record, right: &Record) -> Ordering {
    rank(left.outcome, left.started_at_us)
        .cmp(&rank(right.outcome, right.started_at_us))
        .then_with(|| left.attempt.cmp(&right.attempt))
        .then_with(|| text(left).cmp(&text(right)))
}

/// The part of the rule that decides almost always; the smaller rank stays.
pub(crate) fn rank(outcome: Outcome, started_at_us: i64) -> (bool, i64) {
    (outcome != Outcome::Ok, started_at_us)
}

fn text(record: &Record) -> String {
    serde_json::to_string(record).expect("a checked record has a JSON form")
}
