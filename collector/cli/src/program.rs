//! `model build` and `run` of what it built: a whole model in a folder, run where neither compiler nor model is.

use super::model::{self, Ran};
use super::pace::Pace;
use super::progress::terminal;
use super::{Result, print, print_json, settings, tell};
use crate::options::{Measuring, Models, Running, Sampling, Sweep};
use clap::Args;
use engine::appearing::Appearing;
use engine::campaign::Settings;
use engine::campaign::settings::Resolved;
use engine::failure::{Failure, chain};
use engine::network::portable::{self, Found, Portable};
use engine::network::{self, Best};
use engine::prepared::{Asked, On, PreparedModel, not_built};
use engine::runs::{Runs, method};
use engine::{given, machine};
use job::Engine;
use measure::host::cpu_flags;
use models::Task;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How a whole model becomes a folder.
#[derive(Debug, Args)]
pub struct ModelBuild {
    #[command(flatten)]
    pub models: Models,
    /// Folder for the program; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Build each task by the fastest right schedule that a store has, where it has one
    #[arg(long, requires = "store")]
    pub best: bool,
    /// Take the schedules of `--best` from this store, as measured on such a host for the same target, versions, code and
    /// number of threads
    #[arg(long, value_name = "DIR", requires = "best")]
    pub store: Option<PathBuf>,
    /// Also use times of other TVM versions and code revisions for `--best`
    #[arg(long, requires = "best")]
    pub all_versions: bool,
    /// Threads that the schedules of `--best` were measured on [default: all CPUs]
    #[arg(long, value_name = "N", requires = "best")]
    pub threads: Option<usize>,
    /// Seed of the input values whose outputs are kept in the folder to compare with [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep no outputs of the reference, which takes long for large models
    #[arg(long)]
    pub no_check: bool,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// How the program of a folder is run. Folders of artifacts take none of it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Programs of whole models")]
pub struct ProgramRun {
    /// Threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of input values [default: that of the expected outputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub running: Running,
}

/// What was built, for scripts.
#[derive(Serialize)]
struct Report {
    folder: String,
    model: String,
    batch: Option<i64>,
    target: String,
    code_for: String,
    calls: usize,
    tasks: usize,
    tasks_found: Option<usize>,
    constant_bytes: u64,
    is_checkable: bool,
}

/// Builds a model into a folder.
pub fn build(arguments: &ModelBuild) -> Result<u8> {
    let folder = Appearing::begin(&arguments.out)?;
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default());
    let Resolved { config, loaded } = settings::config(&arguments.models, &sweep)?;
    let mut whole = PreparedModel::of(Asked {
        config,
        models: &loaded,
        threads: arguments.threads,
        inputs: &Default::default(),
        is_checked: !arguments.no_check,
        engines: &[Engine::Program],
        on: On::Cpus,
        observer: terminal(Pace::default()),
    })?;
    let best = arguments.store.as_ref().map(|store| whole.best(store, arguments.all_versions)).transpose()?;
    let target = whole.target.clone();
    let choose = |task: &Task| match &best {
        Some(best) => best.choose(task),
        None => network::default_schedule(task, &target),
    };
    let made = whole.make(folder.path(), &choose).map_err(not_built)?;
    let object = made.artifacts.first().map_or(&[][..], |artifact| &artifact.object);
    let mut used: Vec<String> = made.artifacts.iter().flat_map(|artifact| artifact.instruction_sets.clone()).collect();
    used.sort();
    used.dedup();
    let portable = Portable {
        versions: machine::versions(whole.runs.bench.as_mut())?,
        model: whole.request.label(),
        batch: whole.request.batch,
        target: target.text.clone(),
        // Without a call there is no code, and every machine will do.
        architecture: match object {
            [] => std::env::consts::ARCH.to_owned(),
            object => portable::architecture(object),
        },
        instruction_sets: used,
        seed: whole.runs.config.seed,
        draws: reference::input_draws(&whole.graph),
        tolerance: network::tolerance(&whole.graph),
        ..Portable::default()
    };
    let report = Report {
        folder: arguments.out.display().to_string(),
        model: portable.model.clone(),
        batch: portable.batch,
        target: portable.target.clone(),
        code_for: portable.needs(),
        calls: made.program.calls.len(),
        tasks: made.program.codes,
        tasks_found: best.as_ref().map(Best::found),
        constant_bytes: network::constant_bytes(&made.program),
        is_checkable: whole.expected.is_some(),
    };
    portable::write(folder.path(), portable, whole.expected.as_deref()).map_err(Failure::environment)?;
    folder.finish(&arguments.out)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        print(&describe(&report))?;
    }
    Ok(super::DONE)
}

fn describe(report: &Report) -> String {
    let found = report.tasks_found.map(|found| format!(", {found} of them by the best schedule of the store"));
    format!(
        "{}: {} calls of {} tasks{}, {} of constants in `{}`\n  code        for {}\n  check       {}",
        report.model,
        report.calls,
        report.tasks,
        found.unwrap_or_default(),
        model::size(report.constant_bytes),
        report.folder,
        report.code_for,
        if report.is_checkable { "with the outputs of the reference" } else { "none" },
    )
}

/// Whether a folder holds a program, or the half of one.
pub fn is_one(folder: &Path) -> bool {
    executor::folder::description(folder).exists() || portable::path(folder).exists()
}

/// What a folder of artifacts has no use for.
pub fn refuse(folder: &Path, program: &ProgramRun) -> Result<()> {
    let given = [
        ("--threads", program.threads.is_some()),
        ("--seed", program.seed.is_some()),
        ("--precision", program.running.sampling.precision.is_some()),
        ("--visits", program.running.sampling.visits.is_some()),
        ("--stack-offset", program.running.sampling.stack_offset.is_some()),
        ("--input", !program.running.given.input.is_empty()),
        ("--inputs", program.running.given.inputs.is_some()),
        ("--output", program.running.output.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => {
            let message = format!("`{flag}` is for the program of a model, and `{}` is none", folder.display());
            Err(Failure::usage(message)
                .with_hint("make it with `opcollect model build --out`; artifacts are measured as `build` was told"))
        }
    }
}

/// What the run of a program has no use for.
fn refuse_records(store: Option<&Path>, measuring: &Measuring) -> Result<()> {
    let given = [
        ("--store", store.is_some()),
        ("--again", measuring.again),
        ("--unless-agree", !measuring.unless_agree.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => {
            Err(Failure::usage(format!("`{flag}` is for folders of artifacts; the run of a program is not recorded"))
                .with_hint(format!("leave out `{flag}`")))
        }
    }
}

/// Runs the program of a folder.
pub fn run(
    folder: &Path,
    store: Option<&Path>,
    measuring: &Measuring,
    arguments: &ProgramRun,
    as_json: bool,
) -> Result<u8> {
    refuse_records(store, measuring)?;
    let Found { portable, program, expected } = portable::read(folder).map_err(|error| {
        Failure::usage(chain(&error))
            .with_hint("make the folder with `opcollect model build --out`, and copy all of it")
    })?;
    let flags = cpu_flags();
    if let Some(why) = portable.lacking(std::env::consts::ARCH, &|name| flags.contains(name)) {
        return Err(Failure::environment(format!("`{}` cannot run here: {why}", folder.display()))
            .with_hint("build it on this machine, or with `--target` for this one's processor"));
    }
    let mut raw = Settings::default();
    raw.sweep.threads = arguments.threads.map(|threads| vec![threads]);
    arguments.running.sampling.apply(&mut raw.measure);
    let config = raw.check(machine::allowed_cpus()?.len()).map_err(Failure::usage)?;
    let seed = arguments.seed.unwrap_or(portable.seed);
    let types = program.inputs.iter().map(|port| &port.ty);
    let mut inputs = reference::drawn_inputs(types.zip(portable.draws.iter().copied()), seed)
        .map_err(|error| Failure::usage(chain(&error)))?;
    let names: Vec<&str> = program.inputs.iter().map(|port| port.name.as_str()).collect();
    given::take(&arguments.running.given.files(), &names, &mut inputs)?;
    let is_known = seed == portable.seed && arguments.running.given.files().is_nothing();
    if expected.is_some() && !is_known {
        let known = portable.seed;
        tell(&[format!("outputs are not compared: the folder has those of inputs that seed {known} draws")]);
    }
    let mut runs = Runs::new(config, arguments.threads, terminal(Pace::default()))?;
    runs.give(&inputs)?;
    let job = runs.job(
        Engine::Program,
        // The runner has a working folder of its own.
        folder.canonicalize().map_err(Failure::usage)?,
        "program",
        method(&runs.config),
        runs.config.counters.clone(),
    );
    let _exclusive = crate::exclusive(measuring.wait)?;
    let measured = runs.run(&job)?;
    let found = runs.outputs(&job, program.outputs.iter().map(|port| &port.ty))?;
    let check = expected.filter(|_| is_known).map(|wanted| network::compare(portable.tolerance, &found, &wanted));
    let ran = Ran {
        model: portable.model.clone(),
        batch: portable.batch,
        target: &portable.target,
        code_for: Some(portable.needs()),
        threads: runs.cpus.len(),
        seed,
        program: &program,
        measured: &measured,
        check,
        kept: None,
        stages: None,
        board: None,
    };
    model::tell(&ran, &found, arguments.running.output.as_deref(), as_json)
}
