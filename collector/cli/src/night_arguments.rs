//! Options of `night` and `drift`.

use crate::values::percent;
use clap::{Args, ValueEnum};
use engine::stores::DEFAULT_STORE;
use report::quantity::whole_seconds;
use std::path::PathBuf;

pub const NIGHT_EXAMPLES: &str = "\
Examples:
  opcollect night --config configs/nightly.toml --store runs/nights
  opcollect night --config configs/nightly.toml --store runs/nights --minutes 5 --html night.html --fail-on regression

Exit codes: those of collecting, and 4 when something got slower and `--fail-on regression` asks for it.";

pub const DRIFT_EXAMPLES: &str = "\
Examples:
  opcollect drift runs/monday runs/tuesday --html drift.html
  opcollect drift runs/nights
  opcollect drift runs/nights@tvm_version=0.26.0 runs/nights@tvm_version=0.27.0
  opcollect drift runs/nights@night=20261121-220000 runs/nights@night=20261122-220000 --fail-on regression";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnNight {
    /// Slower tasks, and tasks that fail now but had a time
    Regression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    Schedule,
    /// A task with the best schedule of each nightly run
    Task,
}

#[derive(Clone, Debug, Args)]
pub struct Judging {
    /// Smallest change that counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent::<100>)]
    pub threshold: f64,
    /// Largest expected share of false positives among changes, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent::<100>)]
    pub false_discoveries: f64,
    /// Write an HTML page with changes, their histories and a heat map
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a Markdown summary to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Exit with code 4 if the comparison finds a change of this kind
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOnNight>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct NightRun {
    /// Configuration file: a campaign and a table `[night]`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Store to write records to, created if absent
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    pub store: PathBuf,
    /// Time limit in minutes, or with a unit as in `2h` [default: that of the configuration]
    #[arg(long, value_name = "MINUTES", value_parser = report::quantity::parse_minutes)]
    pub minutes: Option<f64>,
    /// Wait for another nightly run on this machine, at most this long
    ///
    /// With 0, the command fails at once if another nightly run is active.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
    #[command(flatten)]
    pub judging: Judging,
}

#[derive(Clone, Debug, Args)]
pub struct DriftRun {
    /// Baseline: a store, or a part of it as STORE@COLUMN=VALUE
    ///
    /// The column `night` selects a nightly run. Without AFTER, the last nightly run of the store is compared with all
    /// earlier ones, and each nightly run with its neighbours.
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// Store or part of a store to compare with the baseline
    #[arg(value_name = "AFTER")]
    pub after: Option<String>,
    /// Compare each schedule, or the best schedule of each task
    #[arg(long, value_enum, default_value = "schedule")]
    pub by: By,
    #[command(flatten)]
    pub judging: Judging,
}
