//! `replay`: builds and measures one record of a store, or saved candidates of TVM's tuner, again.

use super::{DONE, DONE_WITH_LOSSES, Pace, Result, print_json, print_text, stdout_paper, terminal_observer};
use crate::options::{ExclusiveUse, builder_count};
use clap::{ArgGroup, Args};
use engine::replay::{TraceReplayOptions, evaluator_method, format_table, replay_record, replay_traces};
use engine::stores::DEFAULT_STORE;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("measured").args(["traces", "key"]).required(true)))]
pub struct Replay {
    /// Trace files: a header line, then one candidate per line
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub traces: Vec<PathBuf>,
    /// Key of a record to measure again with its schedule, threads and plan
    ///
    /// The result is not stored.
    #[arg(long, value_name = "HEX")]
    pub key: Option<String>,
    /// Store of the record
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE, requires = "key")]
    pub store: PathBuf,
    /// Measure with the rule of TVM's evaluator: NUMBER,REPEAT,MIN_REPEAT_MS
    ///
    /// Without it, sampling ends at the usual precision.
    #[arg(long, value_name = "N,R,MS", value_delimiter = ',', num_args = 1, conflicts_with = "key")]
    pub evaluator: Vec<u32>,
    /// Also measure each artifact with TVM's own evaluator, for comparison
    #[arg(long, requires = "evaluator", conflicts_with = "key")]
    pub compare_evaluator: bool,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "key")]
    pub threads: usize,
    /// Number of parallel builders [default: one per CPU]
    #[arg(long, value_name = "N", conflicts_with = "key", value_parser = builder_count())]
    pub builders: Option<usize>,
    /// Build nothing while a candidate runs
    #[arg(long, conflicts_with = "key")]
    pub no_overlap: bool,
    /// Replay only the first N candidates
    #[arg(long, value_name = "N", conflicts_with = "key")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub exclusive: ExclusiveUse,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Replay) -> Result<u8> {
    let observer = terminal_observer(Pace::default());
    let is_whole = if let Some(key) = &arguments.key {
        let replay = replay_record(&arguments.store, key, arguments.exclusive.wait, observer.as_ref())?;
        if arguments.json {
            print_json(&replay)?
        } else {
            print_text(&replay.describe())?
        }
        replay.median_ns.is_some()
    } else {
        let replay = TraceReplayOptions {
            method: evaluator_method(&arguments.evaluator)?,
            compares_evaluator: arguments.compare_evaluator,
            threads: arguments.threads,
            builders: arguments.builders.unwrap_or(0),
            overlap: !arguments.no_overlap,
            limit: arguments.limit,
            wait_seconds: arguments.exclusive.wait,
        };
        let replays = replay_traces(&arguments.traces, &replay, observer.as_ref())?;
        if arguments.json {
            print_json(&replays)?
        } else {
            print_text(&format_table(&replays, &stdout_paper()))?
        }
        replays.iter().all(|replay| replay.ok_count == replay.count)
    };
    Ok(if is_whole { DONE } else { DONE_WITH_LOSSES })
}
