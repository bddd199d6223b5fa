//! The command line: the only room that prints.
//!
//! Results go to standard output, notes to standard error; with `--json` the last line of standard output is one JSON
//! document. Exit codes: 0 all done, 1 done with losses that are named, 2 bad use or input, 3 the environment cannot do it.
//! Files are tried before the work that fills them.
#![allow(clippy::print_stderr)]

mod adapt;
mod arguments;
mod correlate;
mod cotune;
mod eval;
mod explain;
mod in_place;
mod interference;
mod knee;
mod place;
mod plan;
mod predict;
mod serve;
mod train;

use crate::bundle;
use crate::error::{Error, Result};
use crate::origin::Origin;
use arguments::{Arguments, Command, Data, Filter};
use clap::{CommandFactory, Parser};
use datasets::Source;
use datasets::output::Output;
use learn::predictor::Predictor;
use report::terminal::{paper, print_notes as tell};
use report::{Table, words};
use samples::Samples;
use samples::features::FEATURES;
use samples::records::{self, Policy};
use samples::table::{self, Mapping};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the program.
pub fn run() -> ExitCode {
    measure::host::memory::bound_process();
    let done = match Arguments::parse().command {
        Command::Eval(eval) => eval::run(&eval),
        Command::Train(train) => train::run(&train),
        Command::Adapt(arguments) => adapt::run(&arguments),
        Command::Suggest(arguments) => adapt::suggest(&arguments),
        Command::Predict(predict) => predict::run(&predict),
        Command::InPlace(arguments) => in_place::run(&arguments),
        Command::Correlate(arguments) => correlate::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Knee(arguments) => knee::run(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Stages(arguments) => plan::stages(&arguments),
        Command::Place(arguments) => place::run(&arguments),
        Command::Interference(arguments) => interference::run(&arguments),
        Command::Cotune(arguments) => cotune::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Xgboost(arguments) => train::exchange(&arguments),
        Command::Features => features(),
        Command::Completions { shell } => completions(shell),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {}", report::error_text(&error.to_string()));
            ExitCode::from(if error.is_of_environment() { 3 } else { 2 })
        }
    }
}

/// Prints a result.
fn print(text: &str) -> Result<()> {
    report::terminal::print(text).map_err(|error| Error::io("write to", Path::new("standard output"), error))
}

/// Reports why rows were left out, the reason of most rows first.
fn tell_reasons(left_out: &BTreeMap<String, u64>) {
    let mut reasons: Vec<_> = left_out.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(**count));
    tell("note", reasons.into_iter().map(|(reason, count)| format!("{count} rows left out: {reason}")));
}

/// Reports the number of records that were left out because of their versions.
fn tell_left_out(count: usize) {
    if count > 0 {
        eprintln!("note: {count} records of other versions are left out; `--all-versions` uses them, too");
    }
}

/// Lists the features.
fn features() -> Result<u8> {
    let mut table = Table::new([words("feature"), words("unit"), words("source")]);
    for feature in FEATURES {
        table.row([feature.name, feature.unit, feature.origin.name()]);
    }
    print(&table.on(&paper()))?;
    Ok(0)
}

/// A text as a cell of CSV.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Reads what to learn from, and says what was left out.
fn load(data: &Data) -> Result<Samples> {
    load_from(&data.data, data.mapping.as_deref(), policy(&data.filter)?)
}

/// The same, with devices described by what is known of them before any of these rows was measured.
fn load_unmeasured(data: &Data) -> Result<Samples> {
    let policy = Policy { has_reached_peaks: false, ..policy(&data.filter)? };
    load_from(&data.data, data.mapping.as_deref(), policy)
}

fn load_from(paths: &[PathBuf], mapping: Option<&Path>, policy: Policy) -> Result<Samples> {
    let samples = match mapping {
        Some(mapping) => table::samples(paths, &Mapping::read(mapping)?)?,
        None => records::samples(paths, &policy)?,
    };
    tell_reasons(&samples.left_out);
    tell("warning", &samples.warnings);
    let hints = samples.filter_hints.iter();
    tell("warning", hints.map(|hints| format!("{hints}; on a quieter machine medians are better known")));
    Ok(samples)
}

/// Reads a predictor that answers, and says where it learned from other code than these programs make.
fn read_predictor(path: &Path) -> Result<Predictor> {
    let predictor = bundle::read(path)?;
    tell("note", Origin::of(&predictor.about).note());
    Ok(predictor)
}

/// Begins a file that is asked for, so that a place which cannot be written is told before the work.
fn begin(path: Option<&Path>) -> Result<Option<Output>> {
    Ok(path.map(Output::create).transpose()?)
}

/// Fills a file that was begun, and puts it into its place.
fn finish(output: Option<Output>, content: impl FnOnce() -> Vec<u8>) -> Result<()> {
    let Some(mut output) = output else { return Ok(()) };
    let path = output.path().to_owned();
    output.write_all(&content()).map_err(|error| Error::io("write", &path, error))?;
    Ok(output.keep()?)
}

fn completions(shell: clap_complete::Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "oppredict", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(0)
}

fn policy(filter: &Filter) -> Result<Policy> {
    let known = || Source::ALL.iter().map(|source| source.name());
    let source = Source::from_name(&filter.source).ok_or_else(|| Error::unknown("source", &filter.source, known()))?;
    let Filter { max_cv, max_uncertainty, all_versions, default_only, .. } = *filter;
    let max_cv = max_cv.filter(|most| most.is_finite());
    let settings = filter.setting.iter().map(|text| setting(text)).collect::<Result<_>>()?;
    Ok(Policy { source, max_cv, max_uncertainty, all_versions, default_only, settings, ..Policy::default() })
}

/// A column and the value that is asked for.
fn setting(text: &str) -> Result<(String, String)> {
    let (column, value) = text
        .split_once('=')
        .ok_or_else(|| Error::Query(format!("`--setting {text}` is not COLUMN=VALUE, such as cache_state=cold")))?;
    records::check_setting(column)?;
    Ok((column.to_owned(), value.to_owned()))
}
