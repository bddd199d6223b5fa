//! The main job: collect records of models into a store.

use super::arguments::{Collect, Measuring};
use super::boards;
use super::ifcompare::{self, Compared};
use super::inspect;
use super::progress::terminal;
use super::settings::Settled;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, settings, sharing, tell};
use bench::{Access, Bench, Boards, Remembering, Simulator, Versions};
use datasets::{Choose, KNOWN_WELL, Key, Outcome, Output, Peaks, Reached, Record, Shard, Store};
use engine::bases::bases;
use engine::boards::Standing;
use engine::campaign::config::Backend;
use engine::campaign::graphs::{LoadedModels, notes, simulated_note};
use engine::campaign::{
    Attempt, Bases, Campaign, Config, CurrentConditions, Finals, Ground, ModelRequest, Outcomes, PlannedTask, Share,
    Source, Sweep, Tuning, TuningError, attempts, planned_modules, planned_tasks,
};
use engine::failure::{Failure, chain};
use engine::in_place::{self, InPlace};
use engine::ledger::Ledger;
use engine::losses::{Loss, describe, losses};
use engine::observer::Observer;
use engine::pass::{self, Makes};
use engine::peaks;
use engine::repeat::{Repeat, WantedCounters};
use engine::report::learning::{self, Course, Effort, Learning, Searched, courses, learnings};
use engine::report::learning_page::learning_page;
use engine::report::operators::{Summary, render, summarise};
use engine::runs::After;
use engine::stores::failed;
use engine::stores::open_store;
use engine::{machine, spaces};
use job::revision::Revisions;
use job::space::space;
use job::target::{self, Fabric, Kind};
use measure::host::{Load, LoadReading};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Everything `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    store: String,
    host: &'a str,
    host_class: &'a str,
    source: &'static str,
    target: &'a str,
    config_hash: String,
    attempts: usize,
    known_before: usize,
    outcomes: &'a Outcomes,
    losses: Vec<Loss>,
    load: Option<Load>,
    seconds: f64,
    peaks: &'a Peaks,
    models: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    searches: Option<&'a [Learning]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    courses: Option<&'a [Course]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a Effort>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    in_place: &'a [InPlace],
    #[serde(skip_serializing_if = "Option::is_none")]
    comparisons: Option<Vec<Compared>>,
}

/// Collects.
pub fn run(arguments: &Collect) -> Result<u8> {
    let start = Instant::now();
    let (models, sweep) = (&arguments.models, &arguments.sweep);
    let wanted = boards::Wanted { boards: &arguments.boards, models };
    let access = boards::access(wanted)?;
    let Settled { config, loaded } = settings::config_of_search(models, sweep, &arguments.tuning, access.is_some())?;
    let shard = shard(arguments.shard.as_deref())?;
    arguments.sink.as_deref().map(sharing::Address::parse).transpose()?;
    let measuring = &arguments.measuring;
    let chooses = measuring.again || !measuring.unless_agree.is_empty() || measuring.keys.is_some();
    if config.tune.is_some() && chooses {
        return Err(Failure::usage("`--again`, `--keys` and `--unless-agree` are for a sweep, and this is a search")
            .with_hint("a search measures its best few again by itself; to start anew, give another `--store`"));
    }
    let mut repeat = Repeat { counters: WantedCounters::of(&config), ..Repeat::new(&measuring.repeat())? };
    let observer = terminal(measuring.progress);
    let tasks = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(chain(&error)))?;
    let mut workers = machine::workers(&config.limits)?;
    let modules = planned_modules(&config).map_err(|error| Failure::usage(chain(&error)))?;
    if arguments.ifcompare {
        ifcompare::refuse(&config, &tasks, &modules, shard.is_some())?;
    }
    let library = machine::library_versions(&tasks, &modules, &mut workers)?;
    if target::is_fabric(&config.target) {
        return on_fabric(arguments, (&config, &loaded), &tasks, (shard, repeat), access.as_ref(), start);
    }
    tell(&notes(&config, &loaded).map_err(|error| Failure::usage(chain(&error)))?);
    let (target, ground) = match (&access, config.backend) {
        (Some(_), _) if arguments.ifcompare => {
            return Err(Failure::usage("`--ifcompare` runs whole models on this machine, and a board was named")
                .with_hint("leave it out; `opcollect model run` takes the flags of a board, too"));
        }
        (Some(access), _) => engine::boards::look(access, wanted.of_board(), &config, &mut workers)?,
        (None, Backend::Tvm) => (machine::target(&config.target, &mut workers)?, Standing::here()?),
        (None, Backend::Torch) => (machine::library_target(&library)?, Standing::here()?),
    };
    let versions = machine::prepare(&target, library, &mut workers)?;
    let _exclusive =
        if ground.board.is_none() { Some(machine::exclusive(measuring.wait, observer.as_ref())?) } else { None };
    let curves = arguments.tuning.curves.as_deref().map(Output::create).transpose().map_err(failed)?;
    if let Some(tune) = &config.tune {
        let spaces = tasks.iter().map(|planned| (planned.task.describe(), space(planned.scheduled(), &target.machine)));
        inspect::left_of(spaces.collect(), &tune.only)?;
    }
    // Last, so that whatever was wrong before leaves no empty store behind.
    let store = open_store(arguments.store.as_deref())?;
    repeat.leave_to_night(&store, measuring.night.as_deref())?;
    spaces::refuse_others(&config, &store)?;
    let campaign = Campaign { tasks: &tasks, modules: &modules, target: &target, config: &config };
    let revisions = Revisions::own().clone();
    let (compares, as_json, sink) = (arguments.ifcompare, arguments.json, arguments.sink.as_deref());
    let on = ground;
    let fleet = on.board.as_ref().map(|board| board.fleet.clone());
    let job = Job {
        campaign,
        versions,
        revisions,
        store,
        shard,
        repeat,
        measuring,
        observer,
        loaded: &loaded,
        compares,
        sink,
        as_json,
        curves,
        start,
        on,
    };
    match fleet {
        Some(fleet) => job.run(&mut Boards::new(workers, &fleet).map_err(Failure::environment)?),
        None => job.run(&mut workers),
    }
}

/// Collects on a core of a board's fabric: one that is simulated here, or a board's. Nothing is measured on this machine, so
/// nobody is kept from measuring meanwhile.
fn on_fabric(
    arguments: &Collect,
    (config, loaded): (&Config, &LoadedModels),
    tasks: &[PlannedTask],
    (shard, repeat): (Option<Shard>, Repeat),
    access: Option<&Access>,
    start: Instant,
) -> Result<u8> {
    if arguments.ifcompare {
        return Err(Failure::usage("`--ifcompare` runs whole models, and a simulated core runs operators alone"));
    }
    let target = target::fabric(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::read(&config.target).map_err(Failure::usage)?;
    if tasks.is_empty() {
        return Err(Failure::usage("no task of these models is one that the core computes")
            .with_hint("`opcollect tasks` without `--target pynq` lists them"));
    }
    let wanted = boards::Wanted { boards: &arguments.boards, models: &arguments.models };
    let (mut bench, on): (Box<dyn Bench>, Standing) = match access {
        Some(access) => {
            let (bench, on) =
                engine::boards::look_at_core(access, wanted.of_board(), &fabric, config.limits.runner_jobs)?;
            (Box::new(bench), on)
        }
        None => (Box::new(Simulator::new(fabric)), Standing::here()?),
    };
    let is_simulated = on.board.as_ref().is_none_or(|board| board.source() == datasets::Source::Simulated);
    tell(&simulated_note(config).filter(|_| is_simulated).into_iter().collect::<Vec<_>>());
    tell(&notes(config, loaded).map_err(|error| Failure::usage(chain(&error)))?);
    let curves = arguments.tuning.curves.as_deref().map(Output::create).transpose().map_err(failed)?;
    let store = open_store(arguments.store.as_deref())?;
    let campaign = Campaign { tasks, modules: &[], target: &target, config };
    let job = Job {
        campaign,
        versions: Versions::new(),
        revisions: Revisions::own().clone(),
        store,
        shard,
        repeat,
        measuring: &arguments.measuring,
        observer: terminal(arguments.measuring.progress),
        loaded,
        compares: false,
        sink: arguments.sink.as_deref(),
        as_json: arguments.json,
        curves,
        start,
        on,
    };
    job.run(bench.as_mut())
}

/// A campaign with where its records go, on a machine where nobody else measures.
pub struct Job<'a> {
    /// What it is about.
    pub campaign: Campaign<'a>,
    /// Versions of the libraries that build or run.
    pub versions: Versions,
    /// Which code the program makes that builds.
    pub revisions: Revisions,
    /// Where records go.
    pub store: Store,
    /// The part of the work that is ours.
    pub shard: Option<Shard>,
    /// What is measured although it is known, or not although it is not.
    pub repeat: Repeat,
    /// What is measured again, and by which nightly run.
    pub measuring: &'a Measuring,
    /// Hears notes and progress.
    pub observer: Rc<dyn Observer>,
    /// The models that were read.
    pub loaded: &'a LoadedModels,
    /// Whether models are then run as a whole, by default and by best schedules.
    pub compares: bool,
    /// Where records are brought at the end, beside the store.
    pub sink: Option<&'a str>,
    /// Whether the report is JSON.
    pub as_json: bool,
    /// Where the page with learning curves goes.
    pub curves: Option<Output>,
    /// When the command began.
    pub start: Instant,
    /// The machine that code runs on.
    pub on: Standing,
}

impl Job<'_> {
    /// Makes the attempts that the store lacks, and reports.
    pub fn run(mut self, bench: &mut dyn Bench) -> Result<u8> {
        let Campaign { tasks, modules, target, config } = self.campaign;
        let facts = self.on.facts.clone();
        let mut bases = Bases { revisions: self.revisions.clone(), ..bases(config, target, &facts, &self.versions)? };
        if let Some(board) = &self.on.board {
            board.mark(&mut bases.compiled);
            tell(&board.notes());
        }
        if let Some(night) = &self.measuring.night {
            bases.compiled.run_id.clone_from(night);
            bases.library.run_id.clone_from(night);
        }
        let base = &bases.compiled;
        let is_simulated = base.source == datasets::Source::Simulated;
        // What a core computes runs on no CPU of this machine, and is the same on every one.
        let cpus = if target.kind == Kind::Pynq { vec![0] } else { self.on.cpus.clone() };
        let ground = Ground {
            tasks,
            modules,
            target,
            config,
            bases: &bases,
            cpus: &cpus,
            flush_bytes: facts.cold_cache_bytes(),
            breeder: &machine::breeder(&config.limits)?,
        };
        let work = self.work(&ground)?;
        if !is_simulated && self.on.board.is_none() {
            tell_of_others();
            tell(&machine::shared_core_notes(&config.threads, &cpus));
        }
        self.store.keep_config(&config.kept_text()).map_err(failed)?;
        let done = self.make(work, &bases, bench)?;
        if let Some((searched, file)) = done.searched.as_ref().zip(self.curves.take()) {
            keep_curves(searched, config, file)?;
        }
        // Who interrupts wants an end, not a roofline; of a GPU or a board none is measured.
        let has_peaks = matches!(target.kind, Kind::Llvm | Kind::Torch) && self.on.board.is_none();
        let peaks = match done.signal == 0 && has_peaks {
            true => peaks::of_host(&self.store, base, (config, target), (&facts, &done.reached), bench)?,
            false => Peaks::default(),
        };
        let summaries = summaries(&self.campaign, &done.tried, &peaks, is_simulated);
        let seconds = self.start.elapsed().as_secs_f64();
        if !self.as_json {
            if let Some(board) = &self.on.board {
                print(&board.heading())?;
            }
            for summary in &summaries {
                print(&format!("{}\n", render(summary, &paper())))?;
            }
            for peak in peaks::describe(&peaks) {
                print(&peak)?;
            }
            if let Some(searched) = &done.searched {
                let what = if is_simulated { "all times are simulated\n" } else { "" };
                print(&format!("\n{what}{}\n", learning::render(searched, &paper())))?;
            }
            let losses = describe(&losses(&done.records), self.repeat.retry_faults);
            print(&format!("{losses}{}", footer(&done, &self.store, seconds)))?;
        }
        let is_away = self.sink.is_some_and(|sink| self.is_sink_away(sink));
        let after = After { run_id: base.run_id.clone(), signal: Arc::clone(&done.heard) };
        let in_place = self.in_place(&done, &after);
        let comparisons = (self.compares && done.signal == 0)
            .then(|| ifcompare::all(config, self.loaded, self.store.root(), &after, &self.observer));
        let is_unlike = comparisons.iter().flatten().any(Compared::is_loss);
        if self.as_json {
            print_json(&Report {
                store: self.store.root().display().to_string(),
                host: &base.host,
                host_class: &base.host_class,
                source: base.source.name(),
                target: &target.text,
                config_hash: config.hash(),
                attempts: done.attempts,
                known_before: done.known_before,
                outcomes: &done.outcomes,
                losses: losses(&done.records),
                load: done.load,
                seconds,
                peaks: &peaks,
                models: summaries,
                searches: done.searched.as_ref().map(|searched| &searched.learnings[..]),
                courses: done.searched.as_ref().map(|searched| &searched.courses[..]),
                effort: done.searched.as_ref().map(|searched| &searched.effort),
                in_place: &in_place,
                comparisons,
            })?;
        } else {
            for one in &in_place {
                print(&format!("\n{}", one.describe()))?;
            }
            for compared in comparisons.iter().flatten() {
                print(&format!("\n{}", compared.describe()))?;
            }
        }
        // What came while models ran as a whole, too.
        Ok(match done.heard.load(Ordering::Relaxed) {
            0 if done.losses > 0 || done.outcomes.held > 0 || is_unlike || is_away => DONE_WITH_LOSSES,
            0 => DONE,
            signal => 128 + u8::try_from(signal).unwrap_or(0),
        })
    }

    /// After a search of whole models: what its winners are worth in their places.
    fn in_place(&self, done: &Done, after: &After) -> Vec<InPlace> {
        let config = self.campaign.config;
        let Some(searched) = done.searched.as_ref().filter(|_| done.signal == 0) else { return Vec::new() };
        if !in_place::is_for(config, self.shard.is_some(), self.on.board.is_some()) {
            return Vec::new();
        }
        in_place::all(config, self.loaded, self.store.root(), after, &searched.learnings, &self.observer)
    }

    /// What is going to be done: a list of attempts, or a search.
    fn work(&self, ground: &Ground<'_>) -> Result<Work> {
        let Ground { tasks, modules, target, config, bases, cpus, flush_bytes, .. } = *ground;
        let share = Share::new(self.shard.unwrap_or(Shard::WHOLE), tasks, target, config);
        if let Some(tune) = &config.tune {
            let tuning = Tuning::new(ground, tune, |attempt| share.contains(attempt));
            return Ok(Work::Search(Box::new(tuning.map_err(of_tuning)?)));
        }
        let planned = attempts(tasks, modules, target, config, bases, cpus, flush_bytes);
        let mut planned = planned.map_err(|error| Failure::usage(chain(&error)))?;
        planned.retain(|attempt| share.contains(attempt) && self.repeat.is_wanted(attempt.key));
        Ok(Work::Sweep(planned))
    }

    /// Makes the attempts that the store lacks.
    fn make(&self, mut work: Work, bases: &Bases, bench: &mut dyn Bench) -> Result<Done> {
        let base = &bases.compiled;
        let heard = watch_signals()?;
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
                    tell(&[format!(
                        "{heard} times of other tasks, hosts, versions or plans in the store teach the tuners before they begin"
                    )]);
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
        let at = pass::At { signal: &heard, observer: self.observer.as_ref(), store: &self.store, host: &base.host };
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
        let signal = heard.load(Ordering::Relaxed);
        Ok(Done { attempts, known_before, outcomes, losses, signal, heard, load, records, tried, reached, searched })
    }

    /// Reports the number of experiments that have a time and lack requested counters, and what is done about them.
    fn tell_of_counters(&self, ledger: &Ledger<'_>, wanted: &HashSet<Key>, what: &str) {
        let Some(counters) = &self.repeat.counters else { return };
        let lacking = wanted.iter().filter(|key| ledger.lacks_counters(**key)).count();
        if lacking > 0 && !self.repeat.again {
            let names = counters.names.join("`, `");
            tell(&[format!("{lacking} known experiments were measured without the counters `{names}`: {what}")]);
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

    /// Brings the records to a database; one that is away delays them and loses none.
    fn is_sink_away(&self, sink: &str) -> bool {
        match sharing::bring(&self.store, sink) {
            Ok(told) => {
                tell(&[told]);
                false
            }
            Err(failure) => {
                tell(&[failure.to_string()]);
                true
            }
        }
    }

    fn is_over_budget(&self) -> bool {
        self.campaign.config.budget_seconds.is_some_and(|budget| self.start.elapsed().as_secs_f64() > budget)
    }
}

/// Writes the page with learning curves.
fn keep_curves(searched: &Searched, config: &Config, mut file: Output) -> Result<()> {
    let models: Vec<String> = config.models.iter().map(ModelRequest::label).collect();
    let page = learning_page(&format!("Searches of {}", models.join(", ")), searched);
    let path = file.path().display().to_string();
    file.write_all(page.as_bytes()).map_err(Failure::environment)?;
    file.keep().map_err(failed)?;
    tell(&[format!("wrote `{path}`; open it in a browser")]);
    Ok(())
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

/// Says so when the machine is busy before anything was begun: all medians will be known less well.
fn tell_of_others() {
    const LOOK: Duration = Duration::from_millis(200);
    let before = LoadReading::now();
    std::thread::sleep(LOOK);
    let load = before.and_then(|before| Some(LoadReading::now()?.since(&before)));
    if let Some(what) = load.and_then(|load| load.disturbance()) {
        tell(&[format!("this machine is busy: {what}; times will be known less well")]);
    }
}

/// The part of the work that is ours, by flag or by the scheduler's variables.
fn shard(flag: Option<&str>) -> Result<Option<Shard>> {
    match flag {
        Some(text) => text.parse().map(Some).map_err(Failure::usage),
        None => Shard::from_environment(|name| std::env::var(name).ok()).map_err(Failure::usage),
    }
}

/// What came of it.
pub struct Done {
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
    /// The signal that came, by now.
    pub heard: Arc<AtomicUsize>,
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

fn footer(done: &Done, store: &Store, seconds: f64) -> String {
    let counts: Vec<String> =
        done.outcomes.counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let made = if counts.is_empty() { "nothing new".to_owned() } else { counts.join(", ") };
    let mut text = format!("{} attempts: {made}", done.attempts);
    if done.known_before > 0 {
        text.push_str(&format!(", {} known before", done.known_before));
    }
    if done.outcomes.elsewhere > 0 {
        text.push_str(&format!(", {} made by other processes", done.outcomes.elsewhere));
    }
    if done.outcomes.left > 0 {
        text.push_str(&format!(", {} left", done.outcomes.left));
    }
    if done.outcomes.held > 0 {
        text.push_str(&format!(", of which other processes are at {}", done.outcomes.held));
    }
    let timed: Vec<&Record> = done.records.iter().filter(|record| record.outcome == Outcome::Ok).collect();
    let uncertain = timed.iter().filter(|record| !record.is_known_well()).count();
    if uncertain > 0 {
        let (all, percent) = (timed.len(), 100.0 * KNOWN_WELL);
        let share = 100.0 * uncertain as f64 / all as f64;
        text.push_str(&format!(
            "; {uncertain} of {all} medians ({share:.0} %) are known to no better than {percent} %: a quieter machine or more `--visits` help"
        ));
    }
    if let Some(what) = done.load.and_then(|load| load.disturbance()) {
        text.push_str(&format!("; meanwhile {what}"));
    }
    text.push_str(&format!(" · {seconds:.1} s · records in `{}`", store.root().display()));
    text
}
