//! `replay`: one record of a store, or the candidates of saved runs of TVM's tuner, built and measured again.

use super::{DONE, DONE_WITH_LOSSES, Pace, Result, paper, print, print_json, terminal};
use crate::values::whole_seconds;
use clap::Args;
use engine::replay::{TraceReplayOptions, evaluator, replay_record, replay_traces, table};
use std::path::PathBuf;

/// What is built and measured again.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// Trace files: a header line, then one candidate a line
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "key")]
    pub traces: Vec<PathBuf>,
    /// The record with this key: its task, schedule, threads and measuring plan; nothing is stored
    #[arg(long, value_name = "HEX", conflicts_with = "traces")]
    pub key: Option<String>,
    /// The store of the record
    #[arg(long, value_name = "DIR", default_value = "opcollect-data", requires = "key")]
    pub store: PathBuf,
    /// Measure by the rule of TVM's evaluator: NUMBER,REPEAT,MIN_REPEAT_MS; without it by our own stopping rule
    #[arg(long, value_name = "N,R,MS", value_delimiter = ',', num_args = 1)]
    pub evaluator: Vec<u32>,
    /// Also measure each artifact with TVM's own evaluator, by the same rule
    #[arg(long, requires = "evaluator")]
    pub compare_evaluator: bool,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Builders at work at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub builders: Option<usize>,
    /// Build nothing while a candidate runs
    #[arg(long)]
    pub no_overlap: bool,
    /// Only the first candidates
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Replays a record or every file.
pub fn run(arguments: &Replay) -> Result<u8> {
    let observer = terminal(Pace::default());
    let is_whole = if let Some(key) = &arguments.key {
        let replay = replay_record(&arguments.store, key, arguments.wait, observer.as_ref())?;
        if arguments.json {
            print_json(&replay)?
        } else {
            print(&replay.describe())?
        }
        replay.median_ns.is_some()
    } else {
        let replay = TraceReplayOptions {
            method: evaluator(&arguments.evaluator)?,
            compares_evaluator: arguments.compare_evaluator,
            threads: arguments.threads,
            builders: arguments.builders.unwrap_or(0),
            overlap: !arguments.no_overlap,
            limit: arguments.limit,
            wait_seconds: arguments.wait,
        };
        let replays = replay_traces(&arguments.traces, &replay, observer.as_ref())?;
        if arguments.json {
            print_json(&replays)?
        } else {
            print(&table(&replays, &paper()))?
        }
        replays.iter().all(|replay| replay.ok_count == replay.count)
    };
    Ok(if is_whole { DONE } else { DONE_WITH_LOSSES })
}
