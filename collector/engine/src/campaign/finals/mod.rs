//! Final measurements of a search: the best schedules and the default are measured again, interleaved.

mod contest;

pub use contest::{CLEAR_DIFFERENCE, Verdict};

use super::planned::Attempt;
use super::source::Source;
use super::tuning::{Search, Trial, Tuning};
use contest::{Contest, Entry};
use datasets::{Key, Outcome, Record};
use job::space::Schedule;
use std::collections::{HashMap, HashSet};

/// Repeated measurements (contests) that determine the fastest schedule of each search.
pub struct Finals {
    contests: Vec<FinalMatch>,
}

struct FinalMatch {
    contest: Contest,
    attempts: Vec<Attempt>,
    schedules: Vec<Schedule>,
}

/// The fastest schedule of a search, with its attempt and the result of its contest.
pub struct FoundBest<'a> {
    /// The fastest schedule.
    pub schedule: &'a Schedule,
    /// The planned measurement of that schedule.
    pub attempt: &'a Attempt,
    /// Comparison of the schedule with the other schedules that were measured again.
    pub verdict: Verdict,
}

impl Finals {
    /// Creates the contests from all records of the searches' experiments, which must be in chronological order.
    pub fn new(tuning: &Tuning, records: &[Record]) -> Finals {
        Finals { contests: tuning.searches().iter().map(|search| FinalMatch::new(search, records)).collect() }
    }

    /// Returns the result of each search, in the order of the searches; None if no schedule was measured again.
    pub fn found_bests(&self) -> impl Iterator<Item = Option<FoundBest<'_>>> {
        self.contests.iter().map(|one| {
            let verdict = one.contest.verdict()?;
            let (schedule, attempt) = (&one.schedules[verdict.winner], &one.attempts[verdict.winner]);
            Some(FoundBest { schedule, attempt, verdict })
        })
    }
}

impl FinalMatch {
    fn new(search: &Search, records: &[Record]) -> FinalMatch {
        let mut known: HashSet<Key> = HashSet::new();
        let mut firsts: Vec<(f64, Trial<'_>)> = Vec::new();
        let mut later: Vec<(Key, &Record)> = Vec::new();
        let trials = search.match_trials(records).into_iter();
        for trial in trials.filter(|trial| trial.record.outcome != Outcome::PassedOver) {
            let upper = trial.record.upper_end_ns().filter(|_| trial.record.outcome == Outcome::Ok);
            match upper {
                _ if known.contains(&trial.key) => later.push((trial.key, trial.record)),
                Some(upper) => {
                    known.insert(trial.key);
                    firsts.push((upper, trial));
                }
                // A failure before the first time does not exclude a schedule.
                None => {}
            }
        }
        firsts.sort_by(|one, other| one.0.total_cmp(&other.0));
        let entries = firsts.iter().map(|(upper, first)| Entry::new(first.record.median_ns.unwrap_or(*upper), *upper));
        let default = firsts.iter().position(|(_, first)| first.key == search.default_attempt().key);
        let mut contest = Contest::new(entries.collect(), default);
        let numbers: HashMap<Key, usize> =
            firsts.iter().enumerate().map(|(number, (_, first))| (first.key, number)).collect();
        for round in group_rounds(&later, &numbers) {
            contest.resume(&round);
        }
        let (attempts, schedules) = firsts.into_iter().map(|(_, first)| (first.attempt, first.schedule)).unzip();
        FinalMatch { contest, attempts, schedules }
    }
}

fn group_rounds(later: &[(Key, &Record)], numbers: &HashMap<Key, usize>) -> Vec<Vec<(usize, Option<f64>)>> {
    let moments = later.iter().map(|(key, record)| (*key, record.run_id.clone(), record.started_at_us));
    let mut rounds: Vec<Vec<(usize, Option<f64>)>> = Vec::new();
    for (round, (key, record)) in datasets::fastest::number_rounds(moments).into_iter().zip(later) {
        rounds.resize_with(rounds.len().max(round + 1), Vec::new);
        rounds[round].push((numbers[key], record.median_ns.filter(|_| record.outcome == Outcome::Ok)));
    }
    rounds
}

impl Source for Finals {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        let mut proposed = Vec::new();
        for one in &mut self.contests {
            if proposed.len() >= builds {
                break;
            }
            let round = one.contest.next_round();
            proposed.extend(round.into_iter().map(|number| one.attempts[number].clone()));
        }
        proposed
    }

    fn observe(&mut self, attempt: &Attempt, record: &Record) {
        let ns = record.median_ns.filter(|_| record.outcome == Outcome::Ok);
        self.observe_time(attempt, ns);
    }

    fn skip_attempt(&mut self, attempt: &Attempt) {
        self.observe_time(attempt, None);
    }

    fn progress_message(&self) -> Option<String> {
        let known = self.contests.iter().filter(|one| one.contest.is_over()).count();
        Some(format!("final measurement: {known} of {} searches are decided", self.contests.len()))
    }

    /// Returns the number of unfinished contests instead of attempts, because the number of rounds is not known yet.
    fn attempts_left(&self) -> usize {
        self.contests.iter().filter(|one| !one.contest.is_over()).count()
    }
}

impl Finals {
    fn observe_time(&mut self, attempt: &Attempt, ns: Option<f64>) {
        for one in &mut self.contests {
            if let Some(number) = one.attempts.iter().position(|own| own.key == attempt.key) {
                one.contest.observe_time(number, ns);
            }
        }
    }
}
