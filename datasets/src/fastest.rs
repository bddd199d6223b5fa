//! Ranks candidates for the same work by all of their measurements.
//!
//! The minimum of many noisy medians is biased, so a candidate with one measurement is ranked by the upper end of its
//! interval. Repeated candidates are ranked by their median. Candidates that were measured in the same rounds (short
//! series without repeats) are compared by ratios within rounds, because a shared machine's speed changes in minutes.

use crate::record::certainty::DOUBTED;
use crate::record::key::Key;
use crate::record::table::Record;
use crate::record::visits::{AttemptTime, OverVisits, median_index, median_over_visits, median_record, middle_of};
use crate::record::words::{CacheState, Outcome, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of common rounds for a comparison within rounds.
pub const LEAST_ROUNDS: usize = 3;
/// Relative difference within which two candidates count as equally fast.
pub const EQUAL: f64 = 0.01;
/// Maximum duration of a round in microseconds.
const LONGEST_US: i64 = 120_000_000;

/// The times of one candidate, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    median_ns: f64,
    upper_end_ns: f64,
    rounds: BTreeMap<usize, f64>,
}

impl Times {
    /// Creates the times of a candidate with one measurement: its median and the upper end of its interval.
    pub fn from_measurement(median_ns: f64, upper_end_ns: f64) -> Times {
        Times { median_ns, upper_end_ns, rounds: BTreeMap::new() }
    }

    /// Adds the candidate's median time in a round.
    pub fn add_round(&mut self, round: usize, median_ns: f64) {
        self.rounds.insert(round, median_ns);
    }

    /// Returns the number of rounds in which the candidate was measured again.
    pub fn round_count(&self) -> usize {
        self.rounds.len()
    }

    /// Returns the reported time: that of the attempt with the median time.
    pub fn middle_ns(&self) -> f64 {
        let all: Vec<f64> = [self.median_ns].into_iter().chain(self.rounds.values().copied()).collect();
        let tried: Vec<AttemptTime> = all.iter().map(|ns| AttemptTime { median_ns: Some(*ns) }).collect();
        median_index(&tried).map_or(self.median_ns, |place| all[place])
    }

    /// Returns the time for ranking: the upper end of a single measurement's interval, or the median of repeats.
    pub fn known_ns(&self) -> f64 {
        if self.rounds.is_empty() { self.upper_end_ns } else { self.middle_ns() }
    }

    /// Returns the times of both candidates in their common rounds.
    pub fn common_rounds(&self, other: &Times) -> (Vec<f64>, Vec<f64>) {
        self.rounds.iter().filter_map(|(round, ns)| Some((*ns, *other.rounds.get(round)?))).unzip()
    }

    fn median_ratio(&self, other: &Times) -> Option<f64> {
        let (own, others) = self.common_rounds(other);
        let mut ratios: Vec<f64> = own.iter().zip(&others).map(|(own, other)| own / other).collect();
        median_value(&mut ratios).filter(|_| ratios.len() >= LEAST_ROUNDS)
    }

    /// Returns whether this candidate has one measurement and seems clearly faster than `leader`, a repeated candidate.
    pub fn seems_faster(&self, leader: &Times) -> bool {
        self.rounds.is_empty() && self.upper_end_ns < leader.middle_ns() * (1.0 - EQUAL)
    }
}

fn median_value(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// Returns the index of the fastest repeated candidate, judged by medians and then by ratios within common rounds.
pub fn find_leader(times: &[&Times]) -> Option<usize> {
    let again: Vec<usize> = (0..times.len()).filter(|number| times[*number].round_count() > 0).collect();
    let by_middle = |one: &&usize, other: &&usize| times[**one].middle_ns().total_cmp(&times[**other].middle_ns());
    let mut leader = *again.iter().min_by(by_middle)?;
    let mut met = BTreeSet::new();
    loop {
        met.insert(leader);
        let strangers = again.iter().filter(|number| !met.contains(number));
        let rivals = strangers.filter_map(|number| Some((*number, times[*number].median_ratio(times[leader])?)));
        let faster = rivals.filter(|(_, ratio)| *ratio < 1.0).min_by(|one, other| one.1.total_cmp(&other.1));
        match faster {
            Some((rival, _)) => leader = rival,
            None => return Some(leader),
        }
    }
}

/// Returns the leader, unless a single measurement is faster by more than the selection bias of first measurements.
fn find_winner(times: &[&Times]) -> Option<usize> {
    let leader = find_leader(times);
    let again = times.iter().filter(|one| one.round_count() > 0);
    let luck = again.map(|one| one.upper_end_ns / one.middle_ns()).fold(1.0, f64::min);
    let is_lucky = |one: &Times, leader: &Times| one.upper_end_ns >= luck * leader.middle_ns();
    let outdoes = |one: &Times, leader: &Times| one.seems_faster(leader) && !is_lucky(one, leader);
    let may_win = |number: &usize| leader.is_none_or(|leader| outdoes(times[*number], times[leader]));
    let once = (0..times.len()).filter(may_win);
    once.min_by(|one, other| times[*one].upper_end_ns.total_cmp(&times[*other].upper_end_ns)).or(leader)
}

/// Assigns measurements to rounds, numbered in time order. A new run, a repeated candidate or a time limit ends one.
pub fn number_rounds<K: Ord>(measured: impl IntoIterator<Item = (K, String, i64)>) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut current: Option<(usize, BTreeSet<K>, String, i64)> = None;
    for (who, run, moment) in measured {
        let is_new = current
            .as_ref()
            .is_none_or(|(_, all, own, began)| all.contains(&who) || *own != run || moment - began > LONGEST_US);
        if is_new {
            let number = current.map_or(0, |(number, ..)| number + 1);
            current = Some((number, BTreeSet::new(), run, moment));
        }
        if let Some((number, all, ..)) = &mut current {
            all.insert(who);
            numbers.push(*number);
        }
    }
    numbers
}

/// Key of comparable candidates: task, target, threads and cache state.
type Ground<'a> = (&'a str, Target, Option<i64>, Option<CacheState>);

/// The fastest candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Fastest<'a> {
    /// Attempt with the median time.
    pub record: &'a Record,
    /// Statistics over all attempts.
    pub over_visits: OverVisits,
    /// Time used for ranking, in nanoseconds.
    pub known_ns: f64,
    /// Number of attempts with a time.
    pub attempts: usize,
}

/// Returns the fastest candidate. Candidates without an interval are ignored if any candidate has a narrow interval.
pub fn find_fastest<'a>(attempts: impl IntoIterator<Item = &'a Record>) -> Option<Fastest<'a>> {
    let is_timed = |record: &&Record| record.outcome == Outcome::Ok && record.median_ns.is_some();
    let mut attempts: Vec<&Record> = attempts.into_iter().filter(is_timed).collect();
    // All visits together have an interval, even if they belong to several runs and each has none.
    let mut visits: BTreeMap<Key, Vec<&Record>> = BTreeMap::new();
    attempts.iter().for_each(|record| visits.entry(record.key).or_default().push(record));
    let uncertainties: BTreeMap<Key, f64> =
        visits.iter().filter_map(|(key, visits)| Some((*key, median_over_visits(visits)?.1.uncertainty()?))).collect();
    if uncertainties.values().any(|uncertainty| *uncertainty < DOUBTED) {
        attempts.retain(|record| uncertainties.contains_key(&record.key));
    }
    let mut grounds: BTreeMap<Ground<'a>, Vec<&'a Record>> = BTreeMap::new();
    for record in attempts {
        let ground = (&*record.task_hash, record.target, record.threads, record.cache_state);
        grounds.entry(ground).or_default().push(record);
    }
    let of_each = grounds.into_values().filter_map(fastest_of_ground);
    of_each.min_by(|one, other| one.known_ns.total_cmp(&other.known_ns))
}

/// Returns the time ratio of two experiments (keys): within common rounds, or of the medians if rounds are too few.
pub fn time_over<'a>(attempts: impl IntoIterator<Item = &'a Record>, (one, other): (Key, Key)) -> Option<f64> {
    let are_both = |record: &&Record| record.outcome == Outcome::Ok && (record.key == one || record.key == other);
    let candidates = group_candidates(attempts.into_iter().filter(are_both).collect());
    let (one, other) = (&candidates.get(&one)?.0, &candidates.get(&other)?.0);
    Some(one.median_ratio(other).unwrap_or_else(|| one.middle_ns() / other.middle_ns()))
}

fn fastest_of_ground(attempts: Vec<&Record>) -> Option<Fastest<'_>> {
    let candidates: Vec<(Times, Vec<&Record>)> = group_candidates(attempts).into_values().collect();
    let times: Vec<&Times> = candidates.iter().map(|(times, _)| times).collect();
    let (times, attempts) = &candidates[find_winner(&times)?];
    let over_visits = median_record(attempts)?.over_visits()?;
    Some(Fastest { record: middle_of(attempts)?, over_visits, known_ns: times.known_ns(), attempts: attempts.len() })
}

fn group_candidates(mut attempts: Vec<&Record>) -> BTreeMap<Key, (Times, Vec<&Record>)> {
    attempts.sort_by_key(|record| (record.started_at_us, record.key));
    let mut candidates: BTreeMap<Key, (Times, Vec<&Record>)> = BTreeMap::new();
    let mut later: Vec<(&Record, f64)> = Vec::new();
    for record in attempts {
        let Some((median_ns, upper_end_ns)) = record.median_ns.zip(record.upper_end_ns()) else { continue };
        let known = candidates
            .entry(record.key)
            .or_insert_with(|| (Times::from_measurement(median_ns, upper_end_ns), Vec::new()));
        if !known.1.is_empty() {
            later.push((record, median_ns));
        }
        known.1.push(record);
    }
    let moments = later.iter().map(|(record, _)| (record.key, record.run_id.clone(), record.started_at_us));
    for (round, (record, median_ns)) in number_rounds(moments).into_iter().zip(&later) {
        if let Some((times, _)) = candidates.get_mut(&record.key) {
            times.add_round(round, *median_ns);
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::words::Covers;

    fn record(key: u8, seconds: i64, median_ns: f64) -> Record {
        Record {
            key: Key::of_bytes(&[key]),
            run_id: "one".to_owned(),
            started_at_us: seconds * 1_000_000,
            outcome: Outcome::Ok,
            median_ns: Some(median_ns),
            median_interval_ns: Some(median_ns / 100.0),
            interval_covers: Some(Covers::Visits),
            ..Record::default()
        }
    }

    #[track_caller]
    fn check(records: &[Record], wanted: (u8, f64)) {
        let told = find_fastest(records).map(|fastest| (fastest.record.key, fastest.known_ns.round()));
        assert_eq!(told, Some((Key::of_bytes(&[wanted.0]), wanted.1)));
    }

    #[test]
    fn what_was_measured_once_counts_by_its_upper_end() {
        let wide = Record { median_interval_ns: Some(30.0), ..record(1, 0, 95.0) };
        let unknown = Record { median_interval_ns: None, ..record(4, 3, 80.0) };
        check(std::slice::from_ref(&unknown), (4, 100.0));
        check(&[wide, record(2, 1, 100.0), record(3, 2, 103.0), unknown.clone()], (2, 101.0));
        let vague = Record { median_interval_ns: Some(30.0), ..record(1, 0, 75.0) };
        check(&[vague, unknown], (4, 100.0));
        assert_eq!(find_fastest(&[Record { outcome: Outcome::Crashed, ..record(1, 0, 1.0) }]), None);
        assert_eq!(find_fastest(&[]), None);
    }

    /// Each run knows one visit and no scatter; together they are an interval.
    #[test]
    fn visits_of_several_runs_count_together() {
        let visit = |key, seconds: i64, median_ns, run: &str| Record {
            run_id: run.to_owned(),
            interval_covers: Some(Covers::Visit),
            ..record(key, seconds, median_ns)
        };
        let apart = [visit(1, 0, 50.0, "a"), visit(1, 10, 51.0, "b"), visit(1, 20, 52.0, "c")];
        assert!(apart.iter().all(|record| record.uncertainty().is_none()));
        let other = record(2, 30, 100.0);
        assert_eq!(other.uncertainty(), Some(0.01));
        check(&[&apart[..], &[other]].concat(), (1, 51.0));
    }

    #[test]
    fn a_lucky_time_that_others_did_not_confirm_does_not_win() {
        let again = (0..3).flat_map(|round| [record(1, 10 + 2 * round, 110.0), record(2, 11 + 2 * round, 100.0)]);
        let lucky: Vec<Record> = [record(1, 0, 80.0), record(2, 1, 101.0)].into_iter().chain(again).collect();
        check(&lucky, (2, 100.0));
        // A second lucky candidate is ignored; a clearly faster one wins.
        let with = |other: Record| lucky.iter().cloned().chain([other]).collect::<Vec<_>>();
        check(&with(record(3, 2, 98.5)), (2, 100.0));
        check(&with(record(3, 2, 70.0)), (3, 71.0));
        // The advantage is no larger than that of the first candidate, which turned out to be slower.
        check(&with(record(3, 2, 80.0)), (2, 100.0));
    }

    #[test]
    fn within_rounds_a_machine_that_changes_misleads_nobody() {
        // Candidate 1 was dropped while the machine was fast. Candidate 2, faster in the same rounds, continued against
        // 3 when the machine was slow.
        let mut records = vec![record(1, 0, 100.0), record(2, 1, 100.0), record(3, 2, 100.0)];
        for round in 0..3 {
            records.extend([record(2, 10 + round * 3, 90.0), record(1, 11 + round * 3, 100.0)]);
        }
        for round in 0..6 {
            records.extend([record(2, 30 + round * 3, 180.0), record(3, 31 + round * 3, 190.0)]);
        }
        let by_middle =
            records.iter().filter(|one| one.key == Key::of_bytes(&[1])).all(|one| one.median_ns < Some(180.0));
        assert!(by_middle, "else this tells nothing");
        check(&records, (2, 180.0));
        records.reverse();
        check(&records, (2, 180.0));
        let over = |one: u8, other: u8| time_over(&records, (Key::of_bytes(&[one]), Key::of_bytes(&[other])));
        assert_eq!(over(1, 2), Some(100.0 / 90.0));
        assert_eq!(over(3, 1), Some(1.9), "no common round");
        assert_eq!(over(4, 1), None);
    }

    #[test]
    fn candidates_of_other_grounds_share_no_round() {
        let threads = |threads: i64, record: Record| Record { threads: Some(threads), ..record };
        let mut records = vec![threads(1, record(1, 0, 100.0)), threads(2, record(2, 1, 60.0))];
        records.extend((0..4).map(|round| threads(1, record(1, 10 + round, 50.0))));
        records.extend((0..4).map(|round| threads(2, record(2, 10 + round, 60.0))));
        check(&records, (1, 50.0));
    }

    #[test]
    fn rounds_end_with_whoever_comes_again_with_their_run_and_with_time() {
        let of = |measured: &[(u8, &str, i64)]| {
            number_rounds(measured.iter().map(|(who, run, seconds)| (*who, (*run).to_owned(), seconds * 1_000_000)))
        };
        assert!(of(&[]).is_empty());
        assert_eq!(
            of(&[(1, "a", 0), (2, "a", 1), (2, "a", 2), (1, "a", 3), (3, "a", 4), (1, "a", 5)]),
            [0, 0, 1, 1, 1, 2]
        );
        assert_eq!(of(&[(1, "a", 0), (2, "b", 1), (3, "b", 121), (4, "b", 122)]), [0, 1, 1, 2]);
    }
}
