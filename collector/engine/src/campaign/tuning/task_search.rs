//! The search for the best schedule of one task, for one number of threads and one cache state.

use super::TuningError;
use crate::campaign::attempt::{create_attempt, source_of};
use crate::campaign::planned::{Attempt, Code, PlanningError};
use crate::campaign::record;
use crate::campaign::tune::Tune;
use bench::Breeder;
use datasets::{CacheState, Key, Likeness, Outcome, Record, ScheduleSource, stands_for};
use job::BreedJob;
use job::revision::Revisions;
use job::space::Schedule;
use models::Task;
use search::spending::Standing;
use search::{Evolution, Features, Problem, TrialResult, Tuner, create_tuner};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use targets::Target;

/// Identity of a search: the hash of its task, its number of threads, and the state of the caches.
pub(super) type SearchId = (String, i64, CacheState);

pub(super) fn record_search_id(record: &Record) -> Option<SearchId> {
    Some((record.task_hash.clone(), record.threads?, record.cache_state?))
}

struct TvmEvolution {
    breeder: Breeder,
    /// The task as JSON.
    task: String,
    /// TVM's description of the target.
    target: String,
}

impl Evolution for TvmEvolution {
    fn breed_schedules(
        &mut self,
        measured: &[(Schedule, f64)],
        count: usize,
        seed: i64,
    ) -> Result<Vec<Schedule>, String> {
        let measured = measured.iter().map(|(schedule, ns)| (schedule.to_json(), *ns)).collect();
        let (task, target) = (self.task.clone(), self.target.clone());
        self.breeder.breed_schedules(&BreedJob { task, target, measured, count, seed })
    }
}

/// Reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// All trials of the campaign were used.
    Trials,
    /// The limit of trials per task was reached.
    TrialsPerTask,
    /// The best time did not improve for too many trials.
    Patience,
    /// All schedules of the space have been proposed.
    Exhausted,
    /// The campaign ended before, by its time limit or a signal.
    Interrupted,
}

impl Stop {
    /// Returns the reason as text.
    pub fn reason_text(self) -> &'static str {
        match self {
            Stop::Trials => "no more trials",
            Stop::TrialsPerTask => "trials per task",
            Stop::Patience => "no recent gain",
            Stop::Exhausted => "nothing left to try",
            Stop::Interrupted => "end of the campaign",
        }
    }
}

/// The search of one task, with its tuner and its progress.
pub struct Search {
    default: Attempt,
    task: Task,
    target: Target,
    revisions: Revisions,
    problem: Arc<Problem>,
    tuner: Box<dyn Tuner>,
    pub(super) standing: Standing,
    /// Numbers of calls by model.
    counts: Vec<(usize, usize)>,
    default_ns: Option<f64>,
    /// Number of trials in flight.
    open: usize,
    is_exhausted: bool,
    /// Hashes of schedules that were proposed or have results.
    known: HashSet<String>,
    /// Trials of earlier runs that crashed or timed out; proposed first, because the schedule may not be the cause.
    lost: Vec<Attempt>,
}

impl Search {
    pub(super) fn new(default: Attempt, inputs: &super::SearchInputs<'_>, tune: &Tune) -> Result<Search, TuningError> {
        let planned = &inputs.tasks[default.task];
        let threads = default.cpus.len();
        let mut problem = Problem::of_task(planned.scheduled_task(), inputs.target, threads);
        problem.space = problem.space.filter_axes(&tune.only).map_err(|source| {
            let task = planned.task.describe();
            TuningError::Empty { task, source }
        })?;
        let own = format!("{} {} {threads} {:?}", inputs.config.seed, planned.task.hash(), default.state);
        let digest = blake3::hash(own.as_bytes());
        let seed = u64::from_le_bytes(digest.as_bytes()[..8].try_into().expect("a hash has 32 bytes"));
        let weight: usize = planned.counts.iter().map(|(_, count)| *count).sum();
        Ok(Search {
            task: planned.scheduled_task().clone(),
            target: inputs.target.clone(),
            revisions: inputs.bases.revisions.clone(),
            tuner: create_tuner(tune.tuner, &problem, seed, || {
                let (task, target) = (planned.compiled_json().to_owned(), inputs.target.text.clone());
                Box::new(TvmEvolution { breeder: inputs.breeder.clone(), task, target })
            })?,
            problem: Arc::new(problem),
            standing: Standing { weight: weight.max(1) as f64, ..Standing::default() },
            counts: planned.counts.clone(),
            default,
            default_ns: None,
            open: 0,
            is_exhausted: false,
            known: HashSet::new(),
            lost: Vec::new(),
        })
    }

    pub(super) fn search_id(&self) -> SearchId {
        let (threads, state) = self.conditions();
        (self.default.with_task.task_hash.clone(), threads, state)
    }

    /// Returns the number of threads and the state of the caches before a run.
    pub(super) fn conditions(&self) -> (i64, CacheState) {
        (i64::try_from(self.default.cpus.len()).unwrap_or(0), self.default.state)
    }

    /// Returns the experiment key without the schedule, which all trials of this search share.
    pub(super) fn shared_key(&self) -> Result<Key, TuningError> {
        Ok(record::attempt_record(&self.default).map_err(PlanningError::from)?.ground_key())
    }

    pub(super) fn config_hash(&self) -> Option<String> {
        self.default.with_task.config_hash.clone()
    }

    pub(super) fn is_own_trial(&self, attempt: &Attempt) -> bool {
        let own = &self.default;
        own.task == attempt.task && own.cpus.len() == attempt.cpus.len() && own.state == attempt.state
    }

    /// Returns the trial that a record represents; None for another version, CPU or measurement plan.
    pub fn match_trial<'a>(&self, record: &'a Record) -> Option<Trial<'a>> {
        let schedule =
            record.schedule.as_ref().filter(|_| record_search_id(record).as_ref() == Some(&self.search_id()))?;
        let schedule = Schedule::from_json(schedule.as_text()).ok()?;
        let attempt = self.plan_attempt(schedule.clone()).ok()?;
        let now = record::attempt_record(&attempt).ok()?;
        stands_for(record, &now, Likeness::Experiment).then_some(Trial { key: attempt.key, schedule, attempt, record })
    }

    /// Returns the trials that the given records represent, in the order of the records.
    pub fn match_trials<'a>(&self, records: &'a [Record]) -> Vec<Trial<'a>> {
        records.iter().filter_map(|record| self.match_trial(record)).collect()
    }

    pub(super) fn retry_trial(&mut self, trial: &Trial<'_>) {
        if self.known.insert(trial.schedule.stable_hash()) {
            self.lost.push(trial.attempt.clone());
        }
    }

    pub(super) fn take_lost_trials(&mut self) -> Vec<Attempt> {
        self.standing.begun += self.lost.len();
        self.open += self.lost.len();
        std::mem::take(&mut self.lost)
    }

    /// Returns the next trials. The first one is the default schedule, unless its time is known.
    pub(super) fn propose_trials(&mut self, count: usize) -> Result<Vec<Attempt>, TuningError> {
        let Code::Compiled { schedule: default, .. } = &self.default.code else { return Ok(Vec::new()) };
        if self.known.insert(default.stable_hash()) {
            self.standing.begun += 1;
            self.open += 1;
            return Ok(vec![self.default.clone()]);
        }
        let mut attempts = Vec::new();
        while attempts.len() < count {
            let proposed = self.tuner.propose_schedules(count - attempts.len())?;
            if proposed.is_empty() {
                break;
            }
            for schedule in proposed {
                // A tuner may propose the default schedule, with which every search begins.
                if self.known.insert(schedule.stable_hash()) {
                    attempts.push(self.plan_attempt(schedule)?);
                }
            }
        }
        self.is_exhausted = attempts.is_empty() && self.open == 0;
        self.standing.begun += attempts.len();
        self.open += attempts.len();
        self.update_hint();
        Ok(attempts)
    }

    fn update_hint(&mut self) {
        self.standing.hinted = self.tuner.best_hint().zip(self.default_ns).map(|(over_default, ns)| over_default * ns);
    }

    /// Returns the attempt that measures a schedule.
    pub fn plan_attempt(&self, schedule: Schedule) -> Result<Attempt, TuningError> {
        let own = &self.default;
        let Code::Compiled { schedule: default, .. } = &own.code else { return Ok(own.clone()) };
        let source = match source_of(&schedule, default) {
            // Only TVM's evolutionary search proposes traces.
            ScheduleSource::Trace => ScheduleSource::MetaSchedule,
            source => source,
        };
        let code = Code::Compiled {
            revision: self.revisions.revision_of(&self.task, self.target.kind, &schedule),
            source,
            schedule: Arc::new(schedule),
        };
        let run = (own.state, own.method.clone(), own.cpus.len());
        Ok(create_attempt((own.task, own.family), code, run, &own.with_task, &own.cpus)?)
    }

    pub(super) fn end_trial(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Reports a trial to the tuner with the upper end of its interval, as the lowest of many medians is biased low.
    pub(super) fn observe_record(&mut self, schedule: &Schedule, figures: Option<&Features>, record: &Record) {
        let ns = ranking_time(record);
        let Code::Compiled { schedule: default, .. } = &self.default.code else { return };
        if schedule.stable_hash() == default.stable_hash() {
            self.default_ns = ns;
        }
        self.standing.observe_trial(ns);
        // A sampled schedule can be repeated only by its trace, which the record contains.
        let traced = record.schedule.as_ref().filter(|_| matches!(schedule, Schedule::MetaSchedule { .. }));
        let traced = traced.and_then(|text| Schedule::from_json(text.as_text()).ok());
        self.observe_result(
            traced.as_ref().unwrap_or(schedule),
            figures,
            ns.map_or(TrialResult::Failed, TrialResult::Time),
        );
    }

    pub(super) fn should_run(&mut self, schedule: &Schedule, figures: &Features) -> search::Result<bool> {
        self.tuner.should_run(schedule, figures)
    }

    /// Records a candidate that was rejected after its build and does not count as a trial.
    pub(super) fn reject_trial(&mut self, schedule: &Schedule) {
        self.standing.begun = self.standing.begun.saturating_sub(1);
        self.observe_result(schedule, None, TrialResult::RejectedByModel);
    }

    pub(super) fn observe_result(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: TrialResult) {
        self.known.insert(schedule.stable_hash());
        self.tuner.observe_result(schedule, figures, seen);
        self.update_hint();
    }

    pub(super) fn time_over_default(&self, record: &Record) -> Option<f64> {
        Some(ranking_time(record)? / self.default_ns?)
    }

    pub(super) fn learn_from_other(
        &mut self,
        problem: &Problem,
        schedule: &Schedule,
        figures: Option<&Features>,
        over_default: f64,
    ) {
        self.tuner.learn_from_other(problem, schedule, figures, over_default);
        self.update_hint();
    }

    /// Returns the problem that is searched: a schedule space with the number of threads and the device.
    pub fn problem(&self) -> &Arc<Problem> {
        &self.problem
    }

    /// Returns the operator kind of the searched task.
    pub fn operator_kind(&self) -> &str {
        &self.default.with_task.op_kind
    }

    /// Returns the state of the caches before a run.
    pub fn cache_state(&self) -> CacheState {
        self.default.state
    }

    /// Returns the attempt that measures the default schedule; all other attempts are derived from it.
    pub fn default_attempt(&self) -> &Attempt {
        &self.default
    }

    /// Returns the best time of the search, multiplied by the number of calls of its task.
    pub(super) fn weighted_best(&self) -> Option<f64> {
        Some(self.standing.best_ns()? * self.standing.weight)
    }

    /// Returns the models that call the task, each with its share of the calls.
    pub(super) fn model_shares(&self) -> impl Iterator<Item = (usize, f64)> {
        self.counts.iter().map(|(model, count)| (*model, *count as f64 / self.standing.weight))
    }

    /// Returns how many trials may be proposed before the search would end if no open trial gained anything.
    pub(super) fn trials_before_patience(&self, tune: &Tune) -> usize {
        if tune.patience == 0 || self.standing.hinted.is_some() {
            return usize::MAX;
        }
        tune.patience.saturating_sub(self.standing.trials_since_gain() + self.open)
    }

    pub(super) fn stop_reason(&self, tune: &Tune) -> Option<Stop> {
        if self.is_exhausted {
            return Some(Stop::Exhausted);
        }
        if tune.trials_per_task.is_some_and(|most| self.standing.begun >= most) {
            return Some(Stop::TrialsPerTask);
        }
        let is_tired = tune.patience > 0 && self.standing.trials_since_gain() >= tune.patience;
        (is_tired && self.standing.hinted.is_none()).then_some(Stop::Patience)
    }
}

/// A record that represents a trial of a search.
pub struct Trial<'a> {
    /// Key of the experiment.
    pub key: Key,
    /// Schedule of the trial.
    pub schedule: Schedule,
    /// Attempt of the trial.
    pub attempt: Attempt,
    /// Record of the trial.
    pub record: &'a Record,
}

/// Returns the time in ns by which schedules are ranked: the upper end of the median's interval; None after a failure.
pub(crate) fn ranking_time(record: &Record) -> Option<f64> {
    record.upper_end_ns().filter(|_| record.outcome == Outcome::Ok)
}
