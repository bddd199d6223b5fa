//! `profile`: where the time of a model goes, operator by operator.

mod annotate;
pub mod arguments;
mod counting;
mod diff;
mod files;
mod grouping;
mod pictures;
mod ready;
mod simulated_table;
mod styled;
mod table;

use super::{DONE, DONE_WITH_LOSSES, Result, print, print_json, settings, tell};
use crate::options::{self, Sweep};
use crate::pace::Pace;
use crate::profile::arguments::{ProfileCommand, ProfileRun, ProfileTable};
use crate::progress::terminal;
use datasets::{Outcome, Peaks, Record, ScheduleSource};
use engine::campaign::record;
use engine::campaign::settings::Resolved;
use engine::failure::{Failure, chain};
use engine::keeping::Keeping;
use engine::network::annotation::Annotation;
use engine::network::{self, Comparison};
use engine::peaks;
use engine::prepared::{Asked, On, PreparedModel, not_built};
use engine::runs::Runs;
use files::Files;
use job::listing::{CodeWishes, Sampling};
use job::target::is_cuda;
use job::{NetworkJob, RunReply};
use measure::counters::Backend;
use measure::{Method, Plan as SamplingPlan, Ratio};
use models::Task;
use profile::data::{Counter, Energy, Refusal, Simulation};
use profile::summary::threads::Thread;
use profile::summary::{self, Row, Totals};
use profile::{Plan, Profile, Schedule};
use serde::Serialize;
use std::path::{Path, PathBuf};
use styled::Styled;

/// The folder of the program.
const PROGRAM: &str = "program";
/// How long runs are looked at when nothing is said, and how long when a schedule says which.
const SECONDS: f64 = 2.0;
const SECONDS_WITH_SCHEDULE: f64 = 600.0;
/// How long samples of its code are taken.
const SAMPLING_NS: u64 = 2_000_000_000;

/// What a profile says, for scripts.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    batch: Option<i64>,
    target: &'a str,
    threads: usize,
    seed: u64,
    schedule: Option<String>,
    calls: usize,
    tasks: usize,
    #[serde(flatten)]
    totals: Timed,
    activation_bytes: u64,
    least_activation_bytes: u64,
    constant_bytes: u64,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
    records: Option<Stored>,
    group_by: &'static str,
    threads_of_pool: Vec<Thread>,
    annotation: Option<Annotation>,
    perf_map: Option<PathBuf>,
    rows: &'a [Row],
    counters: &'a [Counter],
    refusals: &'a [Refusal],
    energy: &'a [Energy],
    simulated: Option<&'a Simulation>,
    notes: &'a [String],
}

/// Where the records of operators are.
#[derive(Serialize)]
struct Stored {
    store: String,
    keys: Vec<String>,
}

/// Totals, and what looking costs as one number and with its interval.
#[derive(Serialize)]
struct Timed {
    steps: usize,
    sum_ns: u64,
    total_ns: u64,
    not_attributed_ns: u64,
    step_median_ns: f64,
    step_min_ns: f64,
    bare_median_ns: Option<f64>,
    profiler_slowdown: Option<f64>,
    profiler_slowdown_interval: Option<(f64, f64)>,
}

pub fn run(arguments: &ProfileRun) -> Result<u8> {
    match &arguments.command {
        Some(ProfileCommand::Diff(asked)) => diff::run(asked),
        None => look(arguments),
    }
}

fn look(arguments: &ProfileRun) -> Result<u8> {
    let simulator = counting::simulator(&arguments.counters)?;
    let mut whole = whole(arguments)?;
    let meant = arguments.code.annotate.as_deref().map(|wanted| annotate::meant(&whole, wanted)).transpose()?;
    let files = Files::create(arguments)?;
    let (target, folder) = (whole.target.clone(), whole.new_folder(PROGRAM)?);
    let choose = |task: &Task| network::default_schedule(task, &target);
    let job = job(arguments, &whole, &folder);
    let _exclusive = crate::exclusive(arguments.wait)?;
    // Last, so that whatever was wrong before leaves no empty store behind.
    let keeping = begin(arguments, &mut whole, &choose, &job)?;
    let made = match whole.make(&folder, &choose) {
        Ok(made) => made,
        Err(error) => {
            let why = chain(&error);
            keep(keeping, |_, row| {
                record::fail(row, Outcome::BuildFailed, why.clone());
                Ok(())
            })?;
            return Err(not_built(error));
        }
    };
    let reply = whole.runs.reply(&job);
    let profiled = match reply {
        Ok(RunReply::Profiled(profiled)) => *profiled,
        other => {
            keep(keeping, |_, row| Ok(record::describe_reply(row, &other)?))?;
            return Err(unseen(other));
        }
    };
    let check = whole.check(&whole.outputs(&job)?);
    let threads = whole.runs.cpus.len();
    let peaks = peaks::now(threads, &target, whole.runs.bench.as_mut());
    let seen = Profile { model: whole.request.label(), target: target.text.clone(), ..profiled.profile };
    let mut profile = whole.profile(seen, &made, &peaks)?;
    counting::simulate(&mut whole, simulator.as_ref(), &mut profile)?;
    profile.check().map_err(|error| Failure::environment(format!("the profile does not fit together: {error}")))?;
    let kept = keep(keeping, |place, row| match check {
        Some(wrong) if !wrong.is_right => {
            record::fail(row, Outcome::WrongResult, "the outputs of its network differ from the reference".to_owned());
            Ok(())
        }
        _ => {
            let built = (&made.schedules[place], &made.artifacts[place]);
            network::in_place::describe(row, &profile, built, profiled.peak_memory_bytes)
        }
    })?;
    let annotated =
        |meant: &Vec<usize>| annotate::annotate(&mut whole, &made, &profile, meant, profiled.samples.as_ref());
    let annotation = meant.as_ref().map(annotated).transpose()?;
    if let (Some(folder), Some(annotation)) = (&arguments.code.annotate_to, &annotation) {
        annotate::keep(folder, annotation)?;
    }
    let rows = rows(&profile, &arguments.table);
    let totals = summary::totals(&profile);
    let styled = arguments.table.style.map(|style| Styled::of(&profile, style, &arguments.table, threads));
    files.keep(&profile, &rows, styled.as_ref())?;
    let mut notes = profile.notes.clone();
    if let Some(command) = &arguments.on_trace_ready {
        notes.extend(ready::hand_over(&profile, command, u64::from(arguments.pictures.trace_mib) << 20)?);
    }
    let has_losses = notes.len() > profile.notes.len() || check.is_some_and(|check| !check.is_right);
    let report = Report {
        model: profile.model.clone(),
        batch: whole.request.batch,
        target: &target.text,
        threads,
        seed: whole.runs.config.seed,
        schedule: arguments.schedule.map(|schedule| schedule.to_string()),
        calls: made.program.calls.len(),
        tasks: made.program.codes,
        totals: timed(&totals),
        activation_bytes: made.program.activation_bytes,
        least_activation_bytes: made.program.least_activation_bytes,
        constant_bytes: network::constant_bytes(&made.program),
        peak_memory_bytes: profiled.peak_memory_bytes,
        check,
        records: kept,
        group_by: grouping::name(arguments.table.group_by),
        annotation,
        perf_map: profiled.perf_map,
        threads_of_pool: summary::threads::threads(&profile),
        rows: &rows,
        counters: &profile.counters,
        refusals: &profile.refusals,
        energy: &profile.energy,
        simulated: profile.simulation.as_ref(),
        notes: &notes,
    };
    let others = meant.map_or(0, |meant| meant.len() - 1);
    show(&report, styled.as_ref(), arguments, (&peaks, others))?;
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// Prints it as it was asked for; `others` is how many more calls the name of the one that is shown has.
fn show(
    report: &Report<'_>,
    styled: Option<&Styled>,
    arguments: &ProfileRun,
    (peaks, others): (&Peaks, usize),
) -> Result<()> {
    match (styled, arguments.json) {
        (Some(styled), true) => {
            tell(report.notes);
            styled.print_json()?
        }
        (None, true) => print_json(report)?,
        (_, false) => {
            let mut lines = vec![table::describe(report, &arguments.table, styled)];
            lines.extend(report.simulated.map(simulated_table::describe));
            lines.extend(peaks::describe(peaks));
            lines.extend(report.annotation.as_ref().map(|one| annotate::describe(one, others)));
            print(&lines.join("\n"))?
        }
    }
    Ok(())
}

/// The records of operators, where they are wanted.
fn begin(
    arguments: &ProfileRun,
    whole: &mut PreparedModel,
    choose: &dyn Fn(&Task) -> job::space::Schedule,
    job: &NetworkJob,
) -> Result<Option<Keeping>> {
    let Some(store) = &arguments.store else { return Ok(None) };
    let schedules = whole.schedules(choose);
    Keeping::begin_operators(store, whole, (&schedules, ScheduleSource::Default), job, &arguments.given.files())
        .map(Some)
}

/// The model that is meant, ready to be built.
fn whole(arguments: &ProfileRun) -> Result<PreparedModel> {
    let sweep = Sweep {
        counters: counting::counters(&arguments.counters),
        ..Sweep::of_run(arguments.threads, arguments.seed, &options::Sampling::default())
    };
    let Resolved { mut config, loaded } = settings::config(&arguments.models, &sweep)?;
    if is_cuda(&config.target) && arguments.counters.is_empty() {
        // Processor time says nothing of what a device does.
        config.counters.backend = Backend::None;
    }
    counting::refuse_for_gpus(arguments, &config.target)?;
    PreparedModel::of(Asked {
        config,
        models: &loaded,
        threads: arguments.threads,
        inputs: &arguments.given.files(),
        is_checked: !arguments.no_check,
        engines: &[],
        on: On::CpusOrGpu,
        observer: terminal(Pace::default()),
    })
}

fn job(arguments: &ProfileRun, whole: &PreparedModel, folder: &Path) -> NetworkJob {
    let config = &whole.runs.config;
    let every =
        |runs: u64| Schedule { skip_first: 3, wait: runs - 1, warmup: 0, active: 1, repeat: 0, skip_first_wait: 0 };
    let schedule = arguments.schedule.or(arguments.sample.map(every)).unwrap_or_default();
    let usual = if arguments.schedule.is_some() { SECONDS_WITH_SCHEDULE } else { SECONDS };
    let budget_ns = (arguments.seconds.unwrap_or(usual) * 1e9) as u64;
    let method = Method::Sample(SamplingPlan::default());
    let job = whole.runs.job(whole.engine(), folder.to_owned(), PROGRAM, method, config.counters.clone());
    let sampling = Sampling { hertz: arguments.code.sample_hertz, budget_ns: SAMPLING_NS };
    let code = CodeWishes {
        sampling: arguments.code.annotate.is_some().then_some(sampling),
        has_perf_map: arguments.code.perf_map,
    };
    NetworkJob { profile: Some(Plan::new(schedule, budget_ns)), code, ..job }
}

/// Why nothing was seen, of what became of the run.
fn unseen(reply: std::result::Result<RunReply, worker::Fault>) -> Failure {
    match Runs::measured(reply) {
        Err(failure) => failure,
        Ok(_) => Failure::environment("the runner told nothing of operators"),
    }
}

/// Keeps records where they are wanted; where, and how many.
fn keep(
    keeping: Option<Keeping>,
    fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
) -> Result<Option<Stored>> {
    let kept = keeping.map(|keeping| keeping.keep_all(fill)).transpose()?;
    Ok(kept.map(|(store, keys)| Stored { store, keys }))
}

fn rows(profile: &Profile, table: &ProfileTable) -> Vec<Row> {
    summary::rows(profile, grouping::group_by(table.group_by, table.levels), table.sort_by.meaning())
}

fn timed(totals: &Totals) -> Timed {
    let slowdown: Option<Ratio> = totals.profiler_slowdown;
    Timed {
        steps: totals.steps,
        sum_ns: totals.sum_ns,
        total_ns: totals.total_ns,
        not_attributed_ns: totals.not_attributed_ns,
        step_median_ns: totals.step_median_ns,
        step_min_ns: totals.step_min_ns,
        bare_median_ns: totals.bare_median_ns,
        profiler_slowdown: slowdown.map(|ratio| ratio.median),
        profiler_slowdown_interval: slowdown.and_then(|ratio| ratio.interval),
    }
}
