//! `model`: a whole model, run as programs run it.

use super::boards::{self, Wanted};
use super::pace::Pace;
use super::progress::terminal;
use super::{DONE, DONE_WITH_LOSSES, Result, mapped, print, print_json, settings};
use crate::options::{ModelRun, Sweep, Tuning};
use datasets::{Covers, Json, Outcome, Record, RowError, ScheduleSource, Source};
use engine::boards::Board;
use engine::campaign::record;
use engine::campaign::settings::Resolved;
use engine::failure::{Failure, chain};
use engine::keeping::{Keeping, Kept};
use engine::network::{self, Comparison};
use engine::prepared::{Asked, On, PreparedModel, not_built};
use engine::runs::{Runs, method};
use engine::staging;
use executor::Program;
use job::target::is_cuda;
use job::{Measured, RunReply};
use models::stages::Promise;
use models::{Choice, Parallel, StagePlan, Task};
use reference::Tensor;
use report::{between, duration};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// What a run says, for scripts.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    batch: Option<i64>,
    target: &'a str,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code_for: Option<String>,
    threads: usize,
    seed: u64,
    calls: usize,
    tasks: usize,
    median_ns: f64,
    min_ns: f64,
    mean_ns: f64,
    p95_ns: f64,
    n: u32,
    median_interval_ns: Option<(f64, f64)>,
    interval_covers: Option<Covers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visits_ns: Option<Json>,
    first_run_ns: u64,
    cpu_time_ns: f64,
    activation_bytes: u64,
    least_activation_bytes: u64,
    constant_bytes: u64,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
    record: Option<Kept>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel: Option<Parallel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<usize>,
    /// Groups side by side at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promised: Option<Promise>,
    /// What each group of each stage took, in the middle of some runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lanes: Vec<Lane>,
    warnings: Vec<String>,
}

/// A group of calls as it ran.
#[derive(Serialize)]
struct Lane {
    stage: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cores: Vec<usize>,
    /// Where it ran on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<usize>,
    begin_ns: f64,
    end_ns: f64,
    /// Where its calls stand in the model.
    scopes: Vec<String>,
}

fn lanes(ran: &Ran<'_>) -> Vec<Lane> {
    let stages = ran.program.stages.iter().zip(&ran.measured.stages_ns).enumerate();
    let is_on_gpu = is_cuda(ran.target);
    let mut lanes = Vec::new();
    for (stage, (groups, seen)) in stages {
        lanes.extend(groups.groups.iter().zip(seen).map(|(group, (begin_ns, end_ns))| Lane {
            stage,
            cores: if is_on_gpu { Vec::new() } else { group.cores.clone() },
            stream: group.cores.first().copied().filter(|_| is_on_gpu),
            begin_ns: *begin_ns,
            end_ns: *end_ns,
            scopes: group.calls.iter().map(|&call| ran.program.calls[call].scope.clone()).collect(),
        }));
    }
    lanes
}

pub fn run(arguments: &ModelRun) -> Result<u8> {
    if arguments.models.settings.unit.as_deref() == Some("fpga") {
        return mapped::run(arguments);
    }
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &arguments.running.sampling);
    let wanted = Wanted { boards: &arguments.boards, models: &arguments.models };
    let access = boards::access(wanted)?;
    if access.is_some() && (arguments.plan.is_some() || arguments.parallel.is_some()) {
        return Err(Failure::usage("a board makes the calls of a model one after the other")
            .with_hint("leave out `--plan` and `--parallel`"));
    }
    let Resolved { config, loaded } =
        settings::config_of_search(&arguments.models, &sweep, &Tuning::default(), access.is_some())?;
    let mut whole = PreparedModel::of(Asked {
        config,
        models: &loaded,
        threads: arguments.threads,
        inputs: &arguments.running.given.files(),
        is_checked: !arguments.no_check,
        engines: &[],
        on: access.as_ref().map_or(On::CpusOrGpu, |access| On::Board(access, wanted.of_board())),
        observer: terminal(Pace::default()),
    })?;
    whole.stages = match (&arguments.plan, arguments.parallel) {
        (Some(path), _) => Some(staging::read(path, &whole)?),
        (None, Some(parallel)) => Some(staging::by_rule(parallel, &whole)),
        (None, None) => None,
    };
    let (target, folder) = (whole.target.clone(), whole.new_folder(PROGRAM)?);
    let choose = |task: &Task| network::default_schedule(task, &target);
    let config = &whole.runs.config;
    let job = whole.runs.job(whole.engine(), folder.clone(), PROGRAM, method(config), config.counters.clone());
    let is_here = whole.standing.board.is_none();
    let _exclusive = if is_here { Some(crate::exclusive(arguments.wait)?) } else { None };
    // Last, so that whatever was wrong before leaves no empty store behind.
    let keeping = match &arguments.store {
        Some(store) => {
            let schedules = (whole.schedules(&choose), ScheduleSource::Default);
            Some(Keeping::begin(
                store,
                &mut whole,
                (&schedules.0, schedules.1),
                &job.method,
                &arguments.running.given.files(),
            )?)
        }
        None => None,
    };
    let made = match whole.make(&folder, &choose) {
        Ok(made) => made,
        Err(error) => {
            let why = chain(&error);
            keep(keeping, |row| {
                record::fail(row, Outcome::BuildFailed, why);
                Ok(())
            })?;
            return Err(not_built(error));
        }
    };
    let reply = whole.runs.reply(&job);
    let found = if let Ok(RunReply::Measured(_)) = &reply { whole.outputs(&job)? } else { Vec::new() };
    let check = if reply.is_ok() && !found.is_empty() { whole.check(&found) } else { None };
    let kept = keep(keeping, |row| {
        network::record::describe_made(row, &made)?;
        network::record::describe_run(row, &reply, check)
    })?;
    let measured = Runs::measured(reply)?;
    let ran = Ran {
        model: whole.request.label(),
        batch: whole.request.batch,
        target: &whole.target.text,
        code_for: None,
        threads: whole.runs.cpus.len(),
        seed: whole.runs.config.seed,
        program: &made.program,
        measured: &measured,
        check,
        kept,
        stages: whole.stages.as_ref(),
        board: whole.standing.board.as_ref(),
    };
    tell(&ran, &found, arguments.running.output.as_deref(), arguments.json)
}

/// Keeps a record where one is wanted.
fn keep(
    keeping: Option<Keeping>,
    fill: impl FnOnce(&mut Record) -> std::result::Result<(), RowError>,
) -> Result<Option<Kept>> {
    keeping.map(|keeping| keeping.keep(fill)).transpose()
}

/// The folder of the program beside its inputs.
const PROGRAM: &str = "program";

/// A program that ran.
pub struct Ran<'a> {
    pub model: String,
    pub batch: Option<i64>,
    pub target: &'a str,
    /// For which processor its code is, where it came from a folder.
    pub code_for: Option<String>,
    pub threads: usize,
    pub seed: u64,
    pub program: &'a Program,
    pub measured: &'a Measured,
    pub check: Option<Comparison>,
    /// Where its record is.
    pub kept: Option<Kept>,
    /// Which calls ran side by side.
    pub stages: Option<&'a StagePlan>,
    /// The board that it ran on, where it did not run here.
    pub board: Option<&'a Board>,
}

/// Says how a program ran, and writes what it answered.
pub fn tell(ran: &Ran<'_>, outputs: &[Tensor], folder: Option<&Path>, as_json: bool) -> Result<u8> {
    if let Some(folder) = folder {
        write_outputs(ran.program, outputs, folder)?;
    }
    let report = report(ran).map_err(Failure::environment)?;
    if as_json {
        print_json(&report)?
    } else {
        let heading = ran.board.map(Board::heading).unwrap_or_default();
        print(&format!("{heading}{}", describe(&report)))?
    }
    Ok(if ran.check.is_some_and(|check| !check.is_right) { DONE_WITH_LOSSES } else { DONE })
}

/// One file for each output, in a folder.
fn write_outputs(program: &Program, outputs: &[Tensor], folder: &Path) -> Result<()> {
    let failed = |error| Failure::usage(format!("cannot write to `{}`: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    for (place, (port, tensor)) in program.outputs.iter().zip(outputs).enumerate() {
        // A name of a file's own choosing is no path.
        let plain: String = port.name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
        let bytes = network::npy::bytes(tensor);
        let path = folder.join(format!("{place}-{}.npy", plain.chars().take(60).collect::<String>()));
        datasets::output::write(&path, &bytes).map_err(|error| Failure::usage(chain(&error)))?;
    }
    Ok(())
}

fn report<'a>(ran: &Ran<'a>) -> std::result::Result<Report<'a>, RowError> {
    let Ran { program, measured, .. } = ran;
    let m = &measured.measurement;
    // As a record states it.
    let mut row = Record::default();
    record::describe_measurement(&mut row, m)?;
    Ok(Report {
        model: ran.model.clone(),
        batch: ran.batch,
        target: ran.target,
        source: ran.board.map_or(Source::Measured, Board::source).name(),
        code_for: ran.code_for.clone(),
        threads: ran.threads,
        seed: ran.seed,
        calls: program.calls.len(),
        tasks: program.codes,
        median_ns: m.median_ns,
        min_ns: m.min_ns,
        mean_ns: m.mean_ns,
        p95_ns: m.p95_ns,
        n: m.n,
        median_interval_ns: row.median_low_ns.zip(row.median_high_ns),
        interval_covers: row.interval_covers,
        visits_ns: row.visits_ns,
        first_run_ns: m.first_run_ns,
        cpu_time_ns: m.cpu_time_ns,
        activation_bytes: program.activation_bytes,
        least_activation_bytes: program.least_activation_bytes,
        constant_bytes: network::constant_bytes(program),
        peak_memory_bytes: measured.peak_memory_bytes,
        check: ran.check,
        record: ran.kept.clone(),
        parallel: ran.stages.map(|stages| stages.parallel),
        stages: ran.stages.map(|stages| stages.stages.len()),
        width: ran.stages.map(StagePlan::width),
        promised: ran.stages.and_then(|stages| stages.promise),
        lanes: lanes(ran),
        warnings: m.warnings.iter().map(ToString::to_string).collect(),
    })
}

/// Bytes as a person reads them.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..=0xf_ffff => format!("{:.1} KiB", bytes as f64 / f64::from(1 << 10)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

fn describe(report: &Report<'_>) -> String {
    let mut lines = vec![format!(
        "{}: {} calls of {} tasks, {} thread{}, seed {}",
        report.model,
        report.calls,
        report.tasks,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
        report.seed
    )];
    let covered = match report.interval_covers {
        Some(Covers::Visits) => "over visits",
        _ => "within one visit",
    };
    let interval = report.median_interval_ns.map(|(low, high)| format!(", {} {covered}", between(low, high)));
    lines.push(format!(
        "  time        {} median{}; least {}, p95 {}, {} samples",
        duration(report.median_ns),
        interval.unwrap_or_default(),
        duration(report.min_ns),
        duration(report.p95_ns),
        report.n
    ));
    if let (Some(parallel), Some(stages), Some(width)) = (report.parallel, report.stages, report.width) {
        let promised = report.promised.map(|promise| {
            format!("; promised {} ({})", duration(promise.time_ns), between(promise.low_ns, promise.high_ns))
        });
        let (name, promised) = (parallel.name(), promised.unwrap_or_default());
        lines.push(format!("  plan        {name}: {stages} stages, up to {width} groups side by side{promised}"));
    }
    lines.push(format!("  first run   {}", duration(report.first_run_ns as f64)));
    lines.push(format!(
        "  memory      {} of activations (at least {}), {} of constants, {} the whole process",
        size(report.activation_bytes),
        size(report.least_activation_bytes),
        size(report.constant_bytes),
        // Of a board's process nothing is known.
        if report.peak_memory_bytes > 0 { size(report.peak_memory_bytes) } else { "?".to_owned() }
    ));
    lines.extend(report.code_for.iter().map(|code| format!("  code        for {code}")));
    lines.push(match &report.check {
        None => "  check       none".to_owned(),
        Some(check) => format!(
            "  check       {}: off by {:.1e} where outputs are up to {:.1e}; {:.0e} of that is allowed",
            if check.is_right { "right" } else { "WRONG" },
            check.max_abs_error,
            check.largest_output,
            check.tolerance
        ),
    });
    lines.extend(report.record.iter().map(|kept| format!("  record      {} in `{}`", kept.key, kept.store)));
    lines.extend(report.warnings.iter().map(|warning| format!("  note        {warning}")));
    lines.join("\n")
}
