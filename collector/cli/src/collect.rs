//! `opcollect MODEL…`: collects records of models into a store.

use super::progress::terminal_observer;
use super::signals::watch_signals_for;
use super::{
    DONE, DONE_WITH_LOSSES, Result, boards, print_json, print_note_lines, print_notes, print_text, settings, sharing,
    stdout_paper,
};
use crate::options::{BoardFlags, Measuring, Models, Sweep, Tuning};
use clap::Args;
use datasets::{Output, Shard, Store};
use engine::campaign::{Config, ModelRequest};
use engine::collection_report::{CollectionReport, describe_collection};
use engine::failure::Failure;
use engine::ifcompare::ModelComparison;
use engine::report::learning::SearchResults;
use engine::report::learning_page::learning_page;
use engine::session::{Session, SessionOptions};
use engine::stores::store_failure;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Debug, Default, Args)]
pub struct Collect {
    #[command(flatten)]
    pub models: Models,
    /// Store to write records to, created if absent [default: opcollect-data]
    ///
    /// If the same command runs again, only missing records are measured.
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Afterwards compare each model with default and with best schedules
    ///
    /// Whole models are run on each number of threads of the campaign, like `opcollect model compare --variant default
    /// --variant best --store DIR`.
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
    /// Run only part I of N of the work, with I from 1 to N
    ///
    /// Each attempt belongs to exactly one part, on whichever machine the parts run; searches are not divided. Default:
    /// the part that a Slurm job array or a Kubernetes indexed job assigns to this process.
    #[arg(long, value_name = "I/N", help_heading = "Data")]
    pub shard: Option<String>,
    /// Finally push records to a folder, a bucket or PostgreSQL
    ///
    /// Addresses: `file:///folder`, `s3://bucket/prefix` or `postgres://user@host/database`. If an address is
    /// unreachable, a warning is printed, and the store keeps all records for a later push.
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

pub fn run(arguments: &Collect) -> Result<u8> {
    let start = Instant::now();
    let models = settings::models_with_file(&arguments.models)?;
    let wanted = boards::BoardRequest { boards: &arguments.boards, models: &models };
    let access = boards::board_access(wanted)?;
    let resolved = settings::config_of_search(&models, &arguments.sweep, &arguments.tuning, access.is_some())?;
    arguments.sink.as_deref().map(sharing::Address::parse).transpose()?;
    let curves = arguments.tuning.curves.as_deref().map(Output::create).transpose().map_err(store_failure)?;
    let (measuring, signal) = (&arguments.measuring, Arc::default());
    let options = SessionOptions {
        board: access.as_ref().map(|access| (access, wanted.of_board())),
        store: arguments.store.clone(),
        shard: shard_of_process(arguments.shard.as_deref())?,
        repeat: measuring.repeat_options(),
        night: measuring.night.clone(),
        compares: arguments.ifcompare,
        wait_seconds: measuring.exclusive.wait,
        start,
        signal: Arc::clone(&signal),
    };
    let session = Session::open(resolved, options, terminal_observer(measuring.progress))?;
    watch_signals_for(&signal)?;
    collect_and_report(&session, CollectionOutput { sink: arguments.sink.as_deref(), as_json: arguments.json, curves })
}

pub struct CollectionOutput<'a> {
    /// Address to which the records are pushed after the collection.
    pub sink: Option<&'a str>,
    pub as_json: bool,
    pub curves: Option<Output>,
}

pub fn collect_and_report(session: &Session, shown: CollectionOutput<'_>) -> Result<u8> {
    let done = session.collect()?;
    if let Some((searched, file)) = done.searched.as_ref().zip(shown.curves) {
        keep_curves(searched, &session.config, file)?;
    }
    let seconds = session.elapsed_seconds();
    if !shown.as_json {
        print_text(&describe_collection(session, &done, seconds, &stdout_paper()))?;
    }
    let has_push_failed = shown.sink.is_some_and(|sink| push_to_sink(&session.store, sink));
    let in_network = session.time_in_network(&done);
    let comparisons = session.compare_models(&done);
    let is_unlike = comparisons.iter().flatten().any(ModelComparison::is_loss);
    if shown.as_json {
        print_json(&CollectionReport::new(session, &done, seconds, &in_network, comparisons))?;
    } else {
        for one in &in_network {
            print_text(&format!("\n{}", one.describe()))?;
        }
        for compared in comparisons.iter().flatten() {
            print_text(&format!("\n{}", compared.describe(&stdout_paper())))?;
        }
    }
    // Includes signals during the runs of whole models.
    Ok(match session.signal_number() {
        0 if done.has_losses() || done.outcomes.held > 0 || is_unlike || has_push_failed => DONE_WITH_LOSSES,
        0 => DONE,
        signal => 128 + u8::try_from(signal).unwrap_or(0),
    })
}

/// Pushes the records to an address. Returns true if the push failed; the store keeps the records for a later push.
fn push_to_sink(store: &Store, sink: &str) -> bool {
    match sharing::push_sealed(store, sink) {
        Ok(pushed) => {
            print_note_lines(&[pushed]);
            false
        }
        Err(failure) => {
            let hint = failure.hint().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
            print_notes("warning", [format!("the records were not pushed: {}{hint}", failure.message())]);
            true
        }
    }
}

fn keep_curves(searched: &SearchResults, config: &Config, mut file: Output) -> Result<()> {
    let models: Vec<String> = config.models.iter().map(ModelRequest::label).collect();
    let page = learning_page(&format!("Searches of {}", models.join(", ")), searched);
    let path = file.path().display().to_string();
    file.write_all(page.as_bytes()).map_err(Failure::environment)?;
    file.keep().map_err(store_failure)?;
    print_note_lines(&[format!("wrote `{path}`; open it in a browser")]);
    Ok(())
}

/// Returns the shard that the flag or the environment variables of the job scheduler specify.
fn shard_of_process(flag: Option<&str>) -> Result<Option<Shard>> {
    match flag {
        Some(text) => text.parse().map(Some).map_err(Failure::usage),
        None => Shard::from_environment(|name| std::env::var(name).ok()).map_err(Failure::usage),
    }
}
