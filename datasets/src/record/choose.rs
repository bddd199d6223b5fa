//! Several measurements of one experiment: their order, their numbers, and which of them are read.
//!
//! A store keeps every measurement. Their numbers are given when they are read, by time, because writers that know nothing
//! of each other may have given the same number twice; so `attempt` does not count when rows are compared.

use super::cell::Cell;
use super::table::{COLUMNS, ColumnId, Record};
use super::visits::measured;
use super::words::Outcome;
use crate::batch::Row;
use models::names;
use std::cmp::Ordering;
use std::ops::Range;

/// Which measurements of each experiment are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choose {
    /// Of those that are `ok` the one with the median of their medians, of an even number the earlier of both, with the interval
    /// over all of them.
    #[default]
    Middle,
    /// The last one that is `ok`.
    Latest,
    /// Every one.
    All,
}

impl Choose {
    /// Every way to choose.
    pub const ALL: &[Choose] = &[Choose::Middle, Choose::Latest, Choose::All];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Choose::Middle => "middle",
            Choose::Latest => "latest",
            Choose::All => "all",
        }
    }

    /// The way of a word.
    pub fn from_name(name: &str) -> Option<Choose> {
        Choose::ALL.iter().copied().find(|choose| choose.name() == name)
    }

    /// The way that was asked for by a word; else what to say of it.
    pub fn named(name: &str) -> Result<Choose, String> {
        let hint = || names::hint(name, Choose::ALL.iter().map(|choose| choose.name()));
        Choose::from_name(name).ok_or_else(hint)
    }

    /// The places that are chosen among the attempts at one experiment, which stand in the order of time. Where none
    /// gave a time, the last says best why.
    pub(crate) fn places(self, attempts: &[Tried]) -> Range<usize> {
        let one = |place: Option<usize>| {
            let place = place.unwrap_or(attempts.len().saturating_sub(1));
            place..attempts.len().min(place + 1)
        };
        match self {
            Choose::All => 0..attempts.len(),
            Choose::Latest => one(attempts.iter().rposition(|tried| tried.median_ns.is_some())),
            Choose::Middle => one(middle(attempts)),
        }
    }
}

/// What choosing looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tried {
    /// The median, of an attempt that was `ok`.
    pub median_ns: Option<f64>,
}

impl Tried {
    pub fn of(row: &impl Row) -> Tried {
        let is_ok = row.cell(ColumnId::outcome) == Cell::Text(Outcome::Ok.name());
        let median_ns = if let Cell::Float(value) = row.cell(ColumnId::median_ns) { Some(value) } else { None };
        Tried { median_ns: median_ns.filter(|_| is_ok) }
    }
}

/// The place of the middle median, of an even number of them the earlier of both middles.
pub(crate) fn middle(attempts: &[Tried]) -> Option<usize> {
    let times = attempts.iter().enumerate().filter_map(|(place, tried)| Some((tried.median_ns?, place)));
    let mut times: Vec<(f64, usize)> = times.collect();
    times.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (low, high) = (times.len().checked_sub(1)? / 2, times.len() / 2);
    Some(times[low].1.min(times[high].1))
}

/// The one with the middle median of attempts at one experiment that were `ok`, of an even number of them the earlier of both middles.
pub fn middle_of<'a>(attempts: &[&'a Record]) -> Option<&'a Record> {
    let tried: Vec<Tried> = attempts.iter().map(|record| Tried { median_ns: record.median_ns }).collect();
    middle(&tried).map(|place| attempts[place])
}

/// The chosen ones of some records, numbered; sorted by key and time.
pub fn choose(mut records: Vec<Record>, how: Choose) -> Vec<Record> {
    records.sort_by(|left, right| left.key.cmp(&right.key).then_with(|| order(left, right)));
    records.dedup_by(|later, kept| later.key == kept.key && order(kept, later).is_eq());
    let mut chosen = Vec::new();
    for attempts in records.chunk_by_mut(|left, right| left.key == right.key) {
        (1..).zip(&mut *attempts).for_each(|(number, record)| record.attempt = number);
        let all: Vec<&Record> = attempts.iter().collect();
        match measured(&all).filter(|_| how == Choose::Middle) {
            Some(measured) => chosen.push(measured),
            None => {
                let tried: Vec<Tried> = attempts.iter().map(Tried::of).collect();
                chosen.extend_from_slice(&attempts[how.places(&tried)]);
            }
        }
    }
    chosen
}

/// The order of two attempts at the same experiment: by time, then by run, then by everything else, so that it never
/// depends on the order of files. `Equal` for one attempt met twice.
pub fn order(left: &Record, right: &Record) -> Ordering {
    order_rows(left, right)
}

/// The same for rows in any form.
pub(crate) fn order_rows(left: &impl Row, right: &impl Row) -> Ordering {
    let order = |id: ColumnId| left.cell(id).order(&right.cell(id));
    let rest = || COLUMNS.iter().filter(|column| column.id != ColumnId::attempt).map(|column| order(column.id));
    order(ColumnId::started_at_us)
        .then_with(|| order(ColumnId::run_id))
        .then_with(|| rest().find(|order| order.is_ne()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(how: Choose, medians: &[Option<f64>], expected: Range<usize>) {
        let attempts: Vec<Tried> = medians.iter().map(|&median_ns| Tried { median_ns }).collect();
        assert_eq!(how.places(&attempts), expected, "{how:?} of {medians:?}");
    }

    #[test]
    fn the_middle_is_a_measurement_and_failures_do_not_count() {
        check(Choose::Middle, &[], 0..0);
        check(Choose::Middle, &[Some(5.0)], 0..1);
        check(Choose::Middle, &[Some(5.0), Some(1.0), Some(3.0)], 2..3);
        check(Choose::Middle, &[None, Some(9.0), None, Some(1.0), Some(2.0)], 4..5);
        // Of both middles the earlier.
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
        assert_eq!(Choose::named("best"), Err("known: `middle`, `latest`, `all`".to_owned()));
        assert_eq!(Choose::named("lastest"), Err("did you mean `latest`?".to_owned()));
    }
}
