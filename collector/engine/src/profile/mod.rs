//! Profiles a model: runs it with time stamps and counters around operators; summarises, stores and writes the results.

mod code;
mod counting;
mod cycles;
mod diff;
mod files;
mod visits;

pub use code::{CodeOptions, DEFAULT_SAMPLE_HERTZ};
pub use counting::requested_counters;
pub use diff::{ProfileDiff, compare_files, read_profile};
pub use files::{DEFAULT_TRACE_MIB, FileOptions};

use crate::campaign::config::Config;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::record;
use crate::failure::{Failure, format_chain};
use crate::input_files::InputFiles;
use crate::network::{self, BuiltModel, Comparison};
use crate::observer::Observer;
use crate::prepared::{PreparationRequest, PreparedModel, RunLocation, build_failure};
use crate::record_keeping::RecordKeeper;
use crate::report::profile::{self as text, OperatorRecords, ProfileView, Report};
use crate::report::styled::{Style, StyledTable};
use crate::runs::{PROGRAM, Runs};
use crate::{Result, machine, peaks};
use datasets::{Outcome, Peaks, Record, ScheduleSource};
use files::ProfileFiles;
use job::listing::Samples;
use job::{NetworkJob, Profiled, RunReply};
use measure::counters::Backend;
use measure::{Method, Plan as SamplingPlan};
use profile::summary::{self, GroupBy};
use profile::{Plan, Profile, ProfileSchedule, SortBy};
use report::Paper;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Default duration of profiling in seconds.
const SECONDS: f64 = 2.0;
/// Default time limit of profiling with a schedule, in seconds; a schedule normally ends earlier.
const SECONDS_WITH_SCHEDULE: f64 = 600.0;

/// Options of a profile.
pub struct ProfileOptions<'a> {
    /// Number of threads; by default one per CPU.
    pub threads: Option<usize>,
    /// Files with inputs of the model; all other inputs are random.
    pub inputs: &'a InputFiles,
    /// Whether the outputs are compared with the reference computation.
    pub is_checked: bool,
    /// Schedule that selects the profiled runs.
    pub schedule: Option<ProfileSchedule>,
    /// Profile one of every n runs, if there is no schedule.
    pub sample: Option<u64>,
    /// Time limit of profiling in seconds.
    pub seconds: Option<f64>,
    /// Names of counters and simulators. [`requested_counters`] returns the hardware counters among them.
    pub counters: &'a [String],
    /// Shell command that receives the trace of each cycle.
    pub on_trace_ready: Option<&'a str>,
    /// Longest wait for another process that measures on the same CPUs.
    pub wait_seconds: u64,
    /// Store for the records of operators.
    pub store: Option<&'a Path>,
    /// Options of the annotated code.
    pub code: CodeOptions<'a>,
    /// Grouping of calls into rows.
    pub group_by: GroupBy,
    /// The order of rows.
    pub sort_by: SortBy,
    /// Other tool whose table style is used; None for the style of this program.
    pub style: Option<Style>,
    /// The files to write.
    pub files: FileOptions<'a>,
    /// Set to the number of a signal, which ends the work after the build or run in flight, without a result.
    pub signal: Arc<AtomicUsize>,
}

impl ProfileOptions<'_> {
    /// Returns whether further processes (visits) are profiled: unless runs are selected or `on_trace_ready` is given.
    fn has_visits(&self) -> bool {
        self.schedule.is_none() && self.sample.is_none() && self.on_trace_ready.is_none()
    }
}

/// The profile of a model with its tables.
pub struct ModelProfile {
    /// The measured profile.
    pub profile: Profile,
    /// Summary of the profile.
    pub report: Report,
    /// Table in the style of another tool, if a style was requested.
    pub styled: Option<StyledTable>,
    /// Peak rates of the machine.
    pub peaks: Peaks,
    /// Whether outputs differ from the reference, or the user's command `on_trace_ready` failed on a trace.
    pub has_losses: bool,
    /// Number of other operators that match the name given for annotation.
    homonyms: usize,
}

impl ModelProfile {
    /// Formats the profile, the simulation, the peak rates, and the annotated operator.
    pub fn text(&self, view: ProfileView, paper: &Paper) -> String {
        let report = &self.report;
        let mut lines = vec![text::describe_profile(report, view, self.styled.as_ref(), paper)];
        lines.extend(report.simulated.as_ref().map(|simulated| text::simulated::describe_simulation(simulated, paper)));
        lines.extend(peaks::describe_peaks(&self.peaks));
        lines.extend(report.annotation.as_ref().map(|one| text::code::describe_annotation(one, self.homonyms)));
        lines.join("\n")
    }
}

struct MeasuredProfile {
    profile: Profile,
    made: BuiltModel,
    check: Option<Comparison>,
    peaks: Peaks,
    samples: Option<Samples>,
    perf_map: Option<PathBuf>,
    peak_memory_bytes: u64,
}

/// Profiles the only model of a configuration.
pub fn profile_model(
    options: &ProfileOptions<'_>,
    config: Config,
    models: &LoadedModels,
    observer: &Rc<dyn Observer>,
) -> Result<ModelProfile> {
    options.files.check_distinct()?;
    let simulator = counting::find_simulator(options.counters)?;
    let mut model = prepare_model(options, config, models, observer)?;
    let named = options.code.annotate.map(|name| code::find_tasks(&model, name)).transpose()?;
    let files = ProfileFiles::create(&options.files)?;
    let folder = model.new_folder(PROGRAM)?;
    let job = network_job(options, &model, &folder);
    let _exclusive = machine::lock_cpus(options.wait_seconds, observer.as_ref())?;
    // The store is opened last, so that an earlier error does not leave an empty store behind.
    let keeper = begin_records(options, &mut model, &job)?;
    let (mut measured, keeper) = measure_model(&mut model, &folder, &job, keeper, options.has_visits())?;
    if let Some(simulator) = &simulator {
        counting::add_simulation(&mut model, simulator, &mut measured.profile)?;
    }
    measured.profile.check().map_err(|error| Failure::environment(format!("the profile is inconsistent: {error}")))?;
    let records = keep_operators(keeper, &measured)?;
    let annotate = |tasks: &Vec<usize>| {
        code::annotate_slowest(&mut model, &measured.made, &measured.profile, tasks, measured.samples.as_ref())
    };
    let annotation = named.as_ref().map(annotate).transpose()?;
    if let (Some(folder), Some(annotation)) = (options.code.folder, &annotation) {
        code::write_files(folder, annotation)?;
    }
    let styled = options.style.map(|style| styled_table(&measured.profile, style, options, model.runs.cpus.len()));
    let mut report = Report { records, annotation, ..summarise_profile(&measured, options, &model) };
    files.write(&measured.profile, &report.rows, styled.as_ref(), observer.as_ref())?;
    let command_failure = options
        .on_trace_ready
        .map(|command| cycles::run_on_cycles(&measured.profile, command, options.files.trace_bytes()));
    let failed = command_failure.transpose()?.flatten();
    let has_losses = failed.is_some() || measured.check.is_some_and(|check| !check.is_right);
    report.notes.extend(failed);
    let homonyms = named.map_or(0, |tasks| tasks.len() - 1);
    Ok(ModelProfile { profile: measured.profile, report, styled, peaks: measured.peaks, has_losses, homonyms })
}

fn prepare_model(
    options: &ProfileOptions<'_>,
    mut config: Config,
    models: &LoadedModels,
    observer: &Rc<dyn Observer>,
) -> Result<PreparedModel> {
    if config.target_kind().runs_on_gpu() && options.counters.is_empty() {
        // The processor time of the host does not describe the work of a device.
        config.counters.backend = Backend::None;
    }
    counting::check_target(options.counters, &options.code, config.target_kind())?;
    let mut model = PreparedModel::from_request(PreparationRequest {
        config,
        models,
        threads: options.threads,
        inputs: options.inputs,
        is_checked: options.is_checked,
        engines: &[],
        on: RunLocation::CpusOrGpu,
        observer: Rc::clone(observer),
    })?;
    model.require_operators()?;
    model.runs.signal = Arc::clone(&options.signal);
    Ok(model)
}

fn network_job(options: &ProfileOptions<'_>, model: &PreparedModel, folder: &Path) -> NetworkJob {
    let every = |runs: u64| ProfileSchedule {
        skip_first: 3,
        wait: runs - 1,
        warmup: 0,
        active: 1,
        repeat: 0,
        skip_first_wait: 0,
    };
    let schedule = options.schedule.or(options.sample.map(every)).unwrap_or_default();
    let default_seconds = if options.schedule.is_some() { SECONDS_WITH_SCHEDULE } else { SECONDS };
    let budget_ns = (options.seconds.unwrap_or(default_seconds) * 1e9) as u64;
    let method = Method::Sample(SamplingPlan::default());
    let counters = model.runs.config.counters.clone();
    let job = model.runs.create_job(model.engine(), folder.to_owned(), PROGRAM, method, counters);
    NetworkJob { profile: Some(Plan::new(schedule, budget_ns)), code: options.code.runner_requests(), ..job }
}

fn begin_records(
    options: &ProfileOptions<'_>,
    model: &mut PreparedModel,
    job: &NetworkJob,
) -> Result<Option<RecordKeeper>> {
    let Some(store) = options.store else { return Ok(None) };
    let schedules = model.choose_schedules(&|task| network::default_schedule(task, &model.target));
    RecordKeeper::begin_operators(store, model, (&schedules, ScheduleSource::Default), job, options.inputs).map(Some)
}

/// Builds the model and profiles its runs. A failure is stored as records without times.
fn measure_model(
    model: &mut PreparedModel,
    folder: &Path,
    job: &NetworkJob,
    keeper: Option<RecordKeeper>,
    has_visits: bool,
) -> Result<(MeasuredProfile, Option<RecordKeeper>)> {
    let target = model.target.clone();
    let made = match model.build_into(folder, &|task| network::default_schedule(task, &target)) {
        Ok(made) => made,
        Err(error) => {
            model.runs.check_signal()?;
            let why = format_chain(&error);
            store_records(keeper, |_, row| {
                record::mark_failed(row, Outcome::BuildFailed, why.clone());
                Ok(())
            })?;
            return Err(build_failure(error));
        }
    };
    model.runs.check_signal()?;
    let reply = model.runs.run_visits(job);
    model.runs.check_signal()?;
    let profiled = match reply {
        Ok(RunReply::Profiled(profiled)) => *profiled,
        other => {
            store_records(keeper, |_, row| Ok(record::describe_reply(row, &other)?))?;
            return Err(profile_failure(other));
        }
    };
    let check = model.check_outputs(&model.last_outputs(job)?);
    let Runs { cpus, config, bench, .. } = &mut model.runs;
    let peaks = peaks::measure_peak_rates(cpus.len(), (config, &target), bench.as_mut());
    let profile = Profile { model: model.request.label(), target: target.text, ..profiled.profile };
    let mut profile = model.complete_profile(profile, &made, &peaks)?;
    profile.memory_roofs = peaks::memory_roofs(&peaks, model.runs.cpus.len());
    if has_visits {
        visits::add_visits(&mut profile, job, &mut model.runs)?;
    }
    let Profiled { samples, perf_map, peak_memory_bytes, .. } = profiled;
    Ok((MeasuredProfile { profile, made, check, peaks, samples, perf_map, peak_memory_bytes }, keeper))
}

fn profile_failure(reply: std::result::Result<RunReply, worker::Fault>) -> Failure {
    match Runs::reply_times(reply) {
        Err(failure) => failure,
        Ok(_) => Failure::environment("the runner reported no operators"),
    }
}

fn keep_operators(keeper: Option<RecordKeeper>, measured: &MeasuredProfile) -> Result<Option<OperatorRecords>> {
    store_records(keeper, |place, row| match measured.check {
        Some(wrong) if !wrong.is_right => {
            record::mark_failed(
                row,
                Outcome::WrongResult,
                "the outputs of its network differ from the reference".to_owned(),
            );
            Ok(())
        }
        _ => {
            let built = (&measured.made.schedules[place], &measured.made.artifacts[place]);
            network::in_network::fill_record(row, &measured.profile, built, measured.peak_memory_bytes)
        }
    })
}

fn store_records(
    keeper: Option<RecordKeeper>,
    fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
) -> Result<Option<OperatorRecords>> {
    let kept = keeper.map(|keeper| keeper.store_all(fill)).transpose()?;
    Ok(kept.map(|(store, keys)| OperatorRecords { store, keys }))
}

fn styled_table(profile: &Profile, style: Style, options: &ProfileOptions<'_>, threads: usize) -> StyledTable {
    let mut table = StyledTable::new(profile, style, options.group_by.into(), options.sort_by);
    table.add_configuration("Number of threads", threads);
    table.add_configuration("Executor", "opcollect");
    table
}

fn summarise_profile(measured: &MeasuredProfile, options: &ProfileOptions<'_>, model: &PreparedModel) -> Report {
    let MeasuredProfile { profile, made, .. } = measured;
    Report {
        model: profile.model.clone(),
        batch: model.request.batch,
        target: model.target.text.clone(),
        threads: model.runs.cpus.len(),
        seed: model.runs.config.seed,
        schedule: options.schedule.map(|schedule| schedule.to_string()),
        calls: made.program.calls.len(),
        tasks: made.program.called_codes(),
        totals: summary::compute_totals(profile).into(),
        activation_bytes: made.program.activation_bytes,
        least_activation_bytes: made.program.least_activation_bytes,
        constant_bytes: network::constant_bytes(&made.program),
        peak_memory_bytes: measured.peak_memory_bytes,
        check: measured.check,
        records: None,
        group_by: options.group_by.name(),
        annotation: None,
        perf_map: measured.perf_map.clone(),
        threads_of_pool: summary::threads::thread_statistics(profile),
        rows: summary::summary_rows(profile, options.group_by, options.sort_by),
        counters: profile.counters.clone(),
        refusals: profile.refusals.clone(),
        energy: profile.energy.clone(),
        simulated: profile.simulation.clone(),
        notes: profile.notes.clone(),
    }
}
