//! `model build`, and `run` for a folder that `model build` wrote.

use super::model;
use super::pace::Pace;
use super::progress::terminal_observer;
use super::{DONE, Result, print_json, print_text, settings};
use crate::options::{Measuring, Models, Running, Sampling, Sweep};
use clap::Args;
use engine::atomic_folder::AtomicFolder;
use engine::campaign::Settings;
use engine::campaign::settings::ResolvedConfig;
use engine::failure::Failure;
use engine::model_run::{ModelReport, RanProgram};
use engine::programs::{BuiltProgram, ProgramOptions, ProgramRunOptions, build_program, run_program};
use report::{format_count, format_size};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct ModelBuild {
    #[command(flatten)]
    pub models: Models,
    /// Output folder of the program; it must be empty or absent
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Build each task with the fastest correct schedule of `--store`
    ///
    /// Tasks without one have the default schedule.
    #[arg(long, requires = "store")]
    pub best: bool,
    /// Store with the schedules for `--best`
    ///
    /// Schedules are those measured on this class of hosts, for the same target, versions, code and number of threads.
    #[arg(long, value_name = "DIR", requires = "best")]
    pub store: Option<PathBuf>,
    /// Also use times of other TVM versions and code revisions for `--best`
    #[arg(long, requires = "best")]
    pub all_versions: bool,
    /// Number of threads of the measurements for `--best` [default: all CPUs]
    #[arg(long, value_name = "N", requires = "best")]
    pub threads: Option<usize>,
    /// Seed of the inputs of the expected outputs [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub seed: Option<u64>,
    /// Write no expected outputs; the reference is slow for large models
    #[arg(long)]
    pub no_check: bool,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Programs of whole models")]
pub struct ProgramRun {
    /// Number of threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of input values [default: that of the expected outputs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub running: Running,
}

pub fn build_folder(arguments: &ModelBuild) -> Result<u8> {
    // The folder is checked first, so that an existing folder is rejected before a model is read.
    let folder = AtomicFolder::create_temporary(&arguments.out)?;
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default());
    let ResolvedConfig { config, loaded } = settings::resolve_config(&arguments.models, &sweep)?;
    let options = ProgramOptions {
        threads: arguments.threads,
        best: arguments.store.as_deref().map(|store| (store, arguments.all_versions)),
        is_checked: !arguments.no_check,
    };
    let built =
        build_program((config, &loaded), (folder, &arguments.out), &options, terminal_observer(Pace::default()))?;
    if arguments.json {
        print_json(&built)?
    } else {
        print_text(&describe_program(&built))?
    }
    Ok(DONE)
}

fn describe_program(built: &BuiltProgram) -> String {
    let found = built.tasks_found.map(|found| format!(", {found} of them with the best schedule of the store"));
    format!(
        "{}: {} of {}{}, {} of constants in `{}`\n  code        for {}\n  check       {}",
        built.model,
        format_count(built.calls, "call"),
        format_count(built.tasks, "task"),
        found.unwrap_or_default(),
        format_size(built.constant_bytes),
        built.folder,
        built.code_for,
        if built.is_checkable { "with the outputs of the reference" } else { "none" },
    )
}

pub fn refuse_program_flags(folder: &Path, program: &ProgramRun) -> Result<()> {
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
            let message =
                format!("`{flag}` applies only to a folder of `model build`, which `{}` is not", folder.display());
            Err(Failure::usage(message).with_hint(
                "create one with `opcollect model build --out`; artifacts are measured with the options of `build`",
            ))
        }
    }
}

fn refuse_records(store: Option<&Path>, measuring: &Measuring) -> Result<()> {
    let given = [
        ("--store", store.is_some()),
        ("--again", measuring.again),
        ("--unless-agree", !measuring.unless_agree.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::usage(format!(
            "`{flag}` applies only to folders of artifacts; runs of a program are not recorded"
        ))
        .with_hint(format!("leave out `{flag}`"))),
    }
}

pub fn run_folder(
    folder: &Path,
    store: Option<&Path>,
    measuring: &Measuring,
    arguments: &ProgramRun,
    as_json: bool,
) -> Result<u8> {
    refuse_records(store, measuring)?;
    let mut config = Settings::default();
    arguments.running.sampling.apply_to_plan(&mut config.measure);
    let options = ProgramRunOptions {
        config,
        threads: arguments.threads,
        seed: arguments.seed,
        inputs: &arguments.running.given.input_files(),
        wait_seconds: measuring.exclusive.wait,
    };
    let run = run_program(folder, options, terminal_observer(Pace::default()))?;
    let report = ModelReport::new(&RanProgram {
        model: run.portable.model.clone(),
        batch: run.portable.batch,
        target: &run.portable.target,
        code_for: Some(run.portable.required_processor()),
        threads: run.threads,
        seed: run.seed,
        program: &run.program,
        measured: &run.measured,
        check: run.check,
        kept: None,
        stages: None,
        board: None,
    })
    .map_err(Failure::environment)?;
    model::report_run(&report, (&run.program, &run.outputs), arguments.running.output.as_deref(), as_json)
}
