//! The command line: the only room that prints.
//!
//! Results go to standard output, progress and warnings to standard error; with `--json` the last line of standard
//! output is one JSON document. Each command is a function from its arguments to an exit code or a `Failure`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

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
#[doc(hidden)]
pub mod readers;
mod replay;
mod revisions;
mod settings;
mod sharing;
mod signals;
mod status;
mod tables;
mod tpu;
mod trace;
mod values;

use arguments::{Arguments, Command, ModelCommand};
use clap::{CommandFactory, Parser};
use datasets::store::Damage;
use engine::Result;
use engine::failure::Failure;
use engine::machine;
use engine::programs::has_program;
use fleet::FleetCommand;
use measure::host::Exclusive;
use pace::Pace;
use progress::terminal;
use report::{Paper, error_text, note_lines, tame};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Everything was done and gave a time.
const DONE: u8 = 0;
/// Done, but some attempts gave no time.
const DONE_WITH_LOSSES: u8 = 1;
/// Done, and what was compared got slower, which the caller asked to be told.
const SLOWER: u8 = 4;

/// Runs the program.
pub fn run() -> ExitCode {
    measure::host::memory::bound_process();
    let arguments = Arguments::parse();
    match nights::end_with_parent().and_then(|()| dispatch(arguments)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{}", error_text(&failure.to_string()));
            ExitCode::from(failure.kind().code())
        }
    }
}

fn dispatch(arguments: Arguments) -> Result<u8> {
    match arguments.command {
        None if arguments.collect.models.modelname.is_empty() && arguments.collect.models.config.is_none() => {
            Arguments::command().print_help().map_err(Failure::environment)?;
            Err(Failure::usage("no model was named")
                .with_hint("start with `opcollect --modelsource local --modelname resnet-18`"))
        }
        None => collect::run(&arguments.collect),
        Some(Command::List { json }) => inspect::list(json),
        Some(Command::Graph { models, raw, format, html, onnx, store }) => match onnx {
            Some(file) => inspect::write_onnx(&models, raw, &file),
            None => inspect::graph(&models, raw, format, html.as_deref(), store.as_deref()),
        },
        Some(Command::Tasks { models, json }) => inspect::tasks(&models, json),
        Some(Command::Space { models, only, sample, seed, json }) => inspect::space(&models, &only, sample, seed, json),
        Some(Command::Build { models, sweep, out }) => artifacts::build(&models, &sweep, &out),
        Some(Command::Run { dir, store, measuring, program, json }) => match has_program(&dir) {
            true => program::run(&dir, store.as_deref(), &measuring, &program, json),
            false => artifacts::run(&dir, store.as_deref(), &measuring, &program, json),
        },
        Some(Command::Model { command: ModelCommand::Build(build) }) => program::build(&build),
        Some(Command::Model { command: ModelCommand::Run(run) }) => model::run(&run),
        Some(Command::Model { command: ModelCommand::Compare(compare) }) => compare::run(&compare),
        Some(Command::Corun(run)) => corun::run(&run),
        Some(Command::Race(run)) => race::run(&run),
        Some(Command::Profile(run)) => profile::run(&run),
        Some(Command::Dataset { command }) => dataset::run(command),
        Some(Command::Night(night)) => nights::run(&night),
        Some(Command::Drift(drift)) => drift::run(&drift),
        Some(Command::Status { store, json }) => status::run(&store, json),
        Some(Command::Replay(replay)) => replay::run(&replay),
        Some(Command::Tpu { command }) => tpu::run(&command),
        Some(Command::Trace { command }) => trace::run(&command),
        Some(Command::Board { command }) => board::run(&command),
        Some(Command::Fleet { command: FleetCommand::Drain(wanted) }) => fleet::drain(&wanted),
        Some(Command::Fleet { command: FleetCommand::Status { tracker, json } }) => {
            fleet::status(tracker.as_deref(), json)
        }
        Some(Command::Doctor { noise: true, json }) => doctor::measure_noise(json),
        Some(Command::Doctor { noise: false, json }) => doctor::run(json),
        Some(Command::Completions { shell }) => {
            clap_complete::generate(shell, &mut Arguments::command(), "opcollect", &mut std::io::stdout());
            Ok(DONE)
        }
    }
}

/// Prints a result; a reader that has gone (`| head`) is no error.
///
/// Names from files may hold control characters, which only a pipe gets unchanged.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().is_terminal() {
        true => write(&tame(text)),
        false => write(text),
    }
}

fn write(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::environment(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Where results go.
fn paper() -> Paper {
    Paper::of(&std::io::stdout(), |name| std::env::var_os(name))
}

/// Says what a person should know beside the result.
fn tell(notes: &[String]) {
    eprint!("{}", note_lines("note", notes));
}

/// Locks the CPUs of this process for measuring, and waits for another process that holds them.
fn exclusive(wait_seconds: u64) -> Result<Exclusive> {
    machine::exclusive(wait_seconds, terminal(Pace::default()).as_ref())
}

/// Reports what of a store was left out; anything is a loss.
fn tell_damage(damage: &[Damage]) -> u8 {
    tell(&damage.iter().map(ToString::to_string).collect::<Vec<_>>());
    if damage.is_empty() { DONE } else { DONE_WITH_LOSSES }
}

/// Prints one JSON document on one line.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    write(&serde_json::to_string(value).map_err(Failure::environment)?)
}
