//! Options of `profile`.

use crate::options::{ExclusiveUse, InputFlags, Models};
use crate::values::{positive_seconds, whole_mib};
use clap::{Args, Subcommand};
use engine::flags::choice_parser;
use engine::profile::{DEFAULT_SAMPLE_HERTZ, DEFAULT_TRACE_MIB};
use engine::report::styled::Style;
use profile::SortBy;
use profile::summary::GroupName;
use std::path::PathBuf;

pub const PROFILE_EXAMPLES: &str = "\
Examples:
  opcollect profile --modelsource local --modelname resnet-18
  opcollect profile --modelsource local --modelname squeezenet-1.1 --counters default --sort-by count --row-limit 20
  opcollect profile --modelsource transformers --modelname gpt2 --group-by scope --levels 2
  opcollect profile --modelsource local --modelname mlp --schedule skip_first=10,wait=5,warmup=1,active=3,repeat=2 --json";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfileRun {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    #[command(flatten)]
    pub models: Models,
    /// Number of threads [default: all CPUs]
    #[arg(long, value_name = "N", help_heading = "Running")]
    pub threads: Option<usize>,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N", help_heading = "Running", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub given: InputFlags,
    /// Runs to profile, such as skip_first=10,wait=5,warmup=1,active=3,repeat=2
    ///
    /// The names are those of torch.profiler. After `skip_first` unprofiled runs, each cycle has `wait` unprofiled
    /// runs, `warmup` runs whose profile is discarded, and `active` runs whose profile is kept. `repeat` is the number
    /// of cycles; 0 repeats until the time limit. Default: 3 runs of warm-up, then every run.
    #[arg(long, value_name = "NUMBERS", help_heading = "Running")]
    pub schedule: Option<profile::ProfileSchedule>,
    /// Profile only one of N runs, until the time limit
    ///
    /// This reduces the disturbance of long runs.
    #[arg(long, value_name = "N", conflicts_with = "schedule", help_heading = "Running",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub sample: Option<u64>,
    /// Run a shell command with the trace file of each cycle of `--schedule`
    ///
    /// As with `on_trace_ready` of torch.profiler, the file's path is the last argument. The trace is in the format of
    /// torch.profiler and is deleted when the command ends; the time limit is 60 s. The command's output goes to
    /// standard error. After a failure, no more cycles are passed on, and the exit code is 1.
    #[arg(long, value_name = "CMD", conflicts_with = "sample", help_heading = "Running")]
    pub on_trace_ready: Option<String>,
    /// Time limit in seconds, after at least 5 profiled runs [default: 2, with `--schedule` 600]
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, help_heading = "Running")]
    pub seconds: Option<f64>,
    /// Counters to read around each operator [default: thread_cpu_ns]
    ///
    /// `default`, `none`, or stable or native names (see `opcollect doctor`). Counters are read in separate runs from
    /// the times. Counters that exceed the processor's registers are distributed over several runs; a counter that is
    /// unavailable is reported with the reason. `cachegrind` adds a table of simulated counts, which needs valgrind and
    /// takes minutes.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Running")]
    pub counters: Vec<String>,
    /// Skip the comparison with the reference, which is slow for large models
    #[arg(long, help_heading = "Running")]
    pub no_check: bool,
    #[command(flatten, next_help_heading = "Running")]
    pub exclusive: ExclusiveUse,
    #[command(flatten)]
    pub table: ProfileTable,
    /// Store for a record of each operator, timed in the network
    ///
    /// The store is created if absent. Such records name the network in `network_hash`.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub code: ProfileCode,
    #[command(flatten)]
    pub pictures: ProfilePictures,
    /// Write all calls of all runs to this file as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Compare two profiles and mark significant changes
    ///
    /// Both are files of `profile --out FILE`. A row has changed if its times differ by more than the visits of both
    /// profiles do, which are fresh processes, and by more than the change that all rows have in common, which may be
    /// the machine. The table states how large a difference must be to exceed the noise.
    #[command(after_help = "Example: opcollect profile diff yesterday.json today.json --group-by name")]
    Diff(ProfileDiff),
}

#[derive(Debug, Args)]
pub struct ProfileDiff {
    pub before: PathBuf,
    /// Profile to compare with the baseline
    pub after: PathBuf,
    /// Grouping of rows
    #[arg(long, value_parser = choice_parser::<GroupName>(), value_name = "WHAT", default_value = "input-shape")]
    pub group_by: GroupName,
    /// With `--group-by scope`, number of module levels; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub levels: usize,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub row_limit: usize,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Code")]
pub struct ProfileCode {
    /// Show one operator's schedule, TIR and machine code, with hot loops
    ///
    /// OP is part of the operator's name, shapes or scope, or a prefix of its task's hash; if several operators match,
    /// the one with the largest time is shown. After all other measurements, the model runs for 2 s under a sampling
    /// profiler. If sampling is not permitted or has too few samples, the time of loops is estimated from the code and
    /// marked as such.
    #[arg(long, value_name = "OP")]
    pub annotate: Option<String>,
    /// Write schedule, TIR, LLVM IR and machine code of the operator to DIR
    ///
    /// The folder is created if absent.
    #[arg(long, value_name = "DIR", requires = "annotate")]
    pub annotate_to: Option<PathBuf>,
    /// Sampling frequency in hertz
    #[arg(long, value_name = "HERTZ", default_value_t = DEFAULT_SAMPLE_HERTZ, requires = "annotate",
          value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub sample_hertz: u64,
    /// Write symbols of generated code for `perf` and debuggers
    ///
    /// The file is in /tmp, named after the process, and is not deleted.
    #[arg(long)]
    pub perf_map: bool,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct ProfilePictures {
    /// Write a Perfetto trace; a name ending in `.gz` compresses it
    ///
    /// For ui.perfetto.dev and `opcollect trace query`.
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Write a Chrome trace as torch.profiler does; `.gz` compresses it
    ///
    /// For chrome://tracing and tools of torch.profiler.
    #[arg(long, value_name = "FILE")]
    pub chrome_trace: Option<PathBuf>,
    /// Write an HTML page: operators, timeline, flame graph, memory, roofline
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Size limit of each trace before compression, in MiB
    ///
    /// The end of a larger trace is cut off and marked.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_TRACE_MIB, value_parser = whole_mib)]
    pub trace_mib: u32,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct ProfileTable {
    /// Print the table in the style of another profiler
    ///
    /// With `--json` and `--csv`, columns are those of that profiler, too.
    #[arg(long, value_parser = choice_parser::<Style>())]
    pub style: Option<Style>,
    /// Grouping of rows
    #[arg(long, value_parser = choice_parser::<GroupName>(), value_name = "WHAT", default_value = "input-shape")]
    pub group_by: GroupName,
    /// With `--group-by scope`, number of module levels; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub levels: usize,
    /// Sort key, in descending order
    #[arg(long, value_name = "KEY", value_parser = choice_parser::<SortBy>(), default_value = "share")]
    pub sort_by: SortBy,
    /// Add columns for the memory of activations and workspaces
    #[arg(long)]
    pub profile_memory: bool,
    /// Maximum number of rows of the table; JSON and CSV contain all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub row_limit: usize,
    /// Write the rows as CSV to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}
