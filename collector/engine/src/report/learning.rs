//! The report of searches: best times over trials and over seconds, and the axes with the largest effects.

use crate::campaign::{
    CLEAR_DIFFERENCE, Finals, FoundBest, Outcomes, PlannedTask, Search, Stop, Trial, Tuning, Verdict, ranking_time,
};
use datasets::fastest::{EQUAL, LEAST_ROUNDS};
use datasets::{CacheState, Key, Outcome, Record};
use job::space::{Knobs, Schedule, task_space};
use measure::statistics::median;
use report::{Paper, Table, format_count, format_duration, format_plain, number_column, or_unknown, text_column};
use search::{Effect, axis_effects};
use serde::Serialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use targets::Target;

/// Result of one search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learning {
    /// Description of the task.
    pub task: String,
    /// Hash of the task.
    pub task_hash: String,
    /// Number of calls of the task in the models of the campaign.
    pub count: usize,
    /// Number of threads.
    pub threads: usize,
    /// State of the caches before each run.
    pub cache_state: CacheState,
    /// Number of distinct schedules that were tried, including those of other campaigns.
    pub trials: usize,
    /// Number of additional candidates that were built and then rejected by the cost model.
    pub passed_over: usize,
    /// Number of trials without a time.
    pub without_time: usize,
    /// Start of the first trial, in microseconds since 1970.
    pub began_at_us: Option<i64>,
    /// Duration of the trials in seconds: the sum over processes of the time from the first trial to the last.
    pub seconds: f64,
    /// Time of the default schedule in nanoseconds: the best time multiplied by the gain if both were measured again,
    /// because the machine may drift between rounds.
    pub default_ns: Option<f64>,
    /// Time of the best schedule in nanoseconds; a median over repetitions if it was measured again.
    pub best_ns: Option<f64>,
    /// Default time divided by best time: a median of ratios within rounds if both were measured again.
    pub gain: Option<f64>,
    /// Differences of the best schedule from the default one.
    pub difference: String,
    /// Median of the first measurement of the default schedule, in nanoseconds.
    #[serde(skip)]
    pub(super) first_default_ns: Option<f64>,
    /// The best schedule.
    pub schedule: Option<Schedule>,
    /// Result of the repeated measurements of the best schedules, if there were any.
    #[serde(rename = "final")]
    pub verdict: Option<Verdict>,
    /// Reason why the search ended.
    pub stop: Stop,
    /// Learning curve: every trial that improved the best time, and the last trial.
    pub curve: Vec<LearningPoint>,
    /// Effects of the axes around the best schedules, the largest first.
    pub axes: Vec<Effect>,
    /// For each trial: its start in microseconds since 1970, the run that made it, and the best time after it.
    #[serde(skip)]
    course: Vec<(i64, String, BestTime)>,
}

/// Learning curve of all tasks for one number of threads and cache state: the sum of best times, weighted by calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearningCourse {
    /// Number of threads.
    pub threads: usize,
    /// State of the caches before each run.
    pub cache_state: CacheState,
    /// Number of searched tasks.
    pub tasks: usize,
    /// The sum after each improvement and after the last trial, starting when every task has a time.
    pub curve: Vec<LearningPoint>,
}

/// Time that the searches of a campaign took, and the shares of tuners, builds and runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effort {
    /// Duration of all trials and final measurements in seconds.
    pub seconds: f64,
    /// Time that tuners took to propose and to learn, in seconds.
    pub tuner_seconds: f64,
    /// Share of the duration that tuners took.
    pub tuner_share: f64,
    /// Share of the duration spent waiting for runs.
    pub run_share: f64,
    /// Share of the duration spent waiting for builds.
    pub build_share: f64,
}

impl Effort {
    /// Computes the shares. `busy` is the time spent in tuners, `all` the whole duration.
    pub fn new(outcomes: &Outcomes, busy: Duration, all: Duration) -> Effort {
        let seconds = all.as_secs_f64();
        let share = |part: f64| if seconds > 0.0 { part / seconds } else { 0.0 };
        Effort {
            seconds,
            tuner_seconds: busy.as_secs_f64(),
            tuner_share: share(busy.as_secs_f64()),
            run_share: share(outcomes.run_ms as f64 / 1e3),
            build_share: share(outcomes.build_ms as f64 / 1e3),
        }
    }

    /// Describes the duration of the searches and how it was spent; None if nothing was built or run, because all
    /// records were known.
    pub(super) fn describe(&self) -> Option<String> {
        (self.run_share + self.build_share > 0.0).then(|| {
            format!(
                "{:.1} s of search in this run: {:.0} % waiting for runs, {:.0} % for builds, {:.2} s ({:.1} %) in the \
                 tuner",
                self.seconds,
                100.0 * self.run_share,
                100.0 * self.build_share,
                self.tuner_seconds,
                100.0 * self.tuner_share
            )
        })
    }
}

/// Results of all searches of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResults {
    /// Result of each search.
    pub learnings: Vec<Learning>,
    /// Learning curves of all tasks together, one per number of threads and cache state.
    pub courses: Vec<LearningCourse>,
    /// Time that the searches took, and how it was spent.
    pub effort: Effort,
}

/// Time of the schedule whose median has the lowest upper end of its confidence interval so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BestTime {
    upper_ns: f64,
    median_ns: f64,
}

impl BestTime {
    const UNKNOWN: BestTime = BestTime { upper_ns: f64::INFINITY, median_ns: f64::INFINITY };

    fn with_trial(self, record: &Record) -> BestTime {
        let upper_ns = ranking_time(record).unwrap_or(f64::INFINITY);
        match upper_ns < self.upper_ns {
            true => BestTime { upper_ns, median_ns: record.median_ns.unwrap_or(upper_ns) },
            false => self,
        }
    }
}

/// A point of a learning curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LearningPoint {
    /// Number of the trial, from 1.
    pub trial: usize,
    /// Seconds since the first trial.
    pub seconds: f64,
    /// Best time in nanoseconds: the upper end of a median's confidence interval, by which searches rank.
    pub best_ns: f64,
    /// That median, in nanoseconds.
    pub median_ns: f64,
}

/// Returns the result of each search. `records` contains every measurement, in chronological order.
pub fn summarise_searches(
    tuning: &Tuning,
    finals: &Finals,
    records: &[Record],
    tasks: &[PlannedTask],
    target: &Target,
) -> Vec<Learning> {
    let searches = tuning.searches().iter().zip(finals.found_bests()).zip(tuning.stop_reasons());
    searches.map(|((search, found), stop)| summarise_search(search, found, stop, records, tasks, target)).collect()
}

fn summarise_search(
    search: &Search,
    found: Option<FoundBest<'_>>,
    stop: Stop,
    records: &[Record],
    tasks: &[PlannedTask],
    target: &Target,
) -> Learning {
    let planned = &tasks[search.default_attempt().task];
    let default = Schedule::Template { knobs: task_space(&planned.task, &target.machine).default };
    let (passed_over, tried): (Vec<Trial<'_>>, Vec<Trial<'_>>) =
        search.match_trials(records).into_iter().partition(|trial| trial.record.outcome == Outcome::PassedOver);
    let seen: HashSet<Key> = tried.iter().map(|trial| trial.key).collect();
    let default_ns = median_time(&tried, search.default_attempt().key);
    let trials = first_times(tried);
    let firsts: Vec<&Record> = trials.iter().map(|trial| trial.record).collect();
    let rank = |trial: &&Trial<'_>| ranking_time(trial.record).unwrap_or(f64::INFINITY);
    let right = trials.iter().filter(|trial| trial.record.outcome == Outcome::Ok);
    let best = right.clone().min_by(|one, other| rank(one).total_cmp(&rank(other)));
    let verdict = found.as_ref().map(|found| found.verdict.clone());
    let schedule = found.map(|found| found.schedule.clone()).or_else(|| Some(best?.schedule.clone()));
    let moments = start_seconds(&firsts);
    let best_ns = verdict.as_ref().map(|verdict| verdict.median_ns).or_else(|| best?.record.median_ns);
    let within_rounds = verdict.as_ref().and_then(|verdict| verdict.default_over_best).map(|ratio| ratio.median);
    let is_default = schedule.as_ref() == Some(&default);
    let of_itself = is_default.then_some(1.0);
    let gain = within_rounds.or(of_itself).or_else(|| Some(default_ns? / best_ns?));
    let first_default = trials.iter().find(|trial| trial.key == search.default_attempt().key);
    Learning {
        task: planned.task.describe(),
        task_hash: planned.task.hash(),
        count: planned.counts.iter().map(|(_, count)| count).sum(),
        threads: search.default_attempt().cpus.len(),
        cache_state: search.cache_state(),
        trials: firsts.len(),
        passed_over: passed_over.iter().filter(|trial| !seen.contains(&trial.key)).count(),
        without_time: firsts.len() - right.count(),
        began_at_us: firsts.first().map(|record| record.started_at_us),
        seconds: moments.last().copied().unwrap_or(0.0),
        default_ns: default_time(default_ns, best_ns, within_rounds.or(of_itself)),
        best_ns,
        gain,
        first_default_ns: first_default.and_then(|trial| trial.record.median_ns),
        difference: schedule.as_ref().map(|schedule| describe_difference(schedule, &default)).unwrap_or_default(),
        schedule,
        verdict,
        stop,
        curve: improvement_curve(&firsts, &moments),
        axes: search_effects(search, &trials),
        course: trial_course(&firsts),
    }
}

/// Returns one attempt per experiment, in chronological order: the first one with a time, or the first one.
fn first_times(trials: Vec<Trial<'_>>) -> Vec<Trial<'_>> {
    let mut firsts: HashMap<Key, Trial<'_>> = HashMap::new();
    for trial in trials {
        match firsts.entry(trial.key) {
            Entry::Vacant(entry) => drop(entry.insert(trial)),
            Entry::Occupied(mut entry) => {
                if ranking_time(entry.get().record).is_none() && ranking_time(trial.record).is_some() {
                    entry.insert(trial);
                }
            }
        }
    }
    let mut firsts: Vec<Trial<'_>> = firsts.into_values().collect();
    firsts.sort_by_key(|trial| (trial.record.started_at_us, trial.key));
    firsts
}

/// Estimates the effects of the schedule axes on the time, with regression trees.
fn search_effects(search: &Search, trials: &[Trial<'_>]) -> Vec<Effect> {
    const SEED: u64 = 1;
    let timed = trials.iter().filter_map(|trial| {
        let Schedule::Template { knobs } = &trial.schedule else { return None };
        Some((knobs.clone(), ranking_time(trial.record)?))
    });
    let timed: Vec<(Knobs, f64)> = timed.collect();
    axis_effects(search.problem(), &timed, SEED).unwrap_or_default()
}

fn trial_course(trials: &[&Record]) -> Vec<(i64, String, BestTime)> {
    let mut best = BestTime::UNKNOWN;
    let steps = trials.iter().map(|record| {
        best = best.with_trial(record);
        (record.started_at_us, record.run_id.clone(), best)
    });
    steps.collect()
}

/// Returns one learning curve per number of threads and cache state, summed over the searches.
pub fn sum_courses(learnings: &[Learning]) -> Vec<LearningCourse> {
    let mut settings: Vec<(usize, CacheState)> = Vec::new();
    for one in learnings {
        if !settings.contains(&(one.threads, one.cache_state)) {
            settings.push((one.threads, one.cache_state));
        }
    }
    let of = |(threads, cache_state): (usize, CacheState)| {
        let own: Vec<&Learning> =
            learnings.iter().filter(|one| one.threads == threads && one.cache_state == cache_state).collect();
        LearningCourse { threads, cache_state, tasks: own.len(), curve: sum_curves(&own) }
    };
    settings.into_iter().map(of).collect()
}

/// Returns the sum of the searches' best times after each trial, starting when all searches have a time.
fn sum_curves(learnings: &[&Learning]) -> Vec<LearningPoint> {
    let trials = learnings.iter().enumerate();
    let trials = trials
        .flat_map(|(place, one)| one.course.iter().map(move |(began, run, best)| (*began, run.as_str(), place, *best)));
    let mut trials: Vec<(i64, &str, usize, BestTime)> = trials.collect();
    trials.sort_by_key(|(began, _, place, _)| (*began, *place));
    let starts: Vec<(&str, i64)> = trials.iter().map(|(began, run, ..)| (*run, *began)).collect();
    let mut bests = vec![BestTime::UNKNOWN; learnings.len()];
    let sum = |bests: &[BestTime], time: fn(&BestTime) -> f64| -> f64 {
        bests.iter().zip(learnings).map(|(best, one)| time(best) * one.count as f64).sum()
    };
    let mut curve: Vec<LearningPoint> = Vec::new();
    for (number, ((.., place, best), seconds)) in trials.iter().zip(elapsed_seconds(&starts)).enumerate() {
        bests[*place] = *best;
        let (best_ns, median_ns) = (sum(&bests, |best| best.upper_ns), sum(&bests, |best| best.median_ns));
        let is_news = curve.last().is_none_or(|last| best_ns < last.best_ns) || number + 1 == trials.len();
        if best_ns.is_finite() && is_news {
            curve.push(LearningPoint { trial: number + 1, seconds, best_ns, median_ns });
        }
    }
    curve
}

/// Returns the time of the default schedule by its ratio to the best one, so that times, gains and sums agree; or its
/// own median if the ratio is unknown.
fn default_time(median_ns: Option<f64>, best_ns: Option<f64>, over_best: Option<f64>) -> Option<f64> {
    best_ns.zip(over_best).map(|(best_ns, ratio)| best_ns * ratio).or(median_ns)
}

fn median_time(trials: &[Trial<'_>], key: Key) -> Option<f64> {
    let own = trials.iter().filter(|trial| trial.key == key && trial.record.outcome == Outcome::Ok);
    median(&own.filter_map(|trial| trial.record.median_ns).collect::<Vec<f64>>())
}

fn describe_difference(schedule: &Schedule, default: &Schedule) -> String {
    match default {
        Schedule::Template { knobs } => schedule.describe_difference(knobs),
        Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => schedule.describe_knobs(),
    }
}

fn start_seconds(trials: &[&Record]) -> Vec<f64> {
    let starts: Vec<(&str, i64)> = trials.iter().map(|record| (record.run_id.as_str(), record.started_at_us)).collect();
    elapsed_seconds(&starts)
}

/// Returns the seconds from the first start to each start; gaps between runs do not count.
fn elapsed_seconds(starts: &[(&str, i64)]) -> Vec<f64> {
    let mut spans: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for &(run, moment) in starts {
        let span = spans.entry(run).or_insert_with(|| {
            order.push(run);
            (moment, moment)
        });
        span.1 = span.1.max(moment);
    }
    let mut before = BTreeMap::new();
    let mut passed = 0;
    for run in order {
        before.insert(run, passed);
        passed += spans[run].1 - spans[run].0;
    }
    starts.iter().map(|(run, moment)| (before[run] + moment - spans[run].0) as f64 / 1e6).collect()
}

fn improvement_curve(trials: &[&Record], moments: &[f64]) -> Vec<LearningPoint> {
    let mut curve: Vec<LearningPoint> = Vec::new();
    let mut best = BestTime::UNKNOWN;
    for (place, (record, seconds)) in trials.iter().zip(moments).enumerate() {
        let (before, is_last) = (best, place + 1 == trials.len());
        best = best.with_trial(record);
        if best != before || is_last && best.upper_ns.is_finite() {
            let BestTime { upper_ns, median_ns } = best;
            curve.push(LearningPoint { trial: place + 1, seconds: *seconds, best_ns: upper_ns, median_ns });
        }
    }
    curve
}

impl Learning {
    /// Returns the first trial after which the best time was within one percent of the final best time.
    pub(super) fn near_best_point(&self) -> Option<&LearningPoint> {
        const NEAR_BEST: f64 = 1.0 + EQUAL;
        let best_ns = self.curve.last()?.best_ns;
        self.curve.iter().find(|point| point.best_ns <= NEAR_BEST * best_ns)
    }

    /// Returns the task with the conditions that distinguish searches of it.
    pub(super) fn title(&self) -> String {
        let caches = match self.cache_state {
            CacheState::Warm => String::new(),
            state => format!(", {state} caches"),
        };
        format!("{}, {}{caches}", self.task, format_count(self.threads, "thread"))
    }

    /// Formats the gain with its 95 % interval, or with its range over rounds if there are too few for an interval.
    pub(super) fn format_gain(&self) -> String {
        let range = self.gain_range().map(|(low, high)| format!(" ({low:.2} … {high:.2})")).unwrap_or_default();
        or_unknown(self.gain, |gain| format!("{gain:.2}×{range}"))
    }

    /// Returns whether the best schedule is faster than the default one: by the interval of the gain, or in all rounds.
    fn is_faster(&self) -> bool {
        let is_above = self.gain_interval().is_some_and(|(low, _)| low > 1.0);
        is_above || self.verdict.as_ref().is_some_and(|verdict| verdict.is_default_slower)
    }

    /// Returns whether the search found a schedule that is faster than the default one by more than [`MIN_GAIN`].
    pub(super) fn has_gained(&self) -> bool {
        self.is_faster() && self.gain.is_some_and(|gain| gain > MIN_GAIN)
    }

    /// Returns whether the search tried schedules in addition to the default one.
    pub(super) fn has_alternatives(&self) -> bool {
        self.trials > 1
    }

    /// Formats the duration of the trials, which a single trial does not have.
    pub(super) fn seconds_text(&self) -> String {
        if self.has_alternatives() { format!("{:.1}", self.seconds) } else { report::UNKNOWN.to_owned() }
    }

    /// Returns the 95 % interval of the gain, or its range over rounds if there are too few for an interval.
    pub(super) fn gain_range(&self) -> Option<(f64, f64)> {
        self.gain_interval().or(self.verdict.as_ref()?.default_range)
    }

    fn gain_interval(&self) -> Option<(f64, f64)> {
        self.verdict.as_ref()?.default_over_best?.interval
    }

    /// Returns how many of the other schedules that were measured again are as fast as the best one within the noise.
    pub(super) fn describe_ties(&self) -> String {
        let Some(verdict) = &self.verdict else { return "measured once".to_owned() };
        let others = verdict.measured_again.saturating_sub(1);
        match verdict.tied() {
            _ if others == 0 => report::UNKNOWN.to_owned(),
            0 => format!("none of {others}"),
            tied => format!("{tied} of {others}"),
        }
    }

    /// Returns the time of the second-best schedule relative to that of the best one.
    pub(super) fn describe_runner_up(&self) -> String {
        let ratio = self.verdict.as_ref().and_then(|verdict| verdict.second_over_best);
        or_unknown(ratio, |ratio| format!("{:.3}×", ratio.median))
    }

    /// Returns the number of rounds in which the best schedule was measured again.
    pub(super) fn describe_rounds(&self) -> String {
        or_unknown(self.verdict.as_ref(), |verdict| verdict.rounds.to_string())
    }

    /// Describes the certainty that the best schedule is the fastest.
    pub(super) fn describe_certainty(&self) -> String {
        let Some(verdict) = &self.verdict else { return "measured once".to_owned() };
        let others = verdict.measured_again.saturating_sub(1);
        let among = format!("{} in {}", format_count(others, "other schedule"), format_count(verdict.rounds, "round"));
        match verdict.tied() {
            _ if others == 0 => format!("measured again in {}", format_count(verdict.rounds, "round")),
            0 => format!("faster than the {among}"),
            tied => format!("tied with {tied} of the {among}"),
        }
    }
}

/// Gain above which a search found something.
const MIN_GAIN: f64 = 1.0 + EQUAL;

fn search_table(learnings: &[Learning]) -> Table {
    let mut table = Table::new([
        text_column("search").min_width(24),
        number_column("threads").drop_order(3),
        number_column("trials"),
        number_column("failed").drop_order(4),
        number_column("seconds").drop_order(5),
        number_column("default").drop_order(2),
        number_column("best"),
        number_column("gain"),
        number_column("within 1 % after").drop_order(6),
        text_column("tied with").drop_order(7),
        number_column("runner-up").drop_order(9),
        number_column("rounds").drop_order(10),
        text_column("ended by").min_width(8).drop_order(8),
    ]);
    for one in learnings {
        table.add_row([
            one.task.clone(),
            one.threads.to_string(),
            one.trials.to_string(),
            one.without_time.to_string(),
            one.seconds_text(),
            or_unknown(one.default_ns, format_duration),
            or_unknown(one.best_ns, format_duration),
            or_unknown(one.gain, |gain| format!("{gain:.2}×")),
            or_unknown(one.near_best_point(), |point| format_count(point.trial, "trial")),
            one.describe_ties(),
            one.describe_runner_up(),
            one.describe_rounds(),
            one.stop.reason_text().to_owned(),
        ]);
    }
    table
}

/// Explains the durations of searches, whose trials alternate.
pub(super) const CLOCK: &str =
    "seconds: from the first trial of a search to its last, including trials of other searches in between";

/// Explains which gains count, in the order of [`Learning::has_gained`].
pub(super) fn describe_clear_gains() -> String {
    format!(
        "a gain is clear if its 95 % interval lies above 1, or if the best schedule was more than {} % faster in all \
         of at least {LEAST_ROUNDS} rounds",
        format_plain(100.0 * CLEAR_DIFFERENCE)
    )
}

/// Formats the searches as a table.
pub fn render_searches(searched: &SearchResults, paper: &Paper) -> String {
    let text = search_table(&searched.learnings).format_for(paper)
        + &rejected_note(&searched.learnings)
        + &unimproved_note(&searched.learnings);
    let effort = searched.effort.describe().map_or(String::new(), |effort| format!("\n{effort}"));
    format!(
        "{text}\nbest: median of the final interleaved measurement; gain: time of the default schedule over it, \
         median of the ratios in the same rounds; default: best × gain; tied with: other schedules measured again \
         in these rounds that are as fast within the noise; runner-up: time of the second-best schedule over the best \
         one\n{CLOCK}{effort}"
    )
}

fn rejected_note(learnings: &[Learning]) -> String {
    let count: usize = learnings.iter().map(|one| one.passed_over).sum();
    let text = "more were built but rejected by the cost model and not run; they are not trials";
    if count == 0 { String::new() } else { format!("\n{count} {text}") }
}

/// Describes how many searches found nothing that is clearly faster than the default schedule.
fn unimproved_note(learnings: &[Learning]) -> String {
    let tried: Vec<&Learning> = learnings.iter().filter(|one| one.has_alternatives()).collect();
    let few = tried.iter().filter(|one| !one.has_gained()).count();
    if few == 0 {
        return String::new();
    }
    format!(
        "\n{few} of {} that tried alternatives did not clearly gain more than {} % over the default schedule{}; {}",
        count_searches(tried.len()),
        format_plain(100.0 * EQUAL),
        describe_unconfirmed(&tried),
        describe_clear_gains()
    )
}

/// Describes how many searches had no final measurement, as when `--budget` ends them; empty if all had one.
pub(super) fn describe_unconfirmed(searches: &[&Learning]) -> String {
    match searches.iter().filter(|one| one.verdict.is_none()).count() {
        0 => String::new(),
        once => format!(" ({once} had no final measurement, without which no gain is clear)"),
    }
}

pub(super) fn count_searches(count: usize) -> String {
    if count == 1 { "1 search".to_owned() } else { format!("{count} searches") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::learning_page::learning_page;
    use datasets::Covers;

    fn record(run: &str, started_at_us: i64, ns: Option<f64>) -> Record {
        Record {
            run_id: run.to_owned(),
            started_at_us,
            outcome: if ns.is_some() { Outcome::Ok } else { Outcome::Crashed },
            median_ns: ns,
            median_interval_ns: ns.map(|_| 0.0),
            interval_covers: Some(Covers::Visits),
            ..Record::default()
        }
    }

    #[test]
    fn a_curve_decreases_and_excludes_pauses() {
        let trials = [
            record("a", 1_000_000, None),
            record("a", 2_000_000, Some(50.0)),
            record("a", 3_000_000, Some(60.0)),
            record("b", 900_000_000, Some(40.0)),
            record("b", 902_000_000, None),
        ];
        let trials: Vec<&Record> = trials.iter().collect();
        let moments = start_seconds(&trials);
        assert_eq!(moments, [0.0, 1.0, 2.0, 2.0, 4.0]);
        let point = |trial, seconds, best_ns| LearningPoint { trial, seconds, best_ns, median_ns: best_ns };
        assert_eq!(
            improvement_curve(&trials, &moments),
            [point(2, 1.0, 50.0), point(4, 2.0, 40.0), point(5, 4.0, 40.0)]
        );
        assert_eq!(improvement_curve(&trials[..1], &moments[..1]), []);
    }

    /// Returns a search with a gain by `verdict`.
    fn learning(trials: usize, gain: f64, verdict: Option<Verdict>) -> Learning {
        Learning {
            task: format!("matmul {trials}"),
            task_hash: String::new(),
            count: 1,
            threads: 1,
            cache_state: CacheState::Cold,
            trials,
            passed_over: 0,
            without_time: 0,
            began_at_us: None,
            seconds: 0.0,
            default_ns: None,
            best_ns: None,
            gain: Some(gain),
            first_default_ns: None,
            difference: String::new(),
            schedule: None,
            verdict,
            stop: Stop::Trials,
            curve: Vec::new(),
            axes: Vec::new(),
            course: Vec::new(),
        }
    }

    fn verdict(measured_again: usize, is_default_slower: bool) -> Verdict {
        Verdict {
            winner: 0,
            median_ns: 1.0,
            rounds: 9,
            measured_again,
            equals: 0,
            undecided: 0,
            second_over_best: None,
            default_over_best: None,
            default_range: None,
            is_default_slower,
        }
    }

    #[test]
    fn equal_and_undecided_schedules_are_tied() {
        let of = |verdict| learning(9, 1.0, Some(verdict));
        let tied = of(Verdict { equals: 2, undecided: 1, ..verdict(6, false) });
        assert_eq!(tied.describe_ties(), "3 of 5");
        assert_eq!(tied.describe_certainty(), "tied with 3 of the 5 other schedules in 9 rounds");
        assert_eq!(of(verdict(3, false)).describe_ties(), "none of 2");
        let alone = of(verdict(1, false));
        assert_eq!([alone.describe_ties(), alone.describe_certainty()], ["–", "measured again in 9 rounds"]);
    }

    #[test]
    fn the_default_time_follows_from_the_gain() {
        assert_eq!(default_time(Some(1.8), Some(2.0), Some(1.5)), Some(3.0));
        assert_eq!(default_time(Some(1.8), Some(2.0), None), Some(1.8), "both were measured once");
        assert_eq!(default_time(Some(1.8), None, Some(1.5)), Some(1.8));
    }

    #[test]
    fn the_page_and_the_terminal_count_the_same_gains() {
        let learnings = vec![
            learning(9, 1.2, Some(verdict(3, true))),
            // Large, but within the noise.
            learning(8, 1.3, Some(verdict(3, false))),
            learning(7, 1.005, Some(verdict(3, true))),
            learning(1, 1.0, None),
            learning(0, 1.0, None),
        ];
        let effort = Effort { seconds: 1.0, tuner_seconds: 0.0, tuner_share: 0.0, run_share: 0.0, build_share: 0.0 };
        let mut searched = SearchResults { learnings, courses: Vec::new(), effort };
        let page = learning_page("curves", &searched);
        let rule = "a gain is clear if its 95 % interval lies above 1, or if the best schedule was more than 3 % \
                    faster in all of at least 3 rounds";
        let answer = "1 of the 3 searches that tried alternatives clearly gained more than 1 % over the default \
                      schedule; the largest such gain is 1.20×, matmul 9, 1 thread, cold caches. 1 search tried only \
                      the default schedule and 1 search tried no schedule.";
        assert!(page.contains(&format!("<p class=\"soft\">{}</p>", report::to_sentence(rule))), "{page}");
        assert!(page.contains(&format!("<p class=\"answer\">{answer}</p>")), "{page}");
        let text = render_searches(&searched, &Paper::without_colours(200));
        let note = "2 of 3 searches that tried alternatives did not clearly gain more than 1 % over the default";
        assert!(text.contains(note) && text.contains(rule), "{text}");
        assert!([page, text].iter().all(|one| !one.contains("of search in this run")), "nothing was run");
        searched.learnings.truncate(1);
        let answer = "The only search that tried alternatives clearly gained more than 1 % over the default schedule: \
                      1.20×, matmul 9, 1 thread, cold caches.";
        let page = learning_page("curves", &searched);
        assert!(page.contains(&format!("<p class=\"answer\">{answer}</p>")), "{page}");
        searched.effort.run_share = 0.5;
        let text = render_searches(&searched, &Paper::without_colours(200));
        assert!(text.contains("1.0 s of search in this run: 50 % waiting"), "{text}");
    }
}
