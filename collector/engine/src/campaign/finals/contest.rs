//! A contest selects the fastest of several schedules by repeated measurements, because the single time of a search may
//! be low by chance.
//!
//! The schedules with the lowest times are measured again in rounds. A schedule is removed when it is slower than the
//! leader in every round, when the interval of its ratio to the leader excludes equality, or when both are equally
//! fast. A schedule that was measured once is added when its time is lower than the confirmed time of the leader, so
//! that no unconfirmed time ranks above a confirmed one. The default schedule is always measured again, because the
//! machine may have been in another state when its first time was measured; the gain is a ratio within rounds.

use datasets::fastest::{EQUAL, LEAST_ROUNDS, Times, find_leader};
use measure::{Ratio, paired_ratio};
use serde::Serialize;

const FIRST_ROUND_SIZE: usize = 3;
const MAX_REPEATED: usize = 8;
/// Largest number of rounds per schedule, after which a schedule may be reported as undecided.
const MAX_ROUNDS: usize = 9;
/// Smallest relative difference that removes a schedule if it is exceeded in all of at least [`LEAST_ROUNDS`] rounds.
pub const CLEAR_DIFFERENCE: f64 = 0.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContestState {
    NotRepeated,
    Active,
    /// The schedule is as fast as the leader, within the tolerance.
    Equal,
    Slower,
    Failed,
}

#[derive(Clone, Debug)]
pub struct Entry {
    times: Times,
    state: ContestState,
}

impl Entry {
    pub fn new(median_ns: f64, upper_end_ns: f64) -> Entry {
        Entry { times: Times::from_measurement(median_ns, upper_end_ns), state: ContestState::NotRepeated }
    }

    fn round_count(&self) -> usize {
        self.times.round_count()
    }
}

/// Result of a contest between the schedules of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Index of the fastest schedule among the entries.
    #[serde(skip)]
    pub winner: usize,
    /// Median of the winner's times, in nanoseconds.
    pub median_ns: f64,
    /// Number of rounds in which the winner was measured.
    pub rounds: usize,
    /// Number of schedules that were measured again, including the winner.
    pub measured_again: usize,
    /// Number of schedules that are as fast as the winner, within the tolerance.
    pub equals: usize,
    /// Number of schedules that could not be distinguished from the winner within the limit of rounds.
    pub undecided: usize,
    /// Ratio of the second-best schedule's time to the winner's time, within rounds.
    pub second_over_best: Option<Ratio>,
    /// Ratio of the default schedule's time to the winner's time, within rounds; None if the default wins.
    pub default_over_best: Option<Ratio>,
    /// Lowest and highest ratio of the default schedule's time to the winner's over the common rounds; None if the
    /// default wins or has no common round.
    pub default_range: Option<(f64, f64)>,
    /// Whether the default schedule was removed as slower.
    #[serde(skip)]
    pub is_default_slower: bool,
}

impl Verdict {
    /// Returns the number of schedules that are not known to be slower than the winner.
    pub fn tied(&self) -> usize {
        self.equals + self.undecided
    }
}

/// The schedules of one search, sorted by the upper end of the confidence interval of their first time.
#[derive(Clone, Debug)]
pub struct Contest {
    entries: Vec<Entry>,
    default: Option<usize>,
    round: usize,
    /// Schedules of the most recently started round.
    last: Vec<usize>,
    /// Number of measurements of the current round that have no result yet.
    open: usize,
}

impl Contest {
    /// Creates a contest. `entries` must be sorted by the upper ends of their confidence intervals.
    pub fn new(entries: Vec<Entry>, default: Option<usize>) -> Contest {
        let mut contest = Contest { entries, default, round: 0, last: Vec::new(), open: 0 };
        let begins = |number: &usize| *number < FIRST_ROUND_SIZE || Some(*number) == default;
        (0..contest.entries.len())
            .filter(begins)
            .for_each(|number| contest.entries[number].state = ContestState::Active);
        contest
    }

    /// Adds the results of a round that an earlier process measured.
    pub fn resume(&mut self, round: &[(usize, Option<f64>)]) {
        for (number, ns) in round {
            self.entries[*number].state = ContestState::Active;
            self.store_time(*number, *ns);
        }
        self.last = round.iter().map(|(number, _)| *number).collect();
        self.round += 1;
        self.update_states();
    }

    /// Returns the schedules of the next round in rotated order; an empty list during a round or after the contest. If
    /// possible, the first schedule was also in the last round, so that readers of records see where a round begins.
    pub fn next_round(&mut self) -> Vec<usize> {
        if self.open > 0 || self.is_over() {
            return Vec::new();
        }
        let mut inside: Vec<usize> = self.active_schedules().collect();
        let turn = self.round % inside.len().max(1);
        inside.rotate_left(turn);
        let known = inside.iter().position(|number| self.last.contains(number));
        inside.rotate_left(known.unwrap_or(0));
        self.last.clone_from(&inside);
        self.open = inside.len();
        inside
    }

    /// Records a measurement; `ns` is None if it failed.
    pub fn observe_time(&mut self, number: usize, ns: Option<f64>) {
        self.store_time(number, ns);
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.round += 1;
            self.update_states();
        }
    }

    fn store_time(&mut self, number: usize, ns: Option<f64>) {
        match ns {
            Some(ns) => self.entries[number].times.add_round(self.round, ns),
            None => self.entries[number].state = ContestState::Failed,
        }
    }

    fn active_schedules(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.entries.len()).filter(|number| self.entries[*number].state == ContestState::Active)
    }

    fn leader(&self) -> Option<usize> {
        let able: Vec<usize> =
            (0..self.entries.len()).filter(|number| self.entries[*number].state != ContestState::Failed).collect();
        let times: Vec<&Times> = able.iter().map(|number| &self.entries[*number].times).collect();
        find_leader(&times).map(|index| able[index])
    }

    fn default_unless_leader(&self, leader: usize) -> Option<usize> {
        self.default.filter(|default| *default != leader)
    }

    /// Returns the default schedule if it has too few rounds in common with the leader to determine the gain.
    fn undecided_default(&self, leader: usize) -> Option<usize> {
        let default = self.default_unless_leader(leader)?;
        let is_measured = self.entries[default].state != ContestState::Failed;
        (is_measured && self.compare_pair(default, leader).0.len() < LEAST_ROUNDS).then_some(default)
    }

    fn compare_pair(&self, one: usize, other: usize) -> (Vec<f64>, Option<Ratio>) {
        let (ones, others) = self.entries[one].times.common_rounds(&self.entries[other].times);
        let ratios = ones.iter().zip(&others).map(|(one, other)| one / other).collect();
        (ratios, paired_ratio(&ones, &others))
    }

    fn update_states(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.entries[leader].state = ContestState::Active;
        for number in self.active_schedules().filter(|number| *number != leader).collect::<Vec<_>>() {
            let (ratios, ratio) = self.compare_pair(number, leader);
            let interval = ratio.and_then(|ratio| ratio.interval);
            let is_far = ratios.len() >= LEAST_ROUNDS && ratios.iter().all(|ratio| *ratio > 1.0 + CLEAR_DIFFERENCE);
            let state = match interval {
                _ if is_far => ContestState::Slower,
                Some((low, high)) if low >= 1.0 - EQUAL && high <= 1.0 + EQUAL => ContestState::Equal,
                Some((low, _)) if low > 1.0 => ContestState::Slower,
                _ => ContestState::Active,
            };
            self.entries[number].state = state;
        }
        if let Some(default) = self.undecided_default(leader) {
            self.entries[default].state = ContestState::Active;
            self.entries[leader].state = ContestState::Active;
        }
        let has_rivals =
            self.active_schedules().any(|number| number != leader && self.entries[number].round_count() < MAX_ROUNDS);
        let again = self.entries.iter().filter(|entry| entry.state != ContestState::NotRepeated).count();
        if has_rivals || self.entries[leader].round_count() < LEAST_ROUNDS || again >= MAX_REPEATED {
            return;
        }
        // A schedule that only seems equally fast need not be distinguished from the leader.
        let is_lucky =
            |one: &Entry| one.state == ContestState::NotRepeated && one.times.seems_faster(&self.entries[leader].times);
        let lucky = self.entries.iter().position(is_lucky);
        if let Some(lucky) = lucky {
            self.entries[lucky].state = ContestState::Active;
            self.entries[leader].state = ContestState::Active;
        }
    }

    pub fn is_over(&self) -> bool {
        // A single schedule needs no comparison.
        if self.entries.len() < 2 {
            return true;
        }
        let Some(leader) = self.leader() else { return self.active_schedules().next().is_none() };
        let is_tired = |number: usize| self.entries[number].round_count() >= MAX_ROUNDS;
        let rivals = self.active_schedules().any(|number| number != leader && !is_tired(number));
        let is_bounded = self.round >= MAX_REPEATED * MAX_ROUNDS;
        let is_known = self.undecided_default(leader).is_none() && self.entries[leader].round_count() >= LEAST_ROUNDS;
        is_bounded || !rivals && is_known
    }

    /// Returns the result, or None if no schedule was measured again.
    pub fn verdict(&self) -> Option<Verdict> {
        let winner = self.leader()?;
        let again = |number: &usize| *number != winner && self.entries[*number].round_count() > 0;
        let others: Vec<usize> = (0..self.entries.len()).filter(again).collect();
        let middle = |number: &&usize| self.entries[**number].times.middle_ns();
        let second = others.iter().min_by(|one, other| middle(one).total_cmp(&middle(other)));
        let default = self.default_unless_leader(winner).map(|default| (default, self.compare_pair(default, winner)));
        let default_range = default.as_ref().filter(|(_, (ratios, _))| !ratios.is_empty()).map(|(_, (ratios, _))| {
            ratios.iter().fold((f64::INFINITY, 0.0f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)))
        });
        let count = |state: ContestState| others.iter().filter(|number| self.entries[**number].state == state).count();
        Some(Verdict {
            winner,
            median_ns: self.entries[winner].times.middle_ns(),
            rounds: self.entries[winner].round_count(),
            measured_again: others.len() + 1,
            equals: count(ContestState::Equal),
            undecided: count(ContestState::Active),
            second_over_best: second.and_then(|second| self.compare_pair(*second, winner).1),
            default_range,
            is_default_slower: default
                .as_ref()
                .is_some_and(|(default, _)| self.entries[*default].state == ContestState::Slower),
            default_over_best: default.and_then(|(_, (_, ratio))| ratio),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::{Key, Outcome, Record};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Runs a contest of entries whose first times are too low. `truth` returns the time of an entry in a round.
    fn run(firsts: &[f64], truth: impl Fn(usize, usize) -> Option<f64>) -> (Contest, usize) {
        play(contest(firsts, None), truth)
    }

    fn contest(firsts: &[f64], default: Option<usize>) -> Contest {
        Contest::new(firsts.iter().map(|ns| Entry::new(*ns, ns * 1.01)).collect(), default)
    }

    fn play(mut contest: Contest, truth: impl Fn(usize, usize) -> Option<f64>) -> (Contest, usize) {
        let mut measured = 0;
        for round in 0.. {
            let next = contest.next_round();
            if next.is_empty() {
                break;
            }
            assert!(round < 200, "it ends");
            for number in next {
                measured += 1;
                contest.observe_time(number, truth(number, round));
            }
        }
        (contest, measured)
    }

    #[test]
    fn low_first_times_by_chance_do_not_win() {
        let truth = [120.0, 100.0, 150.0];
        let noise = |round: usize| [1.0, 1.3, 1.1][round % 3];
        let (contest, measured) = run(&[80.0, 101.0, 102.0], |number, round| Some(truth[number] * noise(round)));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.measured_again, verdict.undecided), (1, 3, 0));
        assert!(measured <= 12, "what is far behind is let go: {measured}");
        assert_eq!(verdict.second_over_best.map(|ratio| (ratio.median * 100.0).round()), Some(120.0));
    }

    #[test]
    fn schedules_with_a_lower_first_time_than_the_leader_are_measured_again() {
        // The first three times were too low by chance; the fourth is representative.
        let truth = [110.0, 112.0, 114.0, 100.0, 130.0];
        let (contest, _) = run(&[90.0, 91.0, 92.0, 100.0, 129.0], |number, _| Some(truth[number]));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.measured_again), (3, 4));
    }

    #[test]
    fn the_default_schedule_is_always_measured_again() {
        // The machine was slow when the search began: the default schedule, here the last, took
        // longer then than it does now.
        let truth = [100.0, 104.0, 106.0, 108.0, 101.0];
        let firsts = [100.0, 104.0, 106.0, 108.0, 170.0];
        let noise = |round: usize| [1.0, 1.001, 0.999][round % 3];
        let (contest, _) = play(contest(&firsts, Some(4)), |number, round| Some(truth[number] * noise(round)));
        let verdict = contest.verdict().expect("a verdict");
        let over = verdict.default_over_best.expect("the default is not the winner");
        assert_eq!((verdict.winner, verdict.undecided), (0, 0));
        assert!((over.median - 1.01).abs() < 1e-9, "{over:?}");
    }

    #[test]
    fn a_default_schedule_that_was_slow_by_chance_wins() {
        let truth = [100.0, 104.0, 106.0, 108.0, 95.0];
        let (contest, _) =
            play(contest(&[100.0, 104.0, 106.0, 108.0, 170.0], Some(4)), |number, _| Some(truth[number]));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.default_over_best), (4, None));
    }

    #[test]
    fn late_entries_are_compared_with_the_default_schedule() {
        let truth = [110.0, 112.0, 114.0, 100.0, 150.0];
        let (contest, _) = play(contest(&[90.0, 91.0, 92.0, 100.0, 151.0], Some(4)), |number, _| Some(truth[number]));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.default_over_best.map(|ratio| ratio.median)), (3, Some(1.5)));
        assert_eq!((verdict.is_default_slower, verdict.default_range), (true, Some((1.5, 1.5))));
    }

    #[test]
    fn winners_of_later_searches_are_compared_with_the_default_schedule() {
        // An earlier process found the default schedule (index 1) slower than index 2; index 0 is
        // new.
        let mut contest = contest(&[80.0, 120.0, 100.0], Some(1));
        (0..9).for_each(|_| contest.resume(&[(1, Some(120.0)), (2, Some(100.0))]));
        let (contest, measured) = play(contest, |number, _| Some([80.0, 120.0, 100.0][number]));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.default_over_best.map(|ratio| ratio.median)), (0, Some(1.5)));
        assert!(measured <= 12, "{measured}");
    }

    #[test]
    fn a_failed_default_schedule_does_not_block_the_contest() {
        let (contest, measured) = play(contest(&[100.0, 110.0, 150.0], Some(2)), |number, _| {
            (number != 2).then_some(100.0 + number as f64 * 10.0)
        });
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.winner, verdict.default_over_best), (0, None));
        assert!(measured <= 12, "{measured}");
    }

    #[test]
    fn records_give_the_same_winner_as_the_contest() {
        for seed in 0..200 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let many = random.random_range(2..30);
            let truth: Vec<f64> = (0..many).map(|_| random.random_range(95.0..112.0)).collect();
            // The speed of the machine changes from time to time.
            let mut pace = 1.0;
            let mut time = |number: usize| {
                if random.random_bool(0.1) {
                    pace = random.random_range(0.8..1.3);
                }
                truth[number] * pace * random.random_range(0.98..1.02)
            };
            let mut records = Vec::new();
            let mut keep = |number: usize, median_ns: f64| {
                records.push(Record {
                    key: Key::of_bytes(&number.to_le_bytes()),
                    started_at_us: records.len() as i64,
                    outcome: Outcome::Ok,
                    median_ns: Some(median_ns),
                    median_interval_ns: Some(median_ns / 100.0),
                    ..Record::default()
                });
            };
            let mut firsts: Vec<(usize, f64)> = (0..many).map(|number| (number, time(number))).collect();
            firsts.iter().for_each(|(number, ns)| keep(*number, *ns));
            firsts.sort_by(|one, other| one.1.total_cmp(&other.1));
            let entries = firsts.iter().map(|(_, ns)| Entry::new(*ns, ns * 1.01)).collect();
            let mut contest = Contest::new(entries, firsts.iter().position(|(number, _)| *number == 0));
            loop {
                let round = contest.next_round();
                if round.is_empty() {
                    break;
                }
                for index in round {
                    let (number, _) = firsts[index];
                    let ns = time(number);
                    keep(number, ns);
                    contest.observe_time(index, Some(ns));
                }
            }
            let verdict = contest.verdict().expect("a verdict");
            let (winner, _) = firsts[verdict.winner];
            let fastest = datasets::find_fastest(&records).expect("the fastest");
            assert_eq!(fastest.record.key, Key::of_bytes(&winner.to_le_bytes()), "seed {seed}");
            assert_eq!(fastest.known_ns, verdict.median_ns, "seed {seed}");
            assert!(verdict.default_over_best.is_none_or(|ratio| ratio.median >= 1.0), "seed {seed}: {verdict:?}");
        }
    }

    #[test]
    fn equal_schedules_are_distinguished_from_undecided_ones() {
        let (contest, measured) =
            run(&[100.0, 100.0], |number, round| Some(100.0 + ((number + round) % 2) as f64 * 0.4));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.equals, verdict.undecided), (1, 0), "{verdict:?}");
        assert_eq!(measured, 12, "six rounds make an interval");
        let (contest, measured) =
            run(&[100.0, 100.0], |number, round| Some(100.0 + ((number + round) % 2) as f64 * 20.0));
        let verdict = contest.verdict().expect("a verdict");
        assert_eq!((verdict.equals, verdict.undecided, measured), (0, 1, 2 * MAX_ROUNDS), "{verdict:?}");
    }

    #[test]
    fn failed_and_single_schedules_end_the_contest() {
        assert!(run(&[], |_, _| None).0.verdict().is_none());
        assert!(run(&[1.0, 2.0], |_, _| None).0.verdict().is_none());
        let (contest, measured) = run(&[100.0], |_, _| Some(101.0));
        assert_eq!((contest.verdict(), measured), (None, 0));
        let (contest, _) = run(&[90.0, 100.0], |number, _| (number == 1).then_some(100.0));
        assert_eq!(contest.verdict().expect("a verdict").winner, 1);
    }

    #[test]
    fn rounds_of_an_earlier_process_are_reused() {
        let entries = || vec![Entry::new(100.0, 101.0), Entry::new(100.0, 101.0)];
        let mut contest = Contest::new(entries(), None);
        (0..6).for_each(|_| contest.resume(&[(0, Some(100.0)), (1, Some(100.2))]));
        assert!(contest.next_round().is_empty(), "nothing is repeated");
        assert_eq!(contest.verdict().expect("a verdict").equals, 1);
        let mut contest = Contest::new(entries(), None);
        contest.resume(&[(0, Some(100.0))]);
        assert_eq!(contest.next_round().len(), 2);
    }
}
