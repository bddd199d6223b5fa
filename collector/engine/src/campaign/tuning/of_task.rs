//! The search for one task on one number of threads with one state of caches.

use super::TuningError;
use crate::campaign::attempt::{attempt, source_of};
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
use search::{Evolution, Features, Problem, Seen, Tuner, tuner};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use targets::Target;

/// What a search is of: the hash of its task, its threads, and whether caches are cold.
pub(super) type Ground = (String, i64, bool);

/// The search that a record would belong to.
pub(super) fn ground_of(record: &Record) -> Option<Ground> {
    Some((record.task_hash.clone(), record.threads?, record.cache_state? == CacheState::Cold))
}

/// The evolution of one task's schedules.
struct Bred {
    breeder: Breeder,
    /// The task, as JSON.
    task: String,
    /// TVM's description of the target.
    target: String,
}

impl Evolution for Bred {
    fn breed(&mut self, measured: &[(Schedule, f64)], count: usize, seed: i64) -> Result<Vec<Schedule>, String> {
        let measured = measured.iter().map(|(schedule, ns)| (schedule.to_json(), *ns)).collect();
        let (task, target) = (self.task.clone(), self.target.clone());
        self.breeder.breed(&BreedJob { task, target, measured, count, seed })
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// There are no more trials.
    Trials,
    /// It had as many trials as one task may.
    TrialsPerTask,
    /// It gained nothing for long.
    Patience,
    /// Nothing is left to propose.
    Exhausted,
}

impl Stop {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Stop::Trials => "no more trials",
            Stop::TrialsPerTask => "trials per task",
            Stop::Patience => "no gain for long",
            Stop::Exhausted => "nothing left to try",
        }
    }
}

/// One search: its tuner, and how it stands.
pub struct Search {
    default: Attempt,
    task: Task,
    target: Target,
    revisions: Revisions,
    problem: Arc<Problem>,
    tuner: Box<dyn Tuner>,
    pub(super) standing: Standing,
    default_ns: Option<f64>,
    /// Trials that were begun and not heard of.
    open: usize,
    is_exhausted: bool,
    /// Hashes of schedules that were begun or heard of.
    known: HashSet<String>,
    /// Trials of earlier runs that a crash or a deadline ended; proposed before other trials, since their schedules may be fine.
    lost: Vec<Attempt>,
}

impl Search {
    pub(super) fn new(default: Attempt, ground: &super::Ground<'_>, tune: &Tune) -> Result<Search, TuningError> {
        let planned = &ground.tasks[default.task];
        let threads = default.cpus.len();
        let mut problem = Problem::of(planned.scheduled(), ground.target, threads);
        problem.space = problem.space.only(&tune.only).map_err(|source| {
            let task = planned.task.describe();
            TuningError::Empty { task, source }
        })?;
        let own = format!("{} {} {threads} {:?}", ground.config.seed, planned.task.hash(), default.state);
        let digest = blake3::hash(own.as_bytes());
        let seed = u64::from_le_bytes(digest.as_bytes()[..8].try_into().expect("a hash has 32 bytes"));
        let weight: usize = planned.counts.iter().map(|(_, count)| *count).sum();
        Ok(Search {
            task: planned.scheduled().clone(),
            target: ground.target.clone(),
            revisions: ground.bases.revisions.clone(),
            tuner: tuner(tune.tuner, &problem, seed, || {
                let (task, target) = (planned.compiled_json().to_owned(), ground.target.text.clone());
                Box::new(Bred { breeder: ground.breeder.clone(), task, target })
            })?,
            problem: Arc::new(problem),
            standing: Standing { weight: weight.max(1) as f64, ..Standing::default() },
            default,
            default_ns: None,
            open: 0,
            is_exhausted: false,
            known: HashSet::new(),
            lost: Vec::new(),
        })
    }

    pub(super) fn ground(&self) -> Ground {
        let threads = i64::try_from(self.default.cpus.len()).unwrap_or(0);
        (self.default.with_task.task_hash.clone(), threads, self.default.state == CacheState::Cold)
    }

    /// Returns the key that all records of its templates share.
    pub(super) fn ground_key(&self) -> Result<Key, TuningError> {
        Ok(record::of_attempt(&self.default).map_err(PlanningError::from)?.ground_key())
    }

    pub(super) fn config_hash(&self) -> Option<String> {
        self.default.with_task.config_hash.clone()
    }

    /// Whether an attempt is one of its trials.
    pub(super) fn is_of(&self, attempt: &Attempt) -> bool {
        let own = &self.default;
        own.task == attempt.task && own.cpus.len() == attempt.cpus.len() && own.state == attempt.state
    }

    /// Returns the trial that a record stands for, if the record is the experiment that this search would run now for the same
    /// schedule. A different version, CPU or plan makes a different experiment.
    pub fn trial<'a>(&self, record: &'a Record) -> Option<Trial<'a>> {
        let schedule = record.schedule.as_ref().filter(|_| ground_of(record).as_ref() == Some(&self.ground()))?;
        let schedule = Schedule::from_json(schedule.text()).ok()?;
        let attempt = self.attempt(schedule.clone()).ok()?;
        let now = record::of_attempt(&attempt).ok()?;
        stands_for(record, &now, Likeness::Experiment).then_some(Trial { key: attempt.key, schedule, attempt, record })
    }

    /// Returns the trials among some records, in their order.
    pub fn trials<'a>(&self, records: &'a [Record]) -> Vec<Trial<'a>> {
        records.iter().filter_map(|record| self.trial(record)).collect()
    }

    /// Adds a trial that a crash or a deadline ended, to be made again.
    pub(super) fn make_again(&mut self, trial: &Trial<'_>) {
        if self.known.insert(trial.schedule.hash()) {
            self.lost.push(trial.attempt.clone());
        }
    }

    /// Begins lost trials again.
    pub(super) fn take_lost(&mut self) -> Vec<Attempt> {
        self.standing.begun += self.lost.len();
        self.open += self.lost.len();
        std::mem::take(&mut self.lost)
    }

    /// The next trials. The first one is the default schedule, unless its time is known.
    pub(super) fn propose(&mut self, count: usize) -> Result<Vec<Attempt>, TuningError> {
        let Code::Compiled { schedule: default, .. } = &self.default.code else { return Ok(Vec::new()) };
        if self.known.insert(default.hash()) {
            self.standing.begun += 1;
            self.open += 1;
            return Ok(vec![self.default.clone()]);
        }
        let mut attempts = Vec::new();
        while attempts.len() < count {
            let proposed = self.tuner.propose(count - attempts.len())?;
            if proposed.is_empty() {
                break;
            }
            for schedule in proposed {
                // A tuner may name what everybody begins with.
                if self.known.insert(schedule.hash()) {
                    attempts.push(self.attempt(schedule)?);
                }
            }
        }
        self.is_exhausted = attempts.is_empty() && self.open == 0;
        self.standing.begun += attempts.len();
        self.open += attempts.len();
        self.look_for_hints();
        Ok(attempts)
    }

    fn look_for_hints(&mut self) {
        self.standing.hinted = self.tuner.hinted().zip(self.default_ns).map(|(over_default, ns)| over_default * ns);
    }

    /// The attempt at a schedule.
    pub fn attempt(&self, schedule: Schedule) -> Result<Attempt, TuningError> {
        let own = &self.default;
        let Code::Compiled { schedule: default, .. } = &own.code else { return Ok(own.clone()) };
        let source = match source_of(&schedule, default) {
            // Only TVM's evolution proposes moves.
            ScheduleSource::Trace => ScheduleSource::MetaSchedule,
            source => source,
        };
        let code = Code::Compiled {
            revision: self.revisions.of(&self.task, self.target.kind, &schedule),
            source,
            schedule: Arc::new(schedule),
        };
        let run = (own.state, own.method.clone(), own.cpus.len());
        Ok(attempt((own.task, own.family), code, run, &own.with_task, &own.cpus)?)
    }

    /// One of its trials came back.
    pub(super) fn returned(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Hears what came of a schedule. Its time is the upper end of what is known of its median: of many medians the least is
    /// the one that was disturbed least, or the luckiest.
    pub(super) fn hear(&mut self, schedule: &Schedule, figures: Option<&Features>, record: &Record) {
        let ns = time_of(record);
        let Code::Compiled { schedule: default, .. } = &self.default.code else { return };
        if schedule.hash() == default.hash() {
            self.default_ns = ns;
        }
        self.standing.hear(ns);
        // What was drawn is repeated by its moves, which the record has.
        let drawn = record.schedule.as_ref().filter(|_| matches!(schedule, Schedule::MetaSchedule { .. }));
        let drawn = drawn.and_then(|text| Schedule::from_json(text.text()).ok());
        self.tell(drawn.as_ref().unwrap_or(schedule), figures, ns.map_or(Seen::Failed, Seen::Time));
    }

    /// Whether one of its trials is worth a run, now that it is built.
    pub(super) fn is_worth_a_run(&mut self, schedule: &Schedule, figures: &Features) -> search::Result<bool> {
        self.tuner.is_worth_a_run(schedule, figures)
    }

    /// What was not worth one is no trial.
    pub(super) fn passed_over(&mut self, schedule: &Schedule) {
        self.standing.begun = self.standing.begun.saturating_sub(1);
        self.tell(schedule, None, Seen::PassedOver);
    }

    pub(super) fn tell(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: Seen) {
        self.known.insert(schedule.hash());
        self.tuner.observe(schedule, figures, seen);
        self.look_for_hints();
    }

    /// What a record's time is of the default schedule's, where both are known.
    pub(super) fn over_default(&self, record: &Record) -> Option<f64> {
        Some(time_of(record)? / self.default_ns?)
    }

    pub(super) fn learn(
        &mut self,
        problem: &Problem,
        schedule: &Schedule,
        figures: Option<&Features>,
        over_default: f64,
    ) {
        self.tuner.learn(problem, schedule, figures, over_default);
        self.look_for_hints();
    }

    /// What is searched.
    pub fn problem(&self) -> &Arc<Problem> {
        &self.problem
    }

    /// The kind of its operator.
    pub fn kind(&self) -> &str {
        &self.default.with_task.op_kind
    }

    /// What caches hold.
    pub fn cache_state(&self) -> CacheState {
        self.default.state
    }

    /// The default schedule's attempt, from which all others follow.
    pub fn default(&self) -> &Attempt {
        &self.default
    }

    /// Its best time as often as its task is run.
    pub(super) fn weighted_best(&self) -> Option<f64> {
        Some(self.standing.best()? * self.standing.weight)
    }

    /// Why it gets no more trials, where it does not.
    pub(super) fn stop(&self, tune: &Tune) -> Option<Stop> {
        if self.is_exhausted {
            return Some(Stop::Exhausted);
        }
        if tune.trials_per_task.is_some_and(|most| self.standing.begun >= most) {
            return Some(Stop::TrialsPerTask);
        }
        let is_tired = tune.patience > 0 && self.standing.idle() >= tune.patience;
        (is_tired && self.standing.hinted.is_none()).then_some(Stop::Patience)
    }
}

/// A record that stands for an attempt of a search.
pub struct Trial<'a> {
    /// The key of its experiment.
    pub key: Key,
    /// Its schedule.
    pub schedule: Schedule,
    /// The attempt.
    pub attempt: Attempt,
    /// The record.
    pub record: &'a Record,
}

/// The time of a record as a search sees it.
fn time_of(record: &Record) -> Option<f64> {
    (record.outcome == Outcome::Ok).then(|| record.upper_end_ns()).flatten()
}
