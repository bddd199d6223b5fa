//! The program `oppredict`: arguments, notes and tables.
//!
//! Results go to standard output, notes to standard error. With `--json` standard output is one JSON document. Exit
//! codes: 0 success, 1 partial success with notes, 2 invalid use or input, 3 missing hardware or software, 4 worse than
//! `eval --gate` allows. Output files are created before the work starts, so that an unwritable path fails early.

mod adapt;
mod arguments;
mod correlate;
mod cotune;
mod csv;
mod devices;
mod eval;
mod explain;
mod features;
mod held_out;
mod in_place;
mod installation;
mod interference;
mod kernels;
mod knee;
mod language_models;
mod loading;
mod options;
mod place;
mod plan;
mod predict;
mod serve;
mod suggest;
mod train;
mod xgboost;

use arguments::{Arguments, Command};
use clap::CommandFactory;
use datasets::output::{Output, check_distinct};
use predictor::queries::OR_EXTRAPOLATE;
use predictor::{Error, Result};
use report::activity;
use report::flags::parse_command_line;
use report::terminal::{print_error, stdout_paper};
use std::path::Path;
use std::process::ExitCode;

const DONE: u8 = 0;
/// Exit code for partial success; notes name what is missing.
const DONE_WITH_LOSSES: u8 = 1;
/// Exit code for an error larger than `eval --gate` allows.
const WORSE: u8 = 4;

pub fn run() -> ExitCode {
    measure::host::memory::limit_private_memory();
    measure::host::file_size::report_exceeded_limit();
    report::page::set_program(concat!("oppredict ", env!("CARGO_PKG_VERSION")), || report::page::Site {
        host: measure::host::Facts::read_facts().describe_host(),
        command: measure::host::command::quoted_command(),
    });
    let done = dispatch_command(parse_command_line());
    activity::end_activity();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            print_error(&format!("error: {}", name_extrapolate_flag(&error.to_string())));
            ExitCode::from(if error.is_of_environment() { 3 } else { 2 })
        }
    }
}

/// Names the flag in the message about an operator outside of the training range.
fn name_extrapolate_flag(message: &str) -> String {
    message.replace(OR_EXTRAPOLATE, "or give `--extrapolate`")
}

fn dispatch_command(arguments: Arguments) -> Result<u8> {
    match arguments.command {
        Command::Eval(eval) => eval::run(&eval),
        Command::Train(train) => train::run(&train),
        Command::Adapt(adapt) => adapt::run(&adapt),
        Command::Suggest(suggest) => suggest::run(&suggest),
        Command::Predict(predict) => predict::run(&predict),
        Command::InPlace(in_place) => in_place::run(&in_place),
        Command::Correlate(correlate) => correlate::run(&correlate),
        Command::Explain(explain) => explain::run(&explain),
        Command::Knee(knee) => knee::run(&knee),
        Command::Plan(plan) => plan::run(&plan),
        Command::Stages(plan) => plan::run_stages(&plan),
        Command::Place(place) => place::run(&place),
        Command::Interference(interference) => interference::run(&interference),
        Command::Cotune(cotune) => cotune::run(&cotune),
        Command::Serve(serve) => serve::run(&serve),
        Command::Xgboost(xgboost) => xgboost::run(&xgboost),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Features => features::run(),
        Command::Completions { shell } => print_completions(shell),
    }
}

fn print_completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "oppredict", &mut script);
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(DONE)
}

fn print_line(text: &str) -> Result<()> {
    report::terminal::print_result(text).map_err(stdout_error)
}

fn print_text(as_json: bool, text: &str) -> Result<()> {
    if as_json { Ok(()) } else { print_line(text) }
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    report::terminal::print_json(value).map_err(stdout_error)
}

fn stdout_error(error: std::io::Error) -> Error {
    Error::io_error("write to", Path::new("standard output"), error)
}

/// Creates the requested output file. Called before any work, so that an unwritable path fails early.
fn create_output(path: Option<&Path>) -> Result<Option<Output>> {
    Ok(path.map(Output::create).transpose()?)
}

/// Creates two requested output files, each with its flag. Fails if they are the same file.
fn create_outputs(outputs: [(&str, Option<&Path>); 2]) -> Result<[Option<Output>; 2]> {
    check_distinct(&outputs)?;
    let [(_, first), (_, second)] = outputs;
    Ok([create_output(first)?, create_output(second)?])
}

/// Writes a created output file and moves it to its final path.
fn write_output(output: Option<Output>, content: impl FnOnce() -> Vec<u8>) -> Result<()> {
    Ok(output.map_or(Ok(()), |output| output.keep_with(content()))?)
}
