//! A search as a source of attempts: every trial is an attempt like any other, known records are heard first, and trials go
//! where they save most.

mod lessons;
mod of_task;
#[cfg(test)]
mod tests;

pub use lessons::Lessons;
pub use of_task::{Search, Stop, Trial};

use super::attempt::attempts;
use super::choices::Sampler;
use super::config::Config;
use super::module::PlannedModule;
use super::planned::{Attempt, Bases, Code, PlannedTask, PlanningError};
use super::source::Source;
use super::tune::Tune;
use bench::Breeder;
use datasets::{Key, Outcome, Record};
use job::space::{FilterError, Schedule};
use search::{Features, Problem, Seen, spending};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use targets::Target;

/// Trials of one search that are proposed at once: few, because each batch follows from what the one before taught.
const BATCH: usize = 4;
/// The standing tells what so many of the last trials gained.
const RECENT: usize = 32;

/// All searches of a campaign, which share its trials.
pub struct Tuning {
    tune: Tune,
    /// What is measured once, whatever is searched: tasks of libraries, whole files.
    fixed: Vec<Attempt>,
    searches: Vec<Search>,
    /// Trials that may still be begun.
    left: usize,
    /// The sum of best times after each trial that was heard of, once every search has one.
    totals: Vec<f64>,
    /// Experiments that were heard of.
    keys: HashSet<Key>,
    /// Experiments of no search.
    others: Vec<Key>,
    failure: Option<search::Error>,
    /// What proposing and learning took.
    busy: Duration,
}

/// What a search is made for: the campaign's tasks, and the machine.
pub struct Ground<'a> {
    /// The tasks.
    pub tasks: &'a [PlannedTask],
    /// Models that are run as a whole.
    pub modules: &'a [PlannedModule],
    /// What code is made for.
    pub target: &'a Target,
    /// What was asked for.
    pub config: &'a Config,
    /// Records with all that is known before tasks are.
    pub bases: &'a Bases,
    /// CPUs that may be used.
    pub cpus: &'a [usize],
    /// What must be written for a cold cache.
    pub flush_bytes: u64,
    /// Who breeds schedules of TVM's own space.
    pub breeder: &'a Breeder,
}

/// Why there is no search.
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
    /// One search for each task, number of threads and cache state; those are ours whose default schedule is.
    pub fn new(ground: &Ground<'_>, tune: &Tune, is_ours: impl Fn(&Attempt) -> bool) -> Result<Tuning, TuningError> {
        let Ground { tasks, modules, target, config, bases, cpus, flush_bytes, .. } = *ground;
        // Every search begins with the default schedule and so never ends behind it.
        let only_default = Config { schedules: 1, samplers: vec![Sampler::Template], ..config.clone() };
        let mut defaults = attempts(tasks, modules, target, &only_default, bases, cpus, flush_bytes)?;
        // Searches are told in the order of the model.
        defaults.sort_by_key(|attempt| attempt.task);
        let (compiled, fixed): (Vec<Attempt>, Vec<Attempt>) =
            defaults.into_iter().partition(|attempt| matches!(attempt.code, Code::Compiled { .. }));
        if compiled.is_empty() {
            return Err(TuningError::NoSpace);
        }
        let ours = compiled.into_iter().filter(&is_ours);
        let searches = ours.map(|default| Search::new(default, ground, tune));
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

    /// What a store of others taught, which is no trial and no time of its own; says how many lessons were heard.
    pub fn learn(&mut self, lessons: &Lessons, target: &Target) -> usize {
        let began = Instant::now();
        let count = lessons.teach(&mut self.searches, target);
        self.busy += began.elapsed();
        count
    }

    /// What the tuners themselves took so far: proposing, learning, deciding whose turn it is.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Takes over the records of a store, in the order of time, that are the same experiments as trials that these searches would
    /// make now. Records of the same configuration count as trials; others are known without being counted. What a crash or a
    /// deadline ended is tried again, unless that was done often enough for it to be known.
    pub fn resume(&mut self, records: &[Record], is_known: impl Fn(Key) -> bool) {
        let mut places: BTreeMap<of_task::Ground, usize> = BTreeMap::new();
        for (place, search) in self.searches.iter().enumerate() {
            places.insert(search.ground(), place);
        }
        let hash = self.searches.first().and_then(|search| search.config_hash());
        for record in records {
            let Some(place) = of_task::ground_of(record).and_then(|ground| places.get(&ground).copied()) else {
                continue;
            };
            let Some(trial) = self.searches[place].trial(record) else { continue };
            if matches!(record.outcome, Outcome::Crashed | Outcome::TimedOut) && !is_known(trial.key) {
                self.searches[place].make_again(&trial);
                continue;
            }
            let Trial { key, schedule, .. } = trial;
            // What another search passed over may be worth more to this one.
            let is_own = record.config_hash == hash;
            if record.outcome == Outcome::PassedOver {
                if is_own {
                    self.searches[place].tell(&schedule, None, Seen::PassedOver);
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
            self.hear(place, &schedule, record);
        }
    }

    /// How many trials may still be begun, and attempts that are none.
    pub fn left(&self) -> usize {
        self.fixed.len() + self.trials_left()
    }

    fn trials_left(&self) -> usize {
        let room = |search: &Search| match (search.stop(&self.tune), self.tune.trials_per_task) {
            (Some(_), _) => 0,
            (None, Some(most)) => most.saturating_sub(search.standing.begun),
            (None, None) => self.left,
        };
        self.left.min(self.searches.iter().fold(0usize, |sum, search| sum.saturating_add(room(search))))
    }

    /// The searches as they stand.
    pub fn searches(&self) -> &[Search] {
        &self.searches
    }

    /// Why each search ended, in their order.
    pub fn stops(&self) -> Vec<Stop> {
        self.searches.iter().map(|search| search.stop(&self.tune).unwrap_or(Stop::Trials)).collect()
    }

    /// Experiments of its searches that were heard of.
    pub fn keys(&self) -> HashSet<Key> {
        self.keys.iter().chain(&self.others).copied().collect()
    }

    /// Leaves out attempts of no search that need not be made.
    pub fn leave_out(&mut self, is_known: impl Fn(Key) -> bool) {
        self.fixed.retain(|attempt| !is_known(attempt.key));
    }

    /// How many experiments need not be made.
    pub fn known(&self) -> usize {
        self.keys.len() + self.others.len() - self.fixed.len()
    }

    /// Why a tuner gave up, if one did.
    pub fn failure(&mut self) -> Option<search::Error> {
        self.failure.take()
    }

    fn hear(&mut self, place: usize, schedule: &Schedule, record: &Record) {
        let began = Instant::now();
        self.hear_of(place, schedule, record);
        self.busy += began.elapsed();
    }

    fn hear_of(&mut self, place: usize, schedule: &Schedule, record: &Record) {
        let figures = figures(record);
        self.searches[place].hear(schedule, figures.as_ref(), record);
        if let Some(over_default) = self.searches[place].over_default(record) {
            let problem: Arc<Problem> = Arc::clone(self.searches[place].problem());
            let kind = self.searches[place].kind().to_owned();
            let others = self.searches.iter_mut().enumerate().filter(|(other, _)| *other != place);
            for (_, search) in others.filter(|(_, search)| search.kind() == kind) {
                search.learn(&problem, schedule, figures.as_ref(), over_default);
            }
        }
        let bests: Option<Vec<f64>> = self.searches.iter().map(Search::weighted_best).collect();
        self.totals.extend(bests.map(|bests| bests.iter().sum::<f64>()));
    }

    fn find(&self, attempt: &Attempt) -> Option<usize> {
        self.searches.iter().position(|search| search.is_of(attempt))
    }

    /// The next batch of the search that promises most; nothing where all wait or have ended.
    fn next_batch(&mut self) -> Vec<Attempt> {
        let began = Instant::now();
        let batch = self.batch();
        self.busy += began.elapsed();
        batch
    }

    fn batch(&mut self) -> Vec<Attempt> {
        let mut waiting: HashSet<usize> = HashSet::new();
        while self.left > 0 && self.failure.is_none() {
            let able = self
                .searches
                .iter()
                .enumerate()
                .filter(|(place, search)| !waiting.contains(place) && search.stop(&self.tune).is_none());
            let Some(place) = spending::next(able.map(|(place, search)| (place, &search.standing))) else { break };
            let search = &mut self.searches[place];
            let cap = self.tune.trials_per_task.map_or(usize::MAX, |most| most - search.standing.begun);
            match search.propose(BATCH.min(self.left).min(cap)) {
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

/// What a record says of the code that was built.
fn figures(record: &Record) -> Option<Features> {
    let mut figures: Features = record.features.as_ref()?.to().ok()?;
    // How long building took says nothing of the code.
    figures.retain(|name, _| !name.ends_with("_ms"));
    (!figures.is_empty()).then_some(figures)
}

impl Source for Tuning {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        if !self.fixed.is_empty() {
            let count = builds.min(self.fixed.len());
            return self.fixed.drain(..count).collect();
        }
        let lost: Vec<Attempt> = self.searches.iter_mut().flat_map(Search::take_lost).collect();
        if !lost.is_empty() {
            self.left = self.left.saturating_sub(lost.len());
            return lost;
        }
        let mut proposed = Vec::new();
        // Searches that were not begun are begun together, and one search alone is given more at once.
        while proposed.len() < builds.min(2 * BATCH) {
            let batch = self.next_batch();
            if batch.is_empty() {
                break;
            }
            proposed.extend(batch);
        }
        proposed
    }

    fn pass_over(&mut self, attempt: &Attempt, built: &Record) -> Option<String> {
        let (Code::Compiled { schedule, .. }, Some(place)) = (&attempt.code, self.find(attempt)) else { return None };
        let began = Instant::now();
        let is_worth = self.searches[place].is_worth_a_run(schedule, &figures(built)?);
        self.busy += began.elapsed();
        match is_worth {
            Ok(is_worth) => {
                (!is_worth).then(|| "its code promises less than most that the search built before".to_owned())
            }
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
        let Some(place) = self.find(attempt) else { return };
        self.searches[place].returned();
        if is_passed_over {
            self.left += 1;
            self.searches[place].passed_over(schedule);
            return;
        }
        self.hear(place, &Arc::clone(schedule), record);
    }

    fn forgo(&mut self, attempt: &Attempt) {
        let (Code::Compiled { schedule, .. }, Some(place)) = (&attempt.code, self.find(attempt)) else { return };
        self.searches[place].returned();
        self.searches[place].tell(schedule, None, Seen::Elsewhere);
    }

    fn standing(&self) -> Option<String> {
        let (first, last) = (self.totals.first()?, self.totals.last()?);
        let before = self.totals[self.totals.len().saturating_sub(RECENT + 1)];
        let gain = |from: &f64| format!("{:.1} %", 100.0 * (from - last) / from);
        let of = if self.searches.len() > 1 { "sum of bests" } else { "best" };
        let trials = self.trials_left();
        let open = self.searches.iter().filter(|search| search.stop(&self.tune).is_none());
        let saved = spending::expected(open.map(|search| &search.standing), trials);
        Some(format!(
            "{of} {}, {} below the first; the last {} trials gained {}, and {:.1} % more may be expected of the {trials} left",
            report::duration(*last),
            gain(first),
            RECENT.min(self.totals.len() - 1),
            gain(&before),
            100.0 * saved / last,
        ))
    }

    fn left(&self) -> usize {
        Tuning::left(self)
    }
}
