//! Orders, numbers and selects the measurements of an experiment. A store keeps every measurement. Attempts are
//! numbered by time when they are read, because independent writers may have used the same number. Therefore,
//! comparisons of rows ignore `attempt`.

use super::cell::Cell;
use super::column::Kind;
use super::table::{COLUMNS, Column, ColumnId, Record};
use super::visits::{AttemptTime, OVER_VISITS, median_index, median_record};
use crate::record::batch::Row;
use models::Choice;
use std::cmp::Ordering;
use std::ops::Range;

models::choice! {
    /// The selection among the measurements of each experiment.
    #[derive(Default)]
    pub enum Choose {
        /// The successful measurement of median time (the earlier of the central two), with the interval over all of them.
        #[default]
        Middle = "middle",
        /// The last successful measurement of the experiment.
        Latest = "latest",
        /// All measurements.
        All = "all",
    }
}

impl Choose {
    /// Looks up a selection by its name; the error lists known names.
    pub fn parse_name(name: &str) -> Result<Choose, String> {
        Choose::from_name(name).ok_or_else(|| Choose::name_hint(name))
    }

    /// Returns the range of selected attempts in time order; without times, `Middle` and `Latest` select the last.
    pub(crate) fn selected_range(self, attempts: &[AttemptTime]) -> Range<usize> {
        let one = |place: Option<usize>| {
            let place = place.unwrap_or(attempts.len().saturating_sub(1));
            place..attempts.len().min(place + 1)
        };
        match self {
            Choose::All => 0..attempts.len(),
            Choose::Latest => one(attempts.iter().rposition(|tried| tried.median_ns.is_some())),
            Choose::Middle => one(median_index(attempts)),
        }
    }
}

/// Numbers the attempts of each experiment, and returns the selected records, sorted by key and time.
pub fn choose_records(mut records: Vec<Record>, how: Choose) -> Vec<Record> {
    records.sort_by(|left, right| left.key.cmp(&right.key).then_with(|| order_copies(left, right)));
    records.dedup_by(|later, kept| later.key == kept.key && order_attempts(kept, later).is_eq());
    let mut chosen = Vec::new();
    for attempts in records.chunk_by_mut(|left, right| left.key == right.key) {
        (1..).zip(&mut *attempts).for_each(|(number, record)| record.attempt = number);
        let all: Vec<&Record> = attempts.iter().collect();
        match median_record(&all).filter(|_| how == Choose::Middle) {
            Some(measured) => chosen.push(measured),
            None => {
                let tried: Vec<AttemptTime> = attempts.iter().map(AttemptTime::from_row).collect();
                chosen.extend_from_slice(&attempts[how.selected_range(&tried)]);
            }
        }
    }
    chosen
}

/// Orders an experiment's attempts by time, run and all other columns in which copies of an attempt cannot differ. `Equal`:
/// the same attempt. Copies may differ in their JSON, which other programs write with other spaces, and in the statistics
/// over all visits, which exports add.
pub(crate) fn order_attempts(left: &impl Row, right: &impl Row) -> Ordering {
    let is_own = |column: &&Column| {
        column.id != ColumnId::attempt && column.kind != Kind::Json && !OVER_VISITS.contains(&column.id)
    };
    let others = COLUMNS.iter().filter(is_own).map(|column| column.id);
    first_difference(left, right, [ColumnId::started_at_us, ColumnId::run_id].into_iter().chain(others))
}

/// Orders like [`order_attempts`], and copies of an attempt by all columns, so that the first does not depend on files. A
/// copy without the times of other visits is first.
pub(crate) fn order_copies(left: &impl Row, right: &impl Row) -> Ordering {
    let rest = || COLUMNS.iter().map(|column| column.id).filter(|id| *id != ColumnId::attempt);
    let has_others = |cell: Cell<'_>| cell != Cell::Null;
    let (of_left, of_right) = (left.cell(ColumnId::visits_ns), right.cell(ColumnId::visits_ns));
    order_attempts(left, right)
        .then_with(|| has_others(of_left).cmp(&has_others(of_right)))
        .then_with(|| first_difference(left, right, rest()))
}

fn first_difference(left: &impl Row, right: &impl Row, columns: impl IntoIterator<Item = ColumnId>) -> Ordering {
    let mut orders = columns.into_iter().map(|id| left.cell(id).compare_total(&right.cell(id)));
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::key::Key;
    use crate::record::words::{Covers, Outcome};

    fn check(how: Choose, medians: &[Option<f64>], expected: Range<usize>) {
        let attempts: Vec<AttemptTime> = medians.iter().map(|&median_ns| AttemptTime { median_ns }).collect();
        assert_eq!(how.selected_range(&attempts), expected, "{how:?} of {medians:?}");
    }

    #[test]
    fn the_middle_is_a_measurement_and_failures_do_not_count() {
        check(Choose::Middle, &[], 0..0);
        check(Choose::Middle, &[Some(5.0)], 0..1);
        check(Choose::Middle, &[Some(5.0), Some(1.0), Some(3.0)], 2..3);
        check(Choose::Middle, &[None, Some(9.0), None, Some(1.0), Some(2.0)], 4..5);
        // Of two medians the earlier.
        check(Choose::Middle, &[Some(4.0), Some(9.0), Some(2.0), Some(1.0)], 0..1);
        check(Choose::Middle, &[Some(2.0), Some(1.0)], 0..1);
        check(Choose::Middle, &[Some(1.0), Some(2.0)], 0..1);
        check(Choose::Middle, &[None, None], 1..2);
        check(Choose::Middle, &[Some(f64::MAX), Some(f64::MAX)], 0..1);
    }

    #[test]
    fn the_latest_is_the_last_that_gave_a_time() {
        check(Choose::Latest, &[Some(5.0), Some(1.0), None], 1..2);
        check(Choose::Latest, &[None, None, None], 2..3);
        check(Choose::Latest, &[], 0..0);
        check(Choose::All, &[None, Some(2.0)], 0..2);
    }

    #[test]
    fn ways_read_back() {
        assert!(Choose::ALL.iter().all(|how| Choose::from_name(how.name()) == Some(*how)));
        assert_eq!(Choose::from_name("best"), None);
        assert_eq!(Choose::parse_name("best"), Err("known: `middle`, `latest`, `all`".to_owned()));
        assert_eq!(Choose::parse_name("lastest"), Err("did you mean `latest`?".to_owned()));
    }

    #[test]
    fn choosing_states_the_interval_over_all_attempts_in_the_row_it_takes() {
        let record = |seconds: i64, median_ns: f64| Record {
            key: Key([1; 16]),
            started_at_us: seconds * 1_000_000,
            outcome: Outcome::Ok,
            median_ns: Some(median_ns),
            ..Record::default()
        };
        let rows = vec![record(1, 100.0), record(2, 104.0), record(3, 102.0)];
        let chosen = choose_records(rows.clone(), Choose::Middle);
        assert_eq!((chosen.len(), chosen[0].median_ns, chosen[0].attempt), (1, Some(102.0), 3));
        assert_eq!(chosen[0].interval_covers, Some(Covers::Visits));
        assert!(choose_records(rows, Choose::All).iter().all(|row| row.interval_covers.is_none()));
    }
}
