//! The main job: collect records of models into a store.

use super::arguments::Collect;
use super::dataset::{failed, tell_damage};
use super::failure::{Failure, chain};
use super::peaks;
use super::progress::Progress;
use super::repeat::Repeat;
use super::{DONE, DONE_WITH_LOSSES, Result, machine, paper, print, print_json, settings, tell};
use crate::campaign::attempt::notes;
use crate::campaign::config::Backend;
use crate::campaign::{
    Artifacts, Attempt, Bases, BuildNow, Campaign, Outcomes, Workers, attempts, collect, planned_modules, planned_tasks,
};
use crate::host::Facts;
use crate::report::operators::{Summary, render, summarise};
use datasets::{Choose, Journal, KNOWN_WELL, Origin, Outcome, Peaks, Reached, Record, SealOptions, Shard, Store};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Where records go when nothing is said.
pub const DEFAULT_STORE: &str = "opcollect-data";

/// Everything `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    store: PathBuf,
    host: &'a str,
    host_class: &'a str,
    target: &'a str,
    config_hash: String,
    attempts: usize,
    known_before: usize,
    outcomes: &'a Outcomes,
    seconds: f64,
    peaks: &'a Peaks,
    models: Vec<Summary>,
}

/// Collects.
pub fn run(arguments: &Collect) -> Result<u8> {
    let start = Instant::now();
    let config = settings::config(&arguments.models, &arguments.sweep)?;
    let shard = shard(arguments.shard.as_deref())?;
    let repeat = Repeat::new(arguments.again, &arguments.unless_agree)?;
    let tasks = planned_tasks(&config).map_err(|error| Failure::usage(chain(&error)))?;
    let mut workers = machine::workers(&config.limits)?;
    let modules = planned_modules(&config).map_err(|error| Failure::usage(chain(&error)))?;
    let library = machine::library_versions(&tasks, &modules, &mut workers)?;
    tell(&notes(&config).map_err(|error| Failure::usage(chain(&error)))?);
    let (target, mut versions) = match config.backend {
        Backend::Tvm => (machine::target(&config.target, &mut workers)?, machine::versions(&mut workers)?),
        Backend::Torch => (machine::library_target(&library)?, machine::Versions::new()),
    };
    versions.extend(library);
    if target.kind == "cuda" {
        workers.run_on_device();
        versions.extend(machine::device_versions(&mut workers)?);
    }
    // Last, so that whatever was wrong before leaves no empty store behind.
    let store = open_store(arguments.store.as_deref())?;
    let campaign = Campaign { tasks: &tasks, modules: &modules, target: &target, config: &config };
    let job = Job { campaign, versions, store, shard, repeat, as_json: arguments.json, start };
    job.run(&mut BuildNow, &mut workers)
}

/// A campaign with where its records go.
pub struct Job<'a> {
    /// What it is about.
    pub campaign: Campaign<'a>,
    /// Versions of the libraries that build or run.
    pub versions: machine::Versions,
    /// Where records go.
    pub store: Store,
    /// The part of the work that is ours.
    pub shard: Option<Shard>,
    /// What is measured although it is known, or not although it is not.
    pub repeat: Repeat,
    /// Whether the report is JSON.
    pub as_json: bool,
    /// When the command began.
    pub start: Instant,
}

impl Job<'_> {
    /// Makes the attempts that the store lacks, and reports.
    pub fn run(self, artifacts: &mut dyn Artifacts, workers: &mut Workers) -> Result<u8> {
        let Campaign { tasks, modules, target, config } = self.campaign;
        let facts = Facts::read();
        let base = Record {
            config_hash: Some(config.hash()),
            seed: i64::try_from(config.seed).ok(),
            // A GPU's work is started by one thread, which waits for nobody.
            spin_count: Some(if target.kind == "llvm" { config.limits.spin_count.into() } else { 0 }),
            ..machine::base_record(target, &facts, &self.versions, &run_id())
        };
        let cpus = settings::allowed_cpus()?;
        let bases = Bases { library: machine::library_record(&base, &self.versions)?, compiled: base.clone() };
        let planned = attempts(tasks, modules, target, config, &bases, &cpus, facts.cold_cache_bytes());
        let mut planned = planned.map_err(|error| Failure::usage(chain(&error)))?;
        planned.retain(|attempt| {
            self.shard.is_none_or(|shard| shard.contains(attempt.key)) && !self.repeat.agreed.contains(&attempt.key)
        });
        let done = self.make(planned, &base, artifacts, workers)?;
        // Who interrupts wants an end, not a roofline; of a GPU none is measured.
        let peaks = match done.signal == 0 && target.kind != "cuda" {
            true => peaks::of_host(&self.store, &base, (config, target), (&facts, &done.reached), workers)?,
            false => Peaks::default(),
        };
        let summaries = summaries(&self.campaign, &done.records, &peaks);
        let seconds = self.start.elapsed().as_secs_f64();
        if self.as_json {
            print_json(&Report {
                store: self.store.root().to_owned(),
                host: &base.host,
                host_class: &base.host_class,
                target: &target.text,
                config_hash: config.hash(),
                attempts: done.attempts,
                known_before: done.known_before,
                outcomes: &done.outcomes,
                seconds,
                peaks: &peaks,
                models: summaries,
            })?;
        } else {
            for summary in &summaries {
                print(&format!("{}\n", render(summary, &paper())))?;
            }
            for peak in peaks::describe(&peaks) {
                print(&peak)?;
            }
            print(&footer(&done, &self.store, seconds))?;
        }
        Ok(match done.signal {
            0 if done.losses > 0 => DONE_WITH_LOSSES,
            0 => DONE,
            signal => 128 + u8::try_from(signal).unwrap_or(0),
        })
    }

    /// Makes the attempts that the store lacks.
    fn make(
        &self,
        mut todo: Vec<Attempt>,
        base: &Record,
        artifacts: &mut dyn Artifacts,
        workers: &mut Workers,
    ) -> Result<Done> {
        // What earlier runs left behind when they were killed.
        tell_damage(&self.store.seal(SealOptions::default()).map_err(failed)?.damage);
        let mut keys = self.store.keys().map_err(failed)?;
        tell_damage(keys.damage());
        let attempts = todo.len();
        let wanted: HashSet<datasets::Key> = todo.iter().map(|attempt| attempt.key).collect();
        if !self.repeat.again {
            todo.retain(|attempt| !keys.contains(attempt.key));
        }
        let known_before = attempts - todo.len();
        let signal = watch_signals()?;
        let mut progress = Progress::new(todo.len());
        let mut journal: Option<Journal> = None;
        let mut sink = |record: &Record| -> datasets::Result<()> {
            if journal.is_none() {
                journal = Some(self.store.journal(origin(&record.host))?);
            }
            keys.insert(record.key, record.outcome);
            let record = Record { attempt: keys.attempts(record.key), ..record.clone() };
            journal.as_mut().expect("just begun").append(&record)
        };
        let mut listener = |event: crate::campaign::Event<'_>| progress.hear(&event);
        let should_stop = || signal.load(Ordering::Relaxed) != 0;
        let mut outside =
            crate::campaign::collect::Outside { sink: &mut sink, listener: &mut listener, should_stop: &should_stop };
        let outcomes = collect(&todo, &self.campaign, artifacts, workers, &mut outside);
        progress.finish();
        if let Some(journal) = journal {
            journal.seal().map_err(failed)?;
        }
        let outcomes = outcomes.map_err(failed)?;
        if let Some(why) = &outcomes.broken {
            return Err(Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::SETUP_HINT));
        }
        let (mut records, mut reached) = (Vec::new(), Reached::default());
        for record in self.store.records(Choose::Middle).map_err(failed)? {
            let record = record.map_err(failed)?;
            if record.host == base.host && record.host_class == base.host_class {
                reached.take(&record);
            }
            if wanted.contains(&record.key) {
                records.push(for_report(record));
            }
        }
        let losses = records.iter().filter(|record| record.outcome != Outcome::Ok).count();
        let signal = signal.load(Ordering::Relaxed);
        Ok(Done { attempts, known_before, outcomes, losses, signal, records, reached })
    }
}

/// A record without its long columns, of which the report shows none.
fn for_report(record: Record) -> Record {
    Record {
        samples_ns: Vec::new(),
        features: None,
        counters: None,
        counter_origins: None,
        task: None,
        places: None,
        ..record
    }
}

/// The part of the work that is ours, by flag or by the scheduler's variables.
fn shard(flag: Option<&str>) -> Result<Option<Shard>> {
    match flag {
        Some(text) => text.parse().map(Some).map_err(Failure::usage),
        None => Shard::from_environment(|name| std::env::var(name).ok()).map_err(Failure::usage),
    }
}

/// The store of a flag, made if needed.
pub fn open_store(flag: Option<&Path>) -> Result<Store> {
    let path = flag.unwrap_or(Path::new(DEFAULT_STORE));
    Store::create(path).map_err(failed)
}

fn run_id() -> String {
    let identity = format!("{}-{}", std::process::id(), crate::campaign::collect::now_us());
    blake3::hash(identity.as_bytes()).to_hex()[..16].to_owned()
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
    /// Records of all planned experiments, the middle measurement of each.
    pub records: Vec<Record>,
    /// What any operator on this host reached, those of earlier campaigns included.
    pub reached: Reached,
}

fn origin(host: &str) -> Origin {
    Origin {
        host: host.to_owned(),
        program: format!("opcollect {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args().collect::<Vec<_>>().join(" "),
    }
}

/// The first interrupting signal ends the run after the attempt in flight, the second at once.
fn watch_signals() -> Result<Arc<AtomicUsize>> {
    let seen = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal).map_err(Failure::environment)?;
        flag::register_conditional_default(signal, Arc::clone(&again)).map_err(Failure::environment)?;
        flag::register(signal, Arc::clone(&again)).map_err(Failure::environment)?;
        flag::register_usize(signal, Arc::clone(&seen), number).map_err(Failure::environment)?;
    }
    Ok(seen)
}

fn summaries(campaign: &Campaign<'_>, records: &[Record], peaks: &Peaks) -> Vec<Summary> {
    let models = campaign.config.models.iter().enumerate();
    models
        .map(|model| summarise((campaign.tasks, campaign.modules), model, records, &campaign.target.machine, peaks))
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
    if done.outcomes.left > 0 {
        text.push_str(&format!(", {} left", done.outcomes.left));
    }
    let has_time = |record: &&Record| record.outcome == Outcome::Ok;
    let uncertain = done.records.iter().filter(has_time).filter(|record| !record.is_known_well()).count();
    if uncertain > 0 {
        let percent = 100.0 * KNOWN_WELL;
        text.push_str(&format!(
            "; {uncertain} medians are known to no better than {percent} %: a quieter machine helps"
        ));
    }
    text.push_str(&format!(" · {seconds:.1} s · records in `{}`", store.root().display()));
    text
}
