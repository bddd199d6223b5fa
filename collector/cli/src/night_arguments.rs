//! What may be typed for nights and for drift.

use crate::values::whole_seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Examples of `night`.
pub const NIGHT_EXAMPLES: &str = "\
Examples:
  opcollect night --config configs/nightly.toml --store runs/nights
  opcollect night --config configs/nightly.toml --store runs/nights --minutes 5 --html night.html --fail-on regression

Exit codes: those of collecting, and 4 when something got slower and `--fail-on regression` asks for it.";

/// Examples of `drift`.
pub const DRIFT_EXAMPLES: &str = "\
Examples:
  opcollect drift runs/monday runs/tuesday --html drift.html
  opcollect drift runs/nights
  opcollect drift runs/nights@tvm_version=0.26.0 runs/nights@tvm_version=0.27.0
  opcollect drift runs/nights@night=20261121-220000 runs/nights@night=20261122-220000 --fail-on regression";

/// What makes the exit code 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOnNight {
    /// A task that got slower, or lost its time.
    Regression,
}

/// What a line of drift is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A task by one schedule
    Schedule,
    /// A task by the best schedule of each night
    Task,
}

/// What counts, and where pages go.
#[derive(Clone, Debug, Args)]
pub struct Judging {
    /// Changes up to this do not count
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = some_percent)]
    pub threshold: f64,
    /// Of all that is called changed, the share that may be so by chance
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = some_percent)]
    pub false_discoveries: f64,
    /// Write a page with curves and a heat map of nights and operators to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the summary to this file, in Markdown as GitHub shows it
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// End with exit code 4 when something got slower, or lost its time
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOnNight>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// A night.
#[derive(Clone, Debug, Args)]
pub struct NightRun {
    /// The configuration: what a campaign measures, and a table `[night]`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Write records to this store, a folder that is made if needed
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// Stop after this time, in minutes or with a unit as in `2h`, instead of the time in the configuration
    #[arg(long, value_name = "MINUTES", value_parser = report::quantity::minutes)]
    pub minutes: Option<f64>,
    /// Wait this long for another nightly run on this machine to end, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
    #[command(flatten)]
    pub judging: Judging,
}

/// Two sides.
#[derive(Clone, Debug, Args)]
pub struct DriftRun {
    /// A store, or a part of it as STORE@COLUMN=VALUE; `night` is a column, too
    ///
    /// Without AFTER, the last night of the store is compared with all before it, and every night with those around it.
    #[arg(value_name = "BEFORE")]
    pub before: String,
    /// What is asked about, likewise
    #[arg(value_name = "AFTER")]
    pub after: Option<String>,
    /// What is compared
    #[arg(long, value_enum, default_value = "schedule")]
    pub by: By,
    #[command(flatten)]
    pub judging: Judging,
}

fn some_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("give 0 to 100".to_owned()) }
}
