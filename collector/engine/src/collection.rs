//! Collects records of models into a store: runs the attempts it lacks, measures peaks, and summarises all records.

use crate::Result;
use crate::bases::base_records;
use crate::campaign::collect::is_over_budget;
use crate::campaign::{
    Attempt, Bases, Campaign, CurrentConditions, Finals, Outcomes, SearchInputs, Share, Source, Sweep, Tuning,
    TuningError, plan_attempts,
};
use crate::failure::{Failure, format_chain};
use crate::ifcompare::{self, ModelComparison};
use crate::in_network::{self, NetworkTimes};
use crate::ledger::Ledger;
use crate::pass::{self, AttemptSelection};
use crate::repeat::WantedCounters;
use crate::report::learning::{Effort, Learning, SearchResults, sum_courses, summarise_searches};
use crate::report::operators::{Summary, summarise_model};
use crate::runs::PrecedingCampaign;
use crate::session::Session;
use crate::stores::store_failure;
use crate::uncounted::{CounterReadings, UncountedCounter};
use crate::{machine, peaks};
use bench::{Bench, Remembering};
use datasets::{Choose, Key, Peaks, Reached, Record, Shard};
use measure::host::{Load, LoadReading};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use targets::Fabric;

impl Session {
    /// Runs the attempts that the store lacks, and summarises all records of the campaign.
    pub fn collect(&self) -> Result<Collected> {
        let mut bench = self.bench.borrow_mut();
        let bench = bench.as_mut();
        let (target, config) = (&self.target, &self.config);
        let bases = self.base_records()?;
        // A simulated core does not occupy a CPU, and its times are the same on every machine.
        let cpus = if target.kind.occupies_cpus() { self.on.cpus.clone() } else { vec![0] };
        let work = self.plan_work(&bases, &cpus)?;
        let is_simulated = bases.compiled.source == datasets::Source::Simulated;
        if !is_simulated && self.on.board.is_none() {
            self.observer.receive_notes(&busy_note().into_iter().collect::<Vec<_>>());
            self.observer.receive_notes(&machine::shared_core_notes(&config.threads, &cpus));
        }
        self.store.keep_config(&config.json_without_budget()).map_err(store_failure)?;
        let made = self.run_work(work, &bases, bench)?;
        let records = self.read_records(&made.wanted)?;
        let counters = WantedCounters::from_config(config).map(|wanted| wanted.names).unwrap_or_default();
        let mut readings = CounterReadings::new(&counters);
        let (tried, reached) = self.read_attempts(&made.wanted, &bases, &mut readings)?;
        let signal = self.signal.load(Ordering::Relaxed);
        // An interrupted campaign ends without a roofline. Peaks of GPUs and boards are not
        // measured.
        let has_peaks = target.kind.has_host_peaks() && self.on.board.is_none();
        let base = bases.compiled;
        let peaks = match signal == 0 && has_peaks {
            true => peaks::host_peaks(&self.store, &base, (config, target), (&self.on.facts, &reached), bench)?,
            false => Peaks::default(),
        };
        let outcomes = made.outcomes;
        Ok(Collected {
            attempts: made
                .planned
                .map_or_else(|| made.known_before + outcomes.ended() + outcomes.left, |planned| planned.attempts),
            visits: made.planned.map(|planned| planned.visits),
            known_before: made.known_before,
            outcomes,
            signal,
            load: made.load,
            records,
            searched: made.searched,
            uncounted: readings.find_uncounted(),
            summaries: summarise_models(&self.to_campaign(), &tried, &peaks, is_simulated),
            peaks,
            host: base.host,
            host_class: base.host_class,
            run_id: base.run_id,
            source: base.source,
        })
    }

    fn base_records(&self) -> Result<Bases> {
        let bases = base_records(&self.config, &self.target, &self.on.facts, &self.versions)?;
        let mut bases = Bases { revisions: self.revisions.clone(), ..bases };
        if let Some(board) = &self.on.board {
            board.fill_board_columns(&mut bases.compiled);
            self.observer.receive_notes(&board.timing_notes());
        }
        if let Some(night) = &self.night {
            night.clone_into(&mut bases.compiled.run_id);
            night.clone_into(&mut bases.library.run_id);
        }
        Ok(bases)
    }

    /// Times the best schedules of the searches while the whole models run, if the campaign searches whole models.
    pub fn time_in_network(&self, done: &Collected) -> Vec<NetworkTimes> {
        let config = &self.config;
        let Some(searched) = done.searched.as_ref().filter(|_| done.signal == 0) else { return Vec::new() };
        if !in_network::is_requested(config, self.shard.is_some(), self.on.board.is_some()) {
            return Vec::new();
        }
        in_network::time_all(
            config,
            &self.loaded,
            self.store.root(),
            &self.preceding_campaign(done),
            &searched.learnings,
            &self.observer,
        )
    }

    /// Runs whole models with default and with best schedules, if that was requested and no signal was received.
    pub fn compare_models(&self, done: &Collected) -> Option<Vec<ModelComparison>> {
        (self.compares && done.signal == 0).then(|| {
            let preceding = self.preceding_campaign(done);
            ifcompare::compare_all(&self.config, &self.loaded, self.store.root(), &preceding, &self.observer)
        })
    }

    fn to_campaign(&self) -> Campaign<'_> {
        Campaign { tasks: &self.tasks, modules: &self.modules, target: &self.target, config: &self.config }
    }

    fn preceding_campaign(&self, done: &Collected) -> PrecedingCampaign {
        PrecedingCampaign { run_id: done.run_id.clone(), signal: Arc::clone(&self.signal) }
    }

    fn plan_work(&self, bases: &Bases, cpus: &[usize]) -> Result<CollectionWork> {
        let Campaign { tasks, modules, target, config } = self.to_campaign();
        let flush_bytes = self.on.facts.cold_cache_bytes();
        let share = Share::new(self.shard.unwrap_or(Shard::WHOLE), tasks, target, config);
        if let Some(tune) = &config.tune {
            let (signal, start, budget) = (Arc::clone(&self.signal), self.start, config.budget_seconds);
            let should_stop = move || signal.load(Ordering::Relaxed) != 0 || is_over_budget(budget, start);
            let breeder = machine::create_breeder(&config.limits, should_stop)?;
            let inputs = SearchInputs { tasks, modules, target, config, bases, cpus, flush_bytes, breeder: &breeder };
            let tuning = Tuning::new(&inputs, tune, |attempt| share.contains(attempt)).map_err(tuning_failure)?;
            if tuning.is_empty() {
                let what = "no search of this campaign belongs to this shard, because a search is not divided";
                self.observer.note(what.to_owned());
            }
            return Ok(CollectionWork::Search(Box::new(tuning)));
        }
        let planned = plan_attempts(tasks, modules, target, config, bases, cpus, flush_bytes);
        let mut planned = planned.map_err(|error| Failure::usage(format_chain(&error)))?;
        planned.retain(|attempt| share.contains(attempt) && self.repeat.is_wanted(attempt.key));
        if let Some(only) = self.repeat.only.as_ref().filter(|_| planned.is_empty()) {
            let keys = report::format_count(only.len(), "key");
            self.observer.note(format!("this campaign has no experiment of the {keys} that `--keys` names"));
        }
        Ok(CollectionWork::Sweep(planned))
    }

    fn run_work(&self, mut work: CollectionWork, bases: &Bases, bench: &mut dyn Bench) -> Result<CollectionResult> {
        let ledger = Ledger::open(&self.store, &self.repeat, self.observer.as_ref()).map_err(store_failure)?;
        let campaign = self.to_campaign();
        let mut wanted: HashSet<Key> = HashSet::new();
        let mut planned = None;
        let known_before = match &mut work {
            CollectionWork::Sweep(todo) => {
                // Each experiment is measured once, so that the counts of attempts and known experiments agree.
                todo.retain(|attempt| wanted.insert(attempt.key));
                let visits = todo.iter().map(|attempt| attempt.method.visit_count() as usize).sum();
                planned = Some(PlannedWork { attempts: todo.len(), visits });
                self.note_counters(&ledger, &wanted, "they are measured again");
                todo.retain_mut(|attempt| {
                    let visits = attempt.method.visit_count();
                    let left = ledger.visits_left(attempt.key, visits);
                    attempt.visit = visits - left.min(visits);
                    left > 0
                });
                wanted.len() - todo.len()
            }
            CollectionWork::Search(tuning) => {
                let lessons = pass::read_lessons(&self.store, tuning, &self.target)?;
                let lesson_count = tuning.learn_lessons(&lessons, &self.target);
                if lesson_count > 0 {
                    self.observer.note(format!(
                        "tuners start with {lesson_count} measurements of other tasks, hosts, versions or plans in \
                         the store"
                    ));
                }
                let records = pass::read_records_with_features(&self.store, campaign.tasks, Choose::Middle)?;
                tuning.resume(&records, |key| ledger.is_known(key));
                let another = "a search does not repeat its trials; to read the counters, give another `--store`";
                self.note_counters(&ledger, &tuning.result_keys(), another);
                tuning.exclude_known(|key| ledger.is_known(key));
                tuning.known_count()
            }
        };
        let before = if self.on.board.is_none() { LoadReading::now() } else { None };
        let (observer, host) = (self.observer.as_ref(), &bases.compiled.host);
        let at = pass::PassContext { signal: &self.signal, observer, store: &self.store, host };
        let began = Instant::now();
        // Later visits and the final measurements of a search reuse earlier artifacts.
        let bench = &mut Remembering::new(bench);
        let (outcomes, searched) = match work {
            CollectionWork::Sweep(todo) => {
                (at.run_pass(AttemptSelection::Unknown, ledger, &mut Sweep::new(todo), &campaign, bench)?, None)
            }
            CollectionWork::Search(mut tuning) => {
                let (outcomes, learnings) = self.run_search(&at, ledger, &mut tuning, bench)?;
                wanted.extend(tuning.result_keys());
                let courses = sum_courses(&learnings);
                let effort = Effort::new(&outcomes, tuning.busy_time(), began.elapsed());
                (outcomes, Some(SearchResults { learnings, courses, effort }))
            }
        };
        let is_measured = self.target.kind.occupies_cpus();
        let load = before.filter(|_| is_measured).and_then(|before| Some(LoadReading::now()?.load_since(&before)));
        if let Some(why) = &outcomes.broken {
            return Err(match self.on.board {
                None => Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::worker_hint()),
                Some(_) => Failure::environment(format!("no board is available: {why}"))
                    .with_hint("measured results are in the store; run the same command to continue"),
            });
        }
        Ok(CollectionResult { wanted, planned, known_before, outcomes, load, searched })
    }

    /// Returns one record per experiment, with the median over its visits (repetitions) and without long columns.
    fn read_records(&self, wanted: &HashSet<Key>) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for record in self.store.select_records(Choose::Middle).map_err(store_failure)? {
            records.extend(
                Some(record.map_err(store_failure)?)
                    .filter(|record| wanted.contains(&record.key))
                    .map(Record::without_long_columns),
            );
        }
        Ok(records)
    }

    /// Reports how many experiments have a time but lack requested counters. `what` describes the consequence.
    fn note_counters(&self, ledger: &Ledger<'_>, wanted: &HashSet<Key>, what: &str) {
        let Some(counters) = &self.repeat.counters else { return };
        let lacking = wanted.iter().filter(|key| ledger.lacks_counters(**key)).count();
        if lacking > 0 && !self.repeat.again {
            let names = counters.names.join("`, `");
            self.observer
                .note(format!("{lacking} known experiments were measured without the counters `{names}`: {what}"));
        }
    }

    /// Returns the records of these experiments, and the highest rates reached by this host with current versions.
    /// Adds the records to `readings`.
    fn read_attempts(
        &self,
        wanted: &HashSet<Key>,
        bases: &Bases,
        readings: &mut CounterReadings<'_>,
    ) -> Result<(Vec<Record>, Reached)> {
        let (mut tried, mut reached, now) = (Vec::new(), Reached::default(), CurrentConditions::from_bases(bases));
        for record in self.store.select_records(Choose::All).map_err(store_failure)? {
            let record = record.map_err(store_failure)?;
            if record.host == bases.compiled.host && now.match_record(&record) {
                reached.add_record(&record);
            }
            if wanted.contains(&record.key) {
                readings.add_record(&record);
                tried.push(record.without_long_columns());
            }
        }
        Ok((tried, reached))
    }

    /// Runs the trials of a search, and then measures the best schedules of each task again to confirm the winner.
    fn run_search(
        &self,
        at: &pass::PassContext<'_>,
        ledger: Ledger<'_>,
        tuning: &mut Tuning,
        bench: &mut dyn Bench,
    ) -> Result<(Outcomes, Vec<Learning>)> {
        let campaign = self.to_campaign();
        let Campaign { tasks, target, .. } = campaign;
        let mut outcomes = at.run_pass(AttemptSelection::Unknown, ledger, tuning, &campaign, bench)?;
        if let Some(error) = tuning.take_failure() {
            return Err(Failure::environment(format_chain(&error)).with_hint(machine::worker_hint()));
        }
        let mut finals = Finals::new(tuning, &pass::read_records(&self.store, tasks, Choose::All)?);
        let is_ended = at.signal.load(Ordering::Relaxed) != 0
            || outcomes.broken.is_some()
            || is_over_budget(self.config.budget_seconds, self.start);
        if finals.attempts_left() > 0 && !is_ended {
            let ledger = Ledger::open(&self.store, &self.repeat, self.observer.as_ref()).map_err(store_failure)?;
            outcomes =
                outcomes.merge_with(at.run_pass(AttemptSelection::Again, ledger, &mut finals, &campaign, bench)?);
        }
        let records = pass::read_records(&self.store, tasks, Choose::All)?;
        Ok((outcomes, summarise_searches(tuning, &finals, &records, tasks, target)))
    }
}

enum CollectionWork {
    Sweep(Vec<Attempt>),
    Search(Box<Tuning>),
}

fn tuning_failure(error: TuningError) -> Failure {
    match error {
        TuningError::Search(_) => Failure::environment(format_chain(&error)).with_hint(machine::worker_hint()),
        TuningError::Planning(_) | TuningError::NoSpace | TuningError::Empty { .. } => {
            Failure::usage(format_chain(&error))
        }
    }
}

/// Returns a note if other processes load the machine before the campaign, because intervals will be wider.
fn busy_note() -> Option<String> {
    const LOAD_INTERVAL: Duration = Duration::from_millis(200);
    let before = LoadReading::now();
    std::thread::sleep(LOAD_INTERVAL);
    let load = before.and_then(|before| Some(LoadReading::now()?.load_since(&before)));
    let what = load.and_then(|load| load.describe_disturbance())?;
    Some(format!("this machine is busy: {what}; times will be less precise"))
}

/// What a sweep measures, with what the store has already.
#[derive(Clone, Copy)]
struct PlannedWork {
    attempts: usize,
    visits: usize,
}

struct CollectionResult {
    wanted: HashSet<Key>,
    /// None for a search, which proposes attempts until it ends.
    planned: Option<PlannedWork>,
    known_before: usize,
    outcomes: Outcomes,
    load: Option<Load>,
    searched: Option<SearchResults>,
}

/// Result of a collection.
pub struct Collected {
    /// Name of the host in records.
    pub host: String,
    /// Class of the host.
    pub host_class: String,
    /// Identifier of this run in records; all parts of a nightly run share one.
    pub run_id: String,
    /// Origin of the times: measured or simulated.
    pub source: datasets::Source,
    /// Number of planned attempts.
    pub attempts: usize,
    /// Number of visits of all planned attempts; None for a search.
    pub visits: Option<usize>,
    /// Number of planned attempts whose records were already in the store.
    pub known_before: usize,
    /// Outcomes of the planned attempts whose records the store lacked.
    pub outcomes: Outcomes,
    /// The signal that ended the run early, or 0.
    pub signal: usize,
    /// Load of the machine by other processes during the run, if it was measured.
    pub load: Option<Load>,
    /// One record per planned experiment, with the median over all visits (repetitions).
    pub records: Vec<Record>,
    /// Counters that were requested by name and that some experiments lack.
    pub uncounted: Vec<UncountedCounter>,
    /// Results of the searches, if there were any.
    pub searched: Option<SearchResults>,
    /// Peak rates of the host.
    pub peaks: Peaks,
    /// Summary table of each model's operators.
    pub summaries: Vec<Summary>,
}

impl Collected {
    /// Returns whether an attempt of this or an earlier run has no time.
    pub fn has_losses(&self) -> bool {
        self.records.iter().any(|record| record.outcome.is_loss())
    }
}

fn summarise_models(campaign: &Campaign<'_>, records: &[Record], peaks: &Peaks, is_simulated: bool) -> Vec<Summary> {
    let models = campaign.config.models.iter().enumerate();
    let fabric = Fabric::parse_text(&campaign.target.text).ok().filter(|_| is_simulated);
    let simulated = fabric.map(|fabric| fabric.describe());
    models
        .map(|model| {
            let tasks = (campaign.tasks, campaign.modules);
            let summary = summarise_model(tasks, model, records, &campaign.target.machine, peaks);
            Summary { simulated: simulated.clone(), ..summary }
        })
        .collect()
}
