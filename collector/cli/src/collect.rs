//! The main job: collect records of models into a store.

use super::progress::terminal;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, boards, inspect, paper, print, print_json, settings, sharing, tell};
use crate::options::{BoardFlags, Measuring, Models, Sweep, Tuning};
use bench::{Access, Bench, Boards, Simulator, Versions};
use clap::Args;
use datasets::{KNOWN_WELL, Outcome, Output, Peaks, Record, Shard, Store};
use engine::boards::Standing;
use engine::campaign::choices::Backend;
use engine::campaign::graphs::{LoadedModels, notes, simulated_note};
use engine::campaign::settings::Resolved;
use engine::campaign::{Campaign, Config, ModelRequest, Outcomes, PlannedTask, planned_modules, planned_tasks};
use engine::collection::{Collected, Collection};
use engine::failure::{Failure, chain};
use engine::ifcompare::{self, Compared};
use engine::in_place::InPlace;
use engine::losses::{Loss, describe, losses};
use engine::repeat::{Repeat, WantedCounters};
use engine::report::learning::{self, Course, Effort, Learning, Searched};
use engine::report::learning_page::learning_page;
use engine::report::operators::{Summary, render};
use engine::stores::{failed, open_store};
use engine::{machine, peaks, spaces};
use job::revision::Revisions;
use job::space::space;
use job::target::{self, Fabric};
use measure::host::Load;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Which models, and how their operators are compiled and measured.
#[derive(Clone, Debug, Default, Args)]
pub struct Collect {
    #[command(flatten)]
    pub models: Models,
    /// Write records to this store, a folder that is made if needed
    ///
    /// The same command again measures only what is missing. Default: `opcollect-data` in the working folder.
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub measuring: Measuring,
    /// After the campaign, run each model as a whole by the default and by the best schedules, and compare their times
    ///
    /// It is what `opcollect model compare --variant default --variant best --store DIR` does, on each number of threads of
    /// the campaign.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true",
        hide_default_value = true,
        action = clap::ArgAction::Set,
        help_heading = "Measuring"
    )]
    pub ifcompare: bool,
    /// Do only this part of the work, as I/N with I from 1 to N
    ///
    /// Each attempt belongs to exactly one part, even if the parts run on different machines; a search is not divided.
    /// Without the flag, a Slurm job array or a Kubernetes indexed job says which part this process is.
    #[arg(long, value_name = "I/N", help_heading = "Data")]
    pub shard: Option<String>,
    /// At the end, also bring the store's records to `file:///folder` or `postgres://user@host/database`
    ///
    /// The store stays the truth: a place that is away is told, delays records and loses none.
    #[arg(long, value_name = "ADDRESS", help_heading = "Data")]
    pub sink: Option<String>,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long, help_heading = "Data")]
    pub json: bool,
    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub boards: BoardFlags,
}

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
    models: &'a [Summary],
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
    let Resolved { config, loaded } = settings::config_of_search(models, sweep, &arguments.tuning, access.is_some())?;
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
    let on = ground;
    let fleet = on.board.as_ref().map(|board| board.fleet.clone());
    let (signal, night) = (watch_signals()?, measuring.night.as_deref());
    let collection = Collection {
        campaign,
        versions,
        revisions,
        store,
        shard,
        repeat,
        night,
        loaded: &loaded,
        on,
        start,
        signal,
        observer,
    };
    let shown =
        Shown { compares: arguments.ifcompare, sink: arguments.sink.as_deref(), as_json: arguments.json, curves };
    match fleet {
        Some(fleet) => collect(&collection, &mut Boards::new(workers, &fleet).map_err(Failure::environment)?, shown),
        None => collect(&collection, &mut workers, shown),
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
    let collection = Collection {
        campaign,
        versions: Versions::new(),
        revisions: Revisions::own().clone(),
        store,
        shard,
        repeat,
        night: arguments.measuring.night.as_deref(),
        loaded,
        on,
        start,
        signal: watch_signals()?,
        observer: terminal(arguments.measuring.progress),
    };
    let shown = Shown { compares: false, sink: arguments.sink.as_deref(), as_json: arguments.json, curves };
    collect(&collection, bench.as_mut(), shown)
}

/// Presentation of a collection.
pub struct Shown<'a> {
    /// Whether models are also run as a whole, by the default and by the best schedules.
    pub compares: bool,
    /// Address that records are also pushed to at the end.
    pub sink: Option<&'a str>,
    /// Whether the report is JSON.
    pub as_json: bool,
    /// File for the page with learning curves.
    pub curves: Option<Output>,
}

/// Runs a collection and prints its report.
pub fn collect(collection: &Collection<'_>, bench: &mut dyn Bench, shown: Shown<'_>) -> Result<u8> {
    let done = collection.run(bench)?;
    if let Some((searched, file)) = done.searched.as_ref().zip(shown.curves) {
        keep_curves(searched, collection.campaign.config, file)?;
    }
    let seconds = collection.start.elapsed().as_secs_f64();
    if !shown.as_json {
        print_tables(collection, &done, seconds)?;
    }
    let is_away = shown.sink.is_some_and(|sink| is_sink_away(&collection.store, sink));
    let in_place = collection.in_place(&done);
    let comparisons = (shown.compares && done.signal == 0).then(|| collection.compare(&done));
    let is_unlike = comparisons.iter().flatten().any(Compared::is_loss);
    if shown.as_json {
        print_json(&report(collection, &done, seconds, &in_place, comparisons))?;
    } else {
        for one in &in_place {
            print(&format!("\n{}", one.describe()))?;
        }
        for compared in comparisons.iter().flatten() {
            print(&format!("\n{}", compared.describe(&paper())))?;
        }
    }
    // Includes signals during the runs of whole models.
    Ok(match collection.signal.load(Ordering::Relaxed) {
        0 if done.has_losses() || done.outcomes.held > 0 || is_unlike || is_away => DONE_WITH_LOSSES,
        0 => DONE,
        signal => 128 + u8::try_from(signal).unwrap_or(0),
    })
}

fn print_tables(collection: &Collection<'_>, done: &Collected, seconds: f64) -> Result<()> {
    if let Some(board) = &collection.on.board {
        print(&board.heading())?;
    }
    for summary in &done.summaries {
        print(&format!("{}\n", render(summary, &paper())))?;
    }
    for peak in peaks::describe(&done.peaks) {
        print(&peak)?;
    }
    if let Some(searched) = &done.searched {
        let what = if done.source == datasets::Source::Simulated { "all times are simulated\n" } else { "" };
        print(&format!("\n{what}{}\n", learning::render(searched, &paper())))?;
    }
    let losses = describe(&losses(&done.records), collection.repeat.retry_faults);
    print(&format!("{losses}{}", footer(done, &collection.store, seconds)))
}

fn report<'a>(
    collection: &'a Collection<'_>,
    done: &'a Collected,
    seconds: f64,
    in_place: &'a [InPlace],
    comparisons: Option<Vec<Compared>>,
) -> Report<'a> {
    let Campaign { target, config, .. } = collection.campaign;
    Report {
        store: collection.store.root().display().to_string(),
        host: &done.host,
        host_class: &done.host_class,
        source: done.source.name(),
        target: &target.text,
        config_hash: config.hash(),
        attempts: done.attempts,
        known_before: done.known_before,
        outcomes: &done.outcomes,
        losses: losses(&done.records),
        load: done.load,
        seconds,
        peaks: &done.peaks,
        models: &done.summaries,
        searches: done.searched.as_ref().map(|searched| &searched.learnings[..]),
        courses: done.searched.as_ref().map(|searched| &searched.courses[..]),
        effort: done.searched.as_ref().map(|searched| &searched.effort),
        in_place,
        comparisons,
    }
}

/// Pushes the records to an address. Returns whether that failed; the store keeps them for a later push.
fn is_sink_away(store: &Store, sink: &str) -> bool {
    match sharing::bring(store, sink) {
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

/// The part of the work that is ours, by flag or by the scheduler's variables.
fn shard(flag: Option<&str>) -> Result<Option<Shard>> {
    match flag {
        Some(text) => text.parse().map(Some).map_err(Failure::usage),
        None => Shard::from_environment(|name| std::env::var(name).ok()).map_err(Failure::usage),
    }
}

fn footer(done: &Collected, store: &Store, seconds: f64) -> String {
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
