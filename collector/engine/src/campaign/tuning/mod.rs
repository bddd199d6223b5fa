//! The searches of a campaign as a source of attempts. Every trial is an ordinary attempt. Records of earlier runs are
//! learned first, and the next trials go to the search with the largest expected saving.

mod lessons;
mod task_search;
#[cfg(test)]
mod tests;

pub use lessons::Lessons;
pub(crate) use task_search::ranking_time;
pub use task_search::{Search, Stop, Trial};

use super::attempt::plan_attempts;
use super::choices::SamplerName;
use super::config::Config;
use super::module::PlannedModule;
use super::planned::{Attempt, Bases, Code, PlannedTask, PlanningError};
use super::source::Source;
use super::tune::Tune;
use bench::Breeder;
use datasets::{Key, Outcome, Record};
use job::space::{FilterError, Schedule};
use search::{Features, Problem, TrialResult, spending};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use targets::Target;

/// Number of trials of one search that are proposed at once; small, as each batch depends on earlier results.
const BATCH: usize = 4;
/// Number of recent trials whose gain the progress message reports.
const RECENT: usize = 32;

/// All searches of a campaign, which share its number of trials.
pub struct Tuning {
    tune: Tune,
    /// Attempts that are measured once, independent of searches: library tasks and whole programs.
    fixed: Vec<Attempt>,
    searches: Vec<Search>,
    /// Number of trials that may still be started.
    left: usize,
    /// Sum of the best times over all searches, appended after each result once every search has a time.
    totals: Vec<f64>,
    /// Keys of experiments with results.
    keys: HashSet<Key>,
    /// Keys of the experiments in `fixed`, including those that are already known.
    others: Vec<Key>,
    failure: Option<search::Error>,
    /// Time spent in tuners: proposing, learning and choosing the next search.
    busy: Duration,
}

/// The inputs of a search: the campaign's tasks, and the machine.
pub struct SearchInputs<'a> {
    /// Tasks of the campaign.
    pub tasks: &'a [PlannedTask],
    /// Models that are run as whole programs by a library.
    pub modules: &'a [PlannedModule],
    /// Target of the compiled code.
    pub target: &'a Target,
    /// Checked configuration.
    pub config: &'a Config,
    /// Base records with all columns that are known before the tasks are planned.
    pub bases: &'a Bases,
    /// CPUs on which measurements may run.
    pub cpus: &'a [usize],
    /// Number of bytes to write in order to flush the caches before a run with cold caches.
    pub flush_bytes: u64,
    /// Process that evolves schedules of TVM's own space.
    pub breeder: &'a Breeder,
}

/// Reason why a search cannot be created.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TuningError {
    #[error(transparent)]
    Planning(#[from] PlanningError),
    #[error("cannot search")]
    Search(#[from] search::Error),
    #[error("there is nothing to search: libraries compute all tasks of this campaign")]
    NoSpace,
    #[error("`only` leaves no schedule of `{task}`")]
    Empty { task: String, source: FilterError },
}

impl Tuning {
    /// Creates a search for each task, thread count and cache state whose default attempt satisfies `is_ours`.
    pub fn new(
        inputs: &SearchInputs<'_>,
        tune: &Tune,
        is_ours: impl Fn(&Attempt) -> bool,
    ) -> Result<Tuning, TuningError> {
        let SearchInputs { tasks, modules, target, config, bases, cpus, flush_bytes, .. } = *inputs;
        // Every search begins with the default schedule, so its result is never worse.
        let only_default = Config { schedules: 1, samplers: vec![SamplerName::Template], ..config.clone() };
        let mut defaults = plan_attempts(tasks, modules, target, &only_default, bases, cpus, flush_bytes)?;
        // Searches are reported in the order of the model.
        defaults.sort_by_key(|attempt| attempt.task);
        let (compiled, fixed): (Vec<Attempt>, Vec<Attempt>) =
            defaults.into_iter().partition(|attempt| matches!(attempt.code, Code::Compiled { .. }));
        if compiled.is_empty() {
            return Err(TuningError::NoSpace);
        }
        let ours = compiled.into_iter().filter(&is_ours);
        let searches = ours.map(|default| Search::new(default, inputs, tune));
        let searches = searches.collect::<Result<Vec<Search>, TuningError>>()?;
        let fixed: Vec<Attempt> = fixed.into_iter().filter(is_ours).collect();
        Ok(Tuning {
            tune: tune.clone(),
            others: fixed.iter().map(|attempt| attempt.key).collect(),
            fixed,
            searches,
            left: tune.trials.saturating_mul(config.models.len()),
            totals: Vec::new(),
            keys: HashSet::new(),
            failure: None,
            busy: Duration::ZERO,
        })
    }

    /// Returns whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.searches.is_empty() && self.fixed.is_empty()
    }

    /// Trains the searches with records that are not trials of these searches. Returns the number of lessons.
    pub fn learn_lessons(&mut self, lessons: &Lessons, target: &Target) -> usize {
        let began = Instant::now();
        let count = lessons.teach_searches(&mut self.searches, target);
        self.busy += began.elapsed();
        count
    }

    /// Returns the time spent on proposing, learning and choosing the next search.
    pub fn busy_time(&self) -> Duration {
        self.busy
    }

    /// Reads stored records of the searched experiments, in chronological order. Tuners also learn from records of
    /// other configurations, which are no trials. Crashed or timed-out trials run again unless `is_known`.
    pub fn resume(&mut self, records: &[Record], is_known: impl Fn(Key) -> bool) {
        let mut places: BTreeMap<task_search::SearchId, usize> = BTreeMap::new();
        for (place, search) in self.searches.iter().enumerate() {
            places.insert(search.search_id(), place);
        }
        let hash = self.searches.first().and_then(|search| search.config_hash());
        for record in records {
            let Some(place) = task_search::record_search_id(record).and_then(|id| places.get(&id).copied()) else {
                continue;
            };
            let Some(trial) = self.searches[place].match_trial(record) else { continue };
            if matches!(record.outcome, Outcome::Crashed | Outcome::TimedOut) && !is_known(trial.key) {
                self.searches[place].retry_trial(&trial);
                continue;
            }
            let Trial { key, schedule, .. } = trial;
            // Another search may accept candidates that this one rejected.
            let is_own = record.config_hash == hash;
            if record.outcome == Outcome::PassedOver {
                if is_own {
                    self.searches[place].observe_result(&schedule, None, TrialResult::RejectedByModel);
                }
                continue;
            }
            if !self.keys.insert(key) {
                continue;
            }
            if is_own {
                self.left = self.left.saturating_sub(1);
                self.searches[place].standing.begun += 1;
            }
            self.observe_result(place, &schedule, record);
        }
    }

    /// Returns the number of trials that may still be started, plus attempts outside of searches.
    pub fn attempts_left(&self) -> usize {
        self.fixed.len() + self.trials_left()
    }

    fn trials_left(&self) -> usize {
        let room = |search: &Search| match (search.stop_reason(&self.tune), self.tune.trials_per_task) {
            (Some(_), _) => 0,
            (None, Some(most)) => most.saturating_sub(search.standing.begun),
            (None, None) => self.left,
        };
        self.left.min(self.searches.iter().fold(0usize, |sum, search| sum.saturating_add(room(search))))
    }

    /// Returns all searches of the campaign.
    pub fn searches(&self) -> &[Search] {
        &self.searches
    }

    /// Returns the reason why each search ended, in the order of the searches.
    pub fn stop_reasons(&self) -> Vec<Stop> {
        let otherwise = if self.left > 0 { Stop::Interrupted } else { Stop::Trials };
        self.searches.iter().map(|search| search.stop_reason(&self.tune).unwrap_or(otherwise)).collect()
    }

    /// Returns the keys of experiments with results, and of all attempts outside of searches.
    pub fn result_keys(&self) -> HashSet<Key> {
        self.keys.iter().chain(&self.others).copied().collect()
    }

    /// Removes attempts outside of searches whose experiments are already known.
    pub fn exclude_known(&mut self, is_known: impl Fn(Key) -> bool) {
        self.fixed.retain(|attempt| !is_known(attempt.key));
    }

    /// Returns the number of experiments that are already known.
    pub fn known_count(&self) -> usize {
        self.keys.len() + self.others.len() - self.fixed.len()
    }

    /// Takes the error of a tuner, if one occurred.
    pub fn take_failure(&mut self) -> Option<search::Error> {
        self.failure.take()
    }

    fn observe_result(&mut self, place: usize, schedule: &Schedule, record: &Record) {
        let began = Instant::now();
        self.share_result(place, schedule, record);
        self.busy += began.elapsed();
    }

    fn share_result(&mut self, place: usize, schedule: &Schedule, record: &Record) {
        let figures = code_features(record);
        self.searches[place].observe_record(schedule, figures.as_ref(), record);
        if let Some(over_default) = self.searches[place].time_over_default(record) {
            let problem: Arc<Problem> = Arc::clone(self.searches[place].problem());
            let kind = self.searches[place].operator_kind().to_owned();
            let others = self.searches.iter_mut().enumerate().filter(|(other, _)| *other != place);
            for (_, search) in others.filter(|(_, search)| search.operator_kind() == kind) {
                search.learn_from_other(&problem, schedule, figures.as_ref(), over_default);
            }
        }
        let bests: Option<Vec<f64>> = self.searches.iter().map(Search::weighted_best).collect();
        self.totals.extend(bests.map(|bests| bests.iter().sum::<f64>()));
    }

    fn find_search(&self, attempt: &Attempt) -> Option<usize> {
        self.searches.iter().position(|search| search.is_own_trial(attempt))
    }

    /// Returns the next batch of the most promising search; an empty list if all searches wait or have ended.
    fn next_batch(&mut self) -> Vec<Attempt> {
        let began = Instant::now();
        let batch = self.propose_batch();
        self.busy += began.elapsed();
        batch
    }

    /// Returns a factor for each search that makes savings comparable: it divides them by the time of the model that calls
    /// the task, with the same number of threads and state of the caches. If several models call the task, their shares
    /// of the calls are added.
    fn saving_weights(&self) -> Vec<f64> {
        let mut sums = BTreeMap::new();
        for search in &self.searches {
            for (model, share) in search.model_shares() {
                let best = search.weighted_best().unwrap_or(0.0);
                *sums.entry((model, search.conditions())).or_insert(0.0) += share * best;
            }
        }
        // Before the first result, the sum is zero.
        let share_over_sum =
            |search: &Search, (model, share)| share / f64::max(sums[&(model, search.conditions())], f64::MIN_POSITIVE);
        let searches = self.searches.iter();
        searches.map(|search| search.model_shares().map(|one| share_over_sum(search, one)).sum()).collect()
    }

    fn propose_batch(&mut self) -> Vec<Attempt> {
        let mut waiting: HashSet<usize> = HashSet::new();
        let weights = self.saving_weights();
        while self.left > 0 && self.failure.is_none() {
            let able = self.searches.iter().enumerate().filter(|(place, search)| {
                !waiting.contains(place)
                    && search.stop_reason(&self.tune).is_none()
                    && search.trials_before_patience(&self.tune) > 0
            });
            let weighted =
                |(place, search): (usize, &Search)| (place, weights[place] * search.standing.expected_saving());
            let Some(place) = spending::pick_search(able.map(weighted)) else { break };
            let search = &mut self.searches[place];
            let cap = self.tune.trials_per_task.map_or(usize::MAX, |most| most - search.standing.begun);
            let cap = cap.min(search.trials_before_patience(&self.tune));
            match search.propose_trials(BATCH.min(self.left).min(cap)) {
                Ok(batch) if batch.is_empty() => drop(waiting.insert(place)),
                Ok(batch) => {
                    self.left -= batch.len();
                    return batch;
                }
                Err(TuningError::Search(error)) => self.failure = Some(error),
                Err(_) => drop(waiting.insert(place)),
            }
        }
        Vec::new()
    }
}

fn code_features(record: &Record) -> Option<Features> {
    let mut figures: Features = record.features.as_ref()?.parse_as().ok()?;
    // Build times do not describe the code.
    figures.retain(|name, _| !name.ends_with("_ms"));
    (!figures.is_empty()).then_some(figures)
}

impl Source for Tuning {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        if !self.fixed.is_empty() {
            let count = builds.min(self.fixed.len());
            return self.fixed.drain(..count).collect();
        }
        let lost: Vec<Attempt> = self.searches.iter_mut().flat_map(Search::take_lost_trials).collect();
        if !lost.is_empty() {
            self.left = self.left.saturating_sub(lost.len());
            return lost;
        }
        let mut proposed = Vec::new();
        // Several searches may start at once, and a single search gets more than one batch.
        while proposed.len() < builds.min(2 * BATCH) {
            let batch = self.next_batch();
            if batch.is_empty() {
                break;
            }
            proposed.extend(batch);
        }
        proposed
    }

    fn reject_candidate(&mut self, attempt: &Attempt, built: &Record) -> Option<String> {
        let (Code::Compiled { schedule, .. }, Some(place)) = (&attempt.code, self.find_search(attempt)) else {
            return None;
        };
        let began = Instant::now();
        let is_worth = self.searches[place].should_run(schedule, &code_features(built)?);
        self.busy += began.elapsed();
        match is_worth {
            Ok(is_worth) => (!is_worth).then(|| {
                "the cost model predicts a smaller gain than for most candidates that the search built before"
                    .to_owned()
            }),
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    fn observe(&mut self, attempt: &Attempt, record: &Record) {
        let is_passed_over = record.outcome == Outcome::PassedOver;
        if !is_passed_over {
            self.keys.insert(record.key);
        }
        let Code::Compiled { schedule, .. } = &attempt.code else { return };
        let Some(place) = self.find_search(attempt) else { return };
        self.searches[place].end_trial();
        if is_passed_over {
            self.left += 1;
            self.searches[place].reject_trial(schedule);
            return;
        }
        self.observe_result(place, &Arc::clone(schedule), record);
    }

    fn skip_attempt(&mut self, attempt: &Attempt) {
        let (Code::Compiled { schedule, .. }, Some(place)) = (&attempt.code, self.find_search(attempt)) else { return };
        self.searches[place].end_trial();
        self.searches[place].observe_result(schedule, None, TrialResult::Elsewhere);
    }

    fn progress_message(&self) -> Option<String> {
        let (first, last) = (self.totals.first()?, self.totals.last()?);
        let before = self.totals[self.totals.len().saturating_sub(RECENT + 1)];
        let gain = |from: &f64| format!("{:.1} %", 100.0 * (from - last) / from);
        let of = if self.searches.len() > 1 { "sum of bests" } else { "best" };
        let trials = self.trials_left();
        let open = self.searches.iter().filter(|search| search.stop_reason(&self.tune).is_none());
        let saved = spending::total_saving(open.map(|search| &search.standing), trials);
        Some(format!(
            "{of} {}, {} below the first; gain of the last {} trials: {}; expected gain of the remaining {trials} \
             trials: {:.1} %",
            report::format_duration(*last),
            gain(first),
            RECENT.min(self.totals.len() - 1),
            gain(&before),
            100.0 * saved / last,
        ))
    }

    fn attempts_left(&self) -> usize {
        Tuning::attempts_left(self)
    }
}
