//! What searches found, and how soon: best times so far over trials and over seconds.

use crate::campaign::{Finals, Found, PlannedTask, Search, Stop, Tuning, Verdict};
use datasets::{CacheState, Key, Outcome, Record};
use job::space::{Schedule, space};
use job::target::Target;
use measure::statistics::median;
use report::{Paper, Table, duration, figures, or_unknown, words};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// A search and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learning {
    /// The task in words.
    pub task: String,
    /// Hash of the task.
    pub task_hash: String,
    /// How often the models of the campaign run it.
    pub count: usize,
    /// Its threads.
    pub threads: usize,
    /// What caches held.
    pub cache_state: CacheState,
    /// Schedules that were tried, those of other campaigns included.
    pub trials: usize,
    /// Of those the ones that gave no time.
    pub without_time: usize,
    /// When the first of them began, in microseconds from 1970.
    pub began_at_us: Option<i64>,
    /// Seconds of the processes that tried them, from each one's first trial of this task to its last.
    pub seconds: f64,
    /// Time of the default schedule, in nanoseconds: the middle, where it was measured again.
    pub default_ns: Option<f64>,
    /// The best time, in nanoseconds: its middle where it was measured again.
    pub best_ns: Option<f64>,
    /// How the best schedule differs from the default one.
    pub difference: String,
    /// The best schedule in full.
    pub schedule: Option<Schedule>,
    /// How the best few compare that were measured again.
    #[serde(rename = "final")]
    pub verdict: Option<Verdict>,
    /// Why it had no more trials.
    pub stop: Stop,
    /// Every trial that was better than all before, and the last one.
    pub curve: Vec<Point>,
}

/// The best time after a trial, by the upper ends of medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Which trial it was, from 1.
    pub trial: usize,
    /// Seconds from the first trial.
    pub seconds: f64,
    /// The best time in nanoseconds.
    pub best_ns: f64,
}

/// What became of each search. Records hold every measurement, in the order of time.
pub fn learnings(
    tuning: &Tuning,
    finals: &Finals,
    records: &[Record],
    tasks: &[PlannedTask],
    target: &Target,
) -> Vec<Learning> {
    let searches = tuning.searches().iter().zip(finals.found()).zip(tuning.stops());
    searches.map(|((search, found), stop)| learning(search, found, stop, records, tasks, target)).collect()
}

fn learning(
    search: &Search,
    found: Option<Found<'_>>,
    stop: Stop,
    records: &[Record],
    tasks: &[PlannedTask],
    target: &Target,
) -> Learning {
    let planned = &tasks[search.default().task];
    let default = Schedule::Template { knobs: space(&planned.task, &target.machine).default };
    let mut seen: HashSet<Key> = HashSet::new();
    let is_first = |record: &&Record| search.owns(record) && search.usable(record).is_some() && seen.insert(record.key);
    let firsts: Vec<&Record> = records.iter().filter(is_first).collect();
    let is_default = |record: &&&Record| record.schedule_hash.as_deref() == Some(&default.hash());
    let is_right = |record: &&&Record| record.outcome == Outcome::Ok;
    let rank = |record: &&Record| record.upper_end_ns().unwrap_or(f64::INFINITY);
    let best = firsts.iter().filter(is_right).min_by(|one, other| rank(one).total_cmp(&rank(other)));
    let verdict = found.as_ref().map(|found| found.verdict.clone());
    let schedule = found.map(|found| found.schedule.clone()).or_else(|| search.usable(best?));
    let moments = seconds(&firsts);
    Learning {
        task: planned.task.describe(),
        task_hash: planned.task.hash(),
        count: planned.counts.iter().map(|(_, count)| count).sum(),
        threads: search.default().cpus.len(),
        cache_state: search.cache_state(),
        trials: firsts.len(),
        without_time: firsts.len() - firsts.iter().filter(is_right).count(),
        began_at_us: firsts.first().map(|record| record.started_at_us),
        seconds: moments.last().copied().unwrap_or(0.0),
        default_ns: middle(records, firsts.iter().find(is_default).map(|record| record.key)),
        best_ns: verdict.as_ref().map(|verdict| verdict.median_ns).or_else(|| best?.median_ns),
        difference: schedule.as_ref().map(|schedule| difference(schedule, &default)).unwrap_or_default(),
        schedule,
        verdict,
        stop,
        curve: curve(&firsts, &moments),
    }
}

/// The middle of all times of an experiment.
fn middle(records: &[Record], key: Option<Key>) -> Option<f64> {
    let own = records.iter().filter(|record| Some(record.key) == key && record.outcome == Outcome::Ok);
    let mut times: Vec<f64> = own.filter_map(|record| record.median_ns).collect();
    times.sort_by(f64::total_cmp);
    (!times.is_empty()).then(|| median(&times))
}

fn difference(schedule: &Schedule, default: &Schedule) -> String {
    match default {
        Schedule::Template { knobs } => schedule.difference(knobs),
        Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => schedule.describe(),
    }
}

/// When each trial ended being tried, in seconds from the first: what lies between two processes is no time of a search.
fn seconds(trials: &[&Record]) -> Vec<f64> {
    let mut spans: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for record in trials {
        let span = spans.entry(&record.run_id).or_insert_with(|| {
            order.push(&record.run_id);
            (record.started_at_us, record.started_at_us)
        });
        span.1 = span.1.max(record.started_at_us);
    }
    let mut before = BTreeMap::new();
    let mut passed = 0;
    for run in order {
        before.insert(run, passed);
        passed += spans[run].1 - spans[run].0;
    }
    let moment = |record: &&Record| {
        let run = record.run_id.as_str();
        (before[run] + record.started_at_us - spans[run].0) as f64 / 1e6
    };
    trials.iter().map(moment).collect()
}

fn curve(trials: &[&Record], moments: &[f64]) -> Vec<Point> {
    let mut curve: Vec<Point> = Vec::new();
    let mut best_ns = f64::INFINITY;
    for (place, (record, seconds)) in trials.iter().zip(moments).enumerate() {
        let own = record.upper_end_ns().filter(|_| record.outcome == Outcome::Ok).unwrap_or(f64::INFINITY);
        let is_last = place + 1 == trials.len();
        if own < best_ns || is_last && best_ns.is_finite() {
            best_ns = best_ns.min(own);
            curve.push(Point { trial: place + 1, seconds: *seconds, best_ns });
        }
    }
    curve
}

impl Learning {
    /// The trial after which nothing was gained but the last percent, and its second.
    fn almost(&self) -> Option<&Point> {
        const ALMOST: f64 = 1.01;
        let best_ns = self.curve.last()?.best_ns;
        self.curve.iter().find(|point| point.best_ns <= ALMOST * best_ns)
    }

    /// How sure the best is, in words.
    pub fn certainty(&self) -> String {
        let Some(verdict) = &self.verdict else { return "measured once".to_owned() };
        let second = verdict.second_over_best.map(|ratio| format!(", next {:.3}×", ratio.median)).unwrap_or_default();
        let what = match (verdict.equals, verdict.undecided) {
            (_, undecided) if undecided > 0 => format!("not told from {undecided}"),
            (equals, _) if equals > 0 => format!("equal to {equals}"),
            _ => "fastest".to_owned(),
        };
        format!("{what} of {}, {} rounds{second}", verdict.measured_again, verdict.rounds)
    }
}

/// The searches as a table.
pub fn render(learnings: &[Learning], paper: &Paper) -> String {
    let mut table = Table::new([
        words("search").least(24),
        figures("threads").drops(3),
        figures("trials"),
        figures("failed").drops(4),
        figures("seconds").drops(5),
        figures("default").drops(2),
        figures("best"),
        figures("gain"),
        figures("within 1 % after").drops(6),
        words("measured again").least(16).drops(7),
        words("ended by").least(8).drops(8),
    ]);
    for one in learnings {
        let gain = one.default_ns.zip(one.best_ns).map(|(default, best)| default / best);
        table.row([
            one.task.clone(),
            one.threads.to_string(),
            one.trials.to_string(),
            one.without_time.to_string(),
            format!("{:.1}", one.seconds),
            or_unknown(one.default_ns, duration),
            or_unknown(one.best_ns, duration),
            or_unknown(gain, |gain| format!("{gain:.2}×")),
            or_unknown(one.almost(), |point| format!("{} trials", point.trial)),
            one.certainty(),
            one.stop.words().to_owned(),
        ]);
    }
    let text = table.on(paper).to_string();
    format!("{text}\nbest: the middle of what was measured again in turns; gain: the default schedule's time over it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(run: &str, started_at_us: i64, ns: Option<f64>) -> Record {
        Record {
            run_id: run.to_owned(),
            started_at_us,
            outcome: if ns.is_some() { Outcome::Ok } else { Outcome::Crashed },
            median_ns: ns,
            median_interval_ns: ns.map(|_| 0.0),
            ..Record::default()
        }
    }

    #[test]
    fn a_curve_goes_down_and_knows_nothing_of_pauses() {
        let trials = [
            record("a", 1_000_000, None),
            record("a", 2_000_000, Some(50.0)),
            record("a", 3_000_000, Some(60.0)),
            record("b", 900_000_000, Some(40.0)),
            record("b", 902_000_000, None),
        ];
        let trials: Vec<&Record> = trials.iter().collect();
        let moments = seconds(&trials);
        assert_eq!(moments, [0.0, 1.0, 2.0, 2.0, 4.0]);
        let point = |trial, seconds, best_ns| Point { trial, seconds, best_ns };
        assert_eq!(curve(&trials, &moments), [point(2, 1.0, 50.0), point(4, 2.0, 40.0), point(5, 4.0, 40.0)]);
        assert_eq!(curve(&trials[..1], &moments[..1]), []);
    }
}
