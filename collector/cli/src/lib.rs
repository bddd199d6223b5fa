//! The program `opcollect`: arguments, progress and tables.
//!
//! Results go to standard output, progress and warnings to standard error. With `--json` the last line of standard
//! output is one JSON document. Each command is a function from its arguments to an exit code or a `Failure`.

mod arguments;
mod artifacts;
mod best;
mod board;
mod boards;
mod collect;
mod compare;
mod corun;
mod dataset;
mod doctor;
mod drift;
mod fleet;
mod inspect;
mod mapped;
mod model;
mod night_arguments;
mod nights;
mod options;
mod pace;
mod profile;
mod program;
mod progress;
mod race;
mod replay;
mod revisions;
mod settings;
mod sharing;
mod signals;
mod status;
mod tpu;
mod trace;
mod values;

use arguments::{Arguments, Command, ModelCommand};
use clap::CommandFactory;
use datasets::store::Damage;
use engine::Result;
use engine::failure::Failure;
use engine::programs::has_program;
use engine::stores::DEFAULT_STORE;
use fleet::FleetCommand;
use models::names;
use options::Models;
use pace::Pace;
use progress::terminal_observer;
use report::activity;
use report::flags::parse_command_line;
use report::terminal::{print_error, print_notes, stdout_paper};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code if all attempts gave a time.
const DONE: u8 = 0;
/// Exit code if some attempts gave no time.
const DONE_WITH_LOSSES: u8 = 1;
/// Exit code if a comparison with `--fail-on` found a regression.
const SLOWER: u8 = 4;

pub fn run_command_line() -> ExitCode {
    measure::host::memory::limit_private_memory();
    measure::host::file_size::report_exceeded_limit();
    report::page::set_program(concat!("opcollect ", env!("CARGO_PKG_VERSION")), || report::page::Site {
        host: measure::host::Facts::read_facts().describe_host(),
        command: measure::host::command::quoted_command(),
    });
    let arguments = parse_command_line();
    let done = end_with_parent().and_then(|()| dispatch_command(arguments));
    activity::end_activity();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            print_error(&failure.to_string());
            ExitCode::from(failure.kind().exit_code())
        }
    }
}

/// Makes this process end with the process that started it for a measurement.
fn end_with_parent() -> Result<()> {
    measure::host::parent::bound_parent().map_or(Ok(()), worker::die_with_parent).map_err(Failure::environment)
}

fn dispatch_command(arguments: Arguments) -> Result<u8> {
    match arguments.command {
        None if arguments.collect.models.model_names().next().is_none()
            && arguments.collect.models.config.is_none() =>
        {
            // A closed standard output changes nothing: the error below says that no model was named.
            let _ = Arguments::command().print_help();
            Err(Failure::usage("no model was named").with_hint("for example, run `opcollect resnet-18`"))
        }
        None => {
            check_command(&arguments.collect.models)?;
            collect::run(&arguments.collect)
        }
        Some(Command::List { json }) => inspect::list_models(json),
        Some(Command::Graph { models, raw, format, html, onnx, store }) => match onnx {
            Some(file) => inspect::write_onnx(&models, raw, &file),
            None => inspect::print_graph(&models, raw, format, html.as_deref(), store.as_deref()),
        },
        Some(Command::Tasks { models, json }) => inspect::print_tasks(&models, json),
        Some(Command::Space { models, only, sample, seed, json }) => {
            inspect::print_space(&models, &only, sample, seed, json)
        }
        Some(Command::Build { models, sweep, out }) => artifacts::compile_tasks(&models, &sweep, &out),
        Some(Command::Run { dir, store, measuring, program, json }) => match has_program(&dir) {
            true => program::run_folder(&dir, store.as_deref(), &measuring, &program, json),
            false => artifacts::run_artifacts(&dir, store.as_deref(), &measuring, &program, json),
        },
        Some(Command::Model { command: ModelCommand::Build(build) }) => program::build_folder(&build),
        Some(Command::Model { command: ModelCommand::Run(run) }) => model::run(&run),
        Some(Command::Model { command: ModelCommand::Compare(compare) }) => compare::run(&compare),
        Some(Command::Corun(run)) => corun::run(&run),
        Some(Command::Race(run)) => race::run(&run),
        Some(Command::Profile(run)) => profile::run(&run),
        Some(Command::Dataset { command }) => dataset::run(command),
        Some(Command::Night(night)) => nights::run(&night),
        Some(Command::Drift(drift)) => drift::run(&drift),
        Some(Command::Status { store, place, json }) => {
            let store = store.or(place).unwrap_or_else(|| PathBuf::from(DEFAULT_STORE));
            status::run(&store, json)
        }
        Some(Command::Replay(replay)) => replay::run(&replay),
        Some(Command::Tpu { command }) => tpu::run(&command),
        Some(Command::Trace { command }) => trace::run(&command),
        Some(Command::Board { command }) => board::run(&command),
        Some(Command::Fleet { command: FleetCommand::Drain(wanted) }) => fleet::drain_key(&wanted),
        Some(Command::Fleet { command: FleetCommand::Status { tracker, json } }) => {
            fleet::print_status(tracker.as_deref(), json)
        }
        Some(Command::Doctor { noise: true, json }) => doctor::measure_noise(json),
        Some(Command::Doctor { noise: false, json }) => doctor::run(json),
        Some(Command::Completions { shell }) => print_completions(shell),
    }
}

/// Returns an error if the only model name is probably a mistyped command.
fn check_command(models: &Models) -> Result<()> {
    let word = models.model.first().filter(|word| models.modelsource.is_none() && zoo::source_of(word).is_none());
    let Some(word) = word else { return Ok(()) };
    let commands = Arguments::command();
    let commands = commands.get_subcommands().map(clap::Command::get_name);
    match names::suggest_nearest(word, commands) {
        Some(command) => Err(Failure::usage(format!("`{word}` is neither a command nor a model"))
            .with_hint(format!("{command} `opcollect --help` shows all commands, `opcollect list` all models"))),
        None => Ok(()),
    }
}

fn print_completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "opcollect", &mut script);
    print_text(String::from_utf8_lossy(&script).trim_end())?;
    Ok(DONE)
}

fn print_text(text: &str) -> Result<()> {
    report::terminal::print_result(text).map_err(unprintable_failure)
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    report::terminal::print_json(value).map_err(unprintable_failure)
}

fn unprintable_failure(error: std::io::Error) -> Failure {
    Failure::environment(format!("cannot write to standard output: {error}"))
}

fn print_note_lines(notes: &[String]) {
    print_notes("note", notes);
}

/// Reports damaged parts of a store. Returns the exit code.
fn report_damage(damage: &[Damage]) -> u8 {
    print_note_lines(&damage.iter().map(ToString::to_string).collect::<Vec<_>>());
    if damage.is_empty() { DONE } else { DONE_WITH_LOSSES }
}
