//! Which of two rows with the same key stays.
//!
//! Everywhere the same: one that is `ok` beats one that is not; among equals the one that started first stays. The
//! rest of the comparison only makes the order total, so that the choice never depends on the order of files.

use super::cell::Cell;
use super::table::{COLUMNS, ColumnId, Record};
use super::words::Outcome;
use crate::batch::Row;
use std::cmp::Ordering;

/// `Less` when `left` stays, `Greater` when `right` does, `Equal` when they are the same row.
///
/// A pure function of the two rows; meaningful for rows with the same key.
pub fn choose(left: &Record, right: &Record) -> Ordering {
    choose_row(left, right)
}

/// The same for rows in any form.
pub(crate) fn choose_row(left: &impl Row, right: &impl Row) -> Ordering {
    let cells = || COLUMNS.iter().map(|column| left.cell(column.id).order(&right.cell(column.id)));
    Rank::of(left).cmp(&Rank::of(right)).then_with(|| cells().find(|order| order.is_ne()).unwrap_or(Ordering::Equal))
}

/// The part of the rule that decides almost always; the smaller rank stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    has_failed: bool,
    pub started_at_us: i64,
    attempt: i64,
}

impl Rank {
    /// The columns it is made from.
    pub const COLUMNS: [ColumnId; 3] = [ColumnId::outcome, ColumnId::started_at_us, ColumnId::attempt];

    pub fn of(row: &impl Row) -> Rank {
        let integer = |id| if let Cell::Integer(value) = row.cell(id) { value } else { i64::MAX };
        Rank {
            has_failed: row.cell(ColumnId::outcome) != Cell::Text(Outcome::Ok.name()),
            started_at_us: integer(ColumnId::started_at_us),
            attempt: integer(ColumnId::attempt),
        }
    }
}
