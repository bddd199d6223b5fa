//! Collects records of models into a store: what the store lacks is proposed, built, run and recorded; then peaks of the host are
//! measured, and all is summarised.

use crate::Result;
use crate::bases::bases;
use crate::boards::Standing;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{
    Attempt, Bases, Campaign, CurrentConditions, Finals, Ground, Outcomes, Share, Source, Sweep, Tuning, TuningError,
    attempts,
};
use crate::failure::{Failure, chain};
use crate::ifcompare::{self, Compared};
use crate::in_place::{self, InPlace};
use crate::ledger::Ledger;
use crate::observer::Observer;
use crate::pass::{self, Makes};
use crate::repeat::Repeat;
use crate::report::learning::{Effort, Learning, Searched, courses, learnings};
use crate::report::operators::{Summary, summarise};
use crate::runs::After;
use crate::stores::failed;
use crate::{machine, peaks};
use bench::{Bench, Remembering, Versions};
use datasets::{Choose, Key, Peaks, Reached, Record, Shard, Store};
use job::revision::Revisions;
use job::target::{Fabric, Kind};
use measure::host::{Load, LoadReading};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A campaign with where its records go, on a machine where nobody else measures.
pub struct Collection<'a> {
    /// What it is about.
    pub campaign: Campaign<'a>,
    /// Versions of the libraries that build or run.
    pub versions: Versions,
    /// Revisions of the code generators.
    pub revisions: Revisions,
    /// Where records go.
    pub store: Store,
    /// The part of the work that is ours.
    pub shard: Option<Shard>,
    /// What is measured although it is known, or not although it is not.
    pub repeat: Repeat,
    /// The nightly run that this belongs to.
    pub night: Option<&'a str>,
    /// The models that were read.
    pub loaded: &'a LoadedModels,
    /// The machine that code runs on.
    pub on: Standing,
    /// When the command began, for the budget.
    pub start: Instant,
    /// Set to the number of a signal that ends it after the attempt in flight.
    pub signal: Arc<AtomicUsize>,
    /// Hears notes and progress.
    pub observer: Rc<dyn Observer>,
}

impl Collection<'_> {
    /// Makes the attempts that the store lacks.
    pub fn run(&self, bench: &mut dyn Bench) -> Result<Collected> {
        let Campaign { target, config, .. } = self.campaign;
        let bases = self.bases()?;
        // What a core computes runs on no CPU of this machine, and is the same on every one.
        let cpus = if target.kind == Kind::Pynq { vec![0] } else { self.on.cpus.clone() };
        let work = self.work(&bases, &cpus)?;
        let is_simulated = bases.compiled.source == datasets::Source::Simulated;
        if !is_simulated && self.on.board.is_none() {
            self.observer.notes(&busy_note().into_iter().collect::<Vec<_>>());
            self.observer.notes(&machine::shared_core_notes(&config.threads, &cpus));
        }
        self.store.keep_config(&config.kept_text()).map_err(failed)?;
        let mut done = self.make(work, &bases, bench)?;
        // Who interrupts wants an end, not a roofline; of a GPU or a board none is measured.
        let has_peaks = matches!(target.kind, Kind::Llvm | Kind::Torch) && self.on.board.is_none();
        if done.signal == 0 && has_peaks {
            let of = (&self.on.facts, &done.reached);
            done.peaks = peaks::of_host(&self.store, &bases.compiled, (config, target), of, bench)?;
        }
        done.summaries = summaries(&self.campaign, &done.tried, &done.peaks, is_simulated);
        Ok(done)
    }

    /// What records say of the machine, the target and the versions.
    fn bases(&self) -> Result<Bases> {
        let Campaign { target, config, .. } = self.campaign;
        let bases = bases(config, target, &self.on.facts, &self.versions)?;
        let mut bases = Bases { revisions: self.revisions.clone(), ..bases };
        if let Some(board) = &self.on.board {
            board.mark(&mut bases.compiled);
            self.observer.notes(&board.notes());
        }
        if let Some(night) = self.night {
            night.clone_into(&mut bases.compiled.run_id);
            night.clone_into(&mut bases.library.run_id);
        }
        Ok(bases)
    }

    /// After a search of whole models: what its winners are worth in their places.
    pub fn in_place(&self, done: &Collected) -> Vec<InPlace> {
        let config = self.campaign.config;
        let Some(searched) = done.searched.as_ref().filter(|_| done.signal == 0) else { return Vec::new() };
        if !in_place::is_for(config, self.shard.is_some(), self.on.board.is_some()) {
            return Vec::new();
        }
        in_place::all(config, self.loaded, self.store.root(), &self.after(done), &searched.learnings, &self.observer)
    }

    /// After a campaign: its models as a whole, by default and by best schedules.
    pub fn compare(&self, done: &Collected) -> Vec<Compared> {
        ifcompare::all(self.campaign.config, self.loaded, self.store.root(), &self.after(done), &self.observer)
    }

    fn after(&self, done: &Collected) -> After {
        After { run_id: done.run_id.clone(), signal: Arc::clone(&self.signal) }
    }

    /// What is going to be done: a list of attempts, or a search.
    fn work(&self, bases: &Bases, cpus: &[usize]) -> Result<Work> {
        let Campaign { tasks, modules, target, config } = self.campaign;
        let flush_bytes = self.on.facts.cold_cache_bytes();
        let share = Share::new(self.shard.unwrap_or(Shard::WHOLE), tasks, target, config);
        if let Some(tune) = &config.tune {
            let breeder = machine::breeder(&config.limits)?;
            let ground = Ground { tasks, modules, target, config, bases, cpus, flush_bytes, breeder: &breeder };
            let tuning = Tuning::new(&ground, tune, |attempt| share.contains(attempt));
            return Ok(Work::Search(Box::new(tuning.map_err(of_tuning)?)));
        }
        let planned = attempts(tasks, modules, target, config, bases, cpus, flush_bytes);
        let mut planned = planned.map_err(|error| Failure::usage(chain(&error)))?;
        planned.retain(|attempt| share.contains(attempt) && self.repeat.is_wanted(attempt.key));
        Ok(Work::Sweep(planned))
    }

    /// Makes the attempts that the store lacks.
    fn make(&self, mut work: Work, bases: &Bases, bench: &mut dyn Bench) -> Result<Collected> {
        let base = &bases.compiled;
        let ledger = Ledger::open(&self.store, &self.repeat, self.observer.as_ref()).map_err(failed)?;
        let tasks = self.campaign.tasks;
        let mut wanted: HashSet<Key> = HashSet::new();
        let known_before = match &mut work {
            Work::Sweep(todo) => {
                wanted.extend(todo.iter().map(|attempt| attempt.key));
                self.tell_of_counters(&ledger, &wanted, "they are measured again");
                todo.retain_mut(|attempt| {
                    let visits = attempt.method.visits();
                    let left = ledger.visits_left(attempt.key, visits);
                    attempt.visit = visits - left.min(visits);
                    left > 0
                });
                wanted.len() - todo.len()
            }
            Work::Search(tuning) => {
                let lessons = pass::lessons(&self.store, tuning, self.campaign.target)?;
                let heard = tuning.learn(&lessons, self.campaign.target);
                if heard > 0 {
                    self.observer.note(format!(
                        "{heard} times of other tasks, hosts, versions or plans in the store teach the tuners before they begin"
                    ));
                }
                let records = pass::records_with_figures(&self.store, tasks, Choose::Middle)?;
                tuning.resume(&records, |key| ledger.is_known(key));
                let another = "a search repeats no trial; a search with another `--store` reads them";
                self.tell_of_counters(&ledger, &tuning.keys(), another);
                tuning.leave_out(|key| ledger.is_known(key));
                tuning.known()
            }
        };
        let before = if self.on.board.is_none() { LoadReading::now() } else { None };
        let at =
            pass::At { signal: &self.signal, observer: self.observer.as_ref(), store: &self.store, host: &base.host };
        let began = Instant::now();
        // Later visits, and the best of a search, run what was built before.
        let bench = &mut Remembering::new(bench);
        let (outcomes, searched) = match work {
            Work::Sweep(todo) => (at.pass(Makes::Unknown, ledger, &mut Sweep::new(todo), &self.campaign, bench)?, None),
            Work::Search(mut tuning) => {
                let (outcomes, learnings) = self.search(&at, ledger, &mut tuning, bench)?;
                wanted.extend(tuning.keys());
                let courses = courses(&learnings);
                let effort = Effort::new(&outcomes, tuning.busy(), began.elapsed());
                (outcomes, Some(Searched { learnings, courses, effort }))
            }
        };
        let is_measured = self.campaign.target.kind != Kind::Pynq;
        let load = before.filter(|_| is_measured).and_then(|before| Some(LoadReading::now()?.since(&before)));
        if let Some(why) = &outcomes.broken {
            return Err(match self.on.board {
                None => Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::SETUP_HINT),
                Some(_) => Failure::environment(format!("no board is left: {why}"))
                    .with_hint("what was measured is in the store; the same command goes on there"),
            });
        }
        let mut records = Vec::new();
        for record in self.store.records(Choose::Middle).map_err(failed)? {
            let record = record.map_err(failed)?;
            if wanted.contains(&record.key) {
                records.push(record.lean());
            }
        }
        let (tried, reached) = self.tried(&wanted, bases)?;
        let attempts = known_before + outcomes.counts.values().sum::<usize>() + outcomes.elsewhere + outcomes.left;
        let losses = records.iter().filter(|record| record.outcome.is_loss()).count();
        let signal = self.signal.load(Ordering::Relaxed);
        Ok(Collected {
            host: base.host.clone(),
            host_class: base.host_class.clone(),
            run_id: base.run_id.clone(),
            source: base.source,
            attempts,
            known_before,
            outcomes,
            losses,
            signal,
            load,
            records,
            tried,
            reached,
            searched,
            peaks: Peaks::default(),
            summaries: Vec::new(),
        })
    }

    /// Reports the number of experiments that have a time and lack requested counters, and what is done about them.
    fn tell_of_counters(&self, ledger: &Ledger<'_>, wanted: &HashSet<Key>, what: &str) {
        let Some(counters) = &self.repeat.counters else { return };
        let lacking = wanted.iter().filter(|key| ledger.lacks_counters(**key)).count();
        if lacking > 0 && !self.repeat.again {
            let names = counters.names.join("`, `");
            self.observer
                .note(format!("{lacking} known experiments were measured without the counters `{names}`: {what}"));
        }
    }

    /// Every attempt at some experiments, without long columns, and what all attempts on this host reached by today's versions.
    fn tried(&self, wanted: &HashSet<Key>, bases: &Bases) -> Result<(Vec<Record>, Reached)> {
        let (mut tried, mut reached, now) = (Vec::new(), Reached::default(), CurrentConditions::of(bases));
        for record in self.store.records(Choose::All).map_err(failed)? {
            let record = record.map_err(failed)?;
            if record.host == bases.compiled.host && now.match_record(&record) {
                reached.take(&record);
            }
            tried.extend(Some(record).filter(|record| wanted.contains(&record.key)).map(Record::lean));
        }
        Ok((tried, reached))
    }

    /// Makes the trials of a search, and measures the best of each task again.
    fn search(
        &self,
        at: &pass::At<'_>,
        ledger: Ledger<'_>,
        tuning: &mut Tuning,
        bench: &mut dyn Bench,
    ) -> Result<(Outcomes, Vec<Learning>)> {
        let Campaign { tasks, target, .. } = self.campaign;
        let mut outcomes = at.pass(Makes::Unknown, ledger, tuning, &self.campaign, bench)?;
        if let Some(error) = tuning.failure() {
            return Err(Failure::environment(chain(&error)).with_hint(machine::SETUP_HINT));
        }
        let mut finals = Finals::new(tuning, &pass::records(&self.store, tasks, Choose::All)?);
        let is_ended = at.signal.load(Ordering::Relaxed) != 0 || outcomes.broken.is_some() || self.is_over_budget();
        if finals.left() > 0 && !is_ended {
            let ledger = Ledger::open(&self.store, &self.repeat, self.observer.as_ref()).map_err(failed)?;
            outcomes = outcomes.and(at.pass(Makes::Again, ledger, &mut finals, &self.campaign, bench)?);
        }
        let records = pass::records(&self.store, tasks, Choose::All)?;
        Ok((outcomes, learnings(tuning, &finals, &records, tasks, target)))
    }

    fn is_over_budget(&self) -> bool {
        self.campaign.config.budget_seconds.is_some_and(|budget| self.start.elapsed().as_secs_f64() > budget)
    }
}

/// What a campaign makes.
enum Work {
    /// These attempts.
    Sweep(Vec<Attempt>),
    /// What a search proposes.
    Search(Box<Tuning>),
}

fn of_tuning(error: TuningError) -> Failure {
    match error {
        TuningError::Search(_) => Failure::environment(chain(&error)).with_hint(machine::SETUP_HINT),
        TuningError::Planning(_) | TuningError::NoSpace | TuningError::Empty { .. } => Failure::usage(chain(&error)),
    }
}

/// A note where the machine is busy before anything was begun: all medians will be known less well.
fn busy_note() -> Option<String> {
    const LOOK: Duration = Duration::from_millis(200);
    let before = LoadReading::now();
    std::thread::sleep(LOOK);
    let load = before.and_then(|before| Some(LoadReading::now()?.since(&before)));
    let what = load.and_then(|load| load.disturbance())?;
    Some(format!("this machine is busy: {what}; times will be known less well"))
}

/// What came of it.
pub struct Collected {
    /// The host, by its name in records.
    pub host: String,
    /// Its class.
    pub host_class: String,
    /// The campaign, by its name in records.
    pub run_id: String,
    /// How its times come about.
    pub source: datasets::Source,
    /// Planned attempts.
    pub attempts: usize,
    /// Those that the store had.
    pub known_before: usize,
    /// How the others ended.
    pub outcomes: Outcomes,
    /// Attempts without a time, those of earlier runs included.
    pub losses: usize,
    /// The signal that ended the run early, or 0.
    pub signal: usize,
    /// What others did to the machine meanwhile.
    pub load: Option<Load>,
    /// Records of all planned experiments, the middle measurement of each.
    pub records: Vec<Record>,
    /// Every attempt at the campaign's experiments.
    pub tried: Vec<Record>,
    /// What two visits of any operator on this host reached, those of earlier campaigns included.
    pub reached: Reached,
    /// What the searches found, where there were any.
    pub searched: Option<Searched>,
    /// What the host reaches at best.
    pub peaks: Peaks,
    /// The operators of each model.
    pub summaries: Vec<Summary>,
}

fn summaries(campaign: &Campaign<'_>, records: &[Record], peaks: &Peaks, is_simulated: bool) -> Vec<Summary> {
    let models = campaign.config.models.iter().enumerate();
    let fabric = Fabric::read(&campaign.target.text).ok().filter(|_| is_simulated);
    let simulated = fabric.map(|fabric| fabric.describe());
    models
        .map(|model| {
            let tasks = (campaign.tasks, campaign.modules);
            let summary = summarise(tasks, model, records, &campaign.target.machine, peaks);
            Summary { simulated: simulated.clone(), ..summary }
        })
        .collect()
}
