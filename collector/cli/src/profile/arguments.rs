//! Flags of `profile`.

use crate::options::{Given, Models};
use crate::values::{some_seconds, whole_mib, whole_seconds};
use clap::{Args, Subcommand};
use engine::flags::choices;
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

/// How a model is looked at.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfileRun {
    /// Something else than looking at a model
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    #[command(flatten)]
    pub models: Models,
    /// Threads [default: all CPUs]
    #[arg(long, value_name = "N", help_heading = "Running")]
    pub threads: Option<usize>,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N", help_heading = "Running")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub given: Given,
    /// Which runs are looked at, such as skip_first=10,wait=5,warmup=1,active=3,repeat=2, as torch.profiler counts them
    ///
    /// The first `skip_first` runs are left alone; then cycles follow, each of `wait` runs that are left alone, `warmup` runs
    /// that are looked at and forgotten, and `active` runs that are kept. After `repeat` cycles it ends; 0 is for as many as
    /// the time allows. Default: 3 runs of warm-up, then every run.
    #[arg(long, value_name = "NUMBERS", help_heading = "Running")]
    pub schedule: Option<profile::Schedule>,
    /// Look at one of so many runs only, as long as the time allows: what is seen of a long run disturbs it less
    #[arg(long, value_name = "N", conflicts_with = "schedule", help_heading = "Running",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub sample: Option<u64>,
    /// Run this shell command with the file of a trace of each cycle of the schedule behind it, as torch.profiler calls
    /// `on_trace_ready`
    ///
    /// The file has the form of torch.profiler's traces and is gone when the command has ended, which it does within 60 s.
    /// What it prints goes to standard error. Where it fails, no more cycles are handed over, and the exit code is 1.
    #[arg(long, value_name = "CMD", conflicts_with = "sample", help_heading = "Running")]
    pub on_trace_ready: Option<String>,
    /// End after so long, once 5 runs are kept [default: 2, with `--schedule` 600]
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, help_heading = "Running")]
    pub seconds: Option<f64>,
    /// Counters to read around each operator: `default`, `none`, or stable or native names (see `opcollect doctor`)
    /// [default: thread_cpu_ns]
    ///
    /// They are read in runs beside those that give the times. What does not fit into the processor's registers together is
    /// counted in several runs; what cannot be counted is told with the reason. `cachegrind` adds a table of simulated counts,
    /// which takes minutes and valgrind.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Running")]
    pub counters: Vec<String>,
    /// Do not compare the outputs with the reference, which takes long for large models
    #[arg(long, help_heading = "Running")]
    pub no_check: bool,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>, help_heading = "Running")]
    pub wait: u64,
    #[command(flatten)]
    pub table: ProfileTable,
    /// Write a record of each operator, timed in its place, to this store, which is made if needed
    ///
    /// They stand beside records of the same operators alone, and name the network in `network_hash`.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub code: ProfileCode,
    #[command(flatten)]
    pub pictures: ProfilePictures,
    /// Write the whole profile, each call of each run, to this file as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// What is done with profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Say which operators changed between two profiles, by how much, and whether that is more than noise
    ///
    /// Both are files that `profile --out FILE` wrote. A row changed when the 95 % intervals of both medians lie apart and the
    /// medians differ by more than 2 %.
    #[command(after_help = "Example: opcollect profile diff yesterday.json today.json --group-by name")]
    Diff(ProfileDiff),
}

/// Which profiles are compared.
#[derive(Debug, Args)]
pub struct ProfileDiff {
    /// The earlier one
    pub before: PathBuf,
    /// The later one
    pub after: PathBuf,
    /// What is one row
    #[arg(long, value_parser = choices::<GroupName>(), value_name = "WHAT", default_value = "input-shape")]
    pub group_by: GroupName,
    /// With `--group-by scope`, only so many of the outermost names of modules; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub levels: usize,
    /// Show so many rows
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub row_limit: usize,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What is shown of an operator's code.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Code")]
pub struct ProfileCode {
    /// Show one operator down to its machine code: places in the model, schedule, TIR, and the loops its time goes into
    ///
    /// OP is a part of its name, its sizes or its place, or the beginning of its task's hash; of several the one that takes
    /// the most time is shown. After everything else the model runs for 2 s while the kernel looks where its code is. Where
    /// that is not permitted, or finds the operator too seldom, loops have an estimate from the code, and it says so.
    #[arg(long, value_name = "OP")]
    pub annotate: Option<String>,
    /// Write schedule, TIR, LLVM IR and all machine code of that operator to files in this folder, which is made if needed
    #[arg(long, value_name = "DIR", requires = "annotate")]
    pub annotate_to: Option<PathBuf>,
    /// How often a second one looks where its code is
    #[arg(long, value_name = "HERTZ", default_value_t = DEFAULT_SAMPLE_HERTZ, requires = "annotate",
          value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub sample_hertz: u64,
    /// Give built code names that `perf` and debuggers find: a file in /tmp for the process that runs it, which stays there
    #[arg(long)]
    pub perf_map: bool,
}

/// What of a profile is there to look at.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct ProfilePictures {
    /// Write a trace for ui.perfetto.dev and `trace query` to this file; a name that ends in `.gz` packs it
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
    /// Write a trace in the form of torch.profiler's, for chrome://tracing and its tools, to this file, likewise
    #[arg(long, value_name = "FILE")]
    pub chrome_trace: Option<PathBuf>,
    /// Write a page for the browser to this file: operators, time line, flame view, memory, roofline
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How long each trace may get before it is packed, in MiB; the rest is left out, with a mark
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_TRACE_MIB, value_parser = whole_mib)]
    pub trace_mib: u32,
}

/// How rows of operators are put together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct ProfileTable {
    /// Print a table that people know from elsewhere, in its words; with `--json` and `--csv` those write its columns, too
    #[arg(long, value_parser = choices::<Style>())]
    pub style: Option<Style>,
    /// What is one row
    #[arg(long, value_parser = choices::<GroupName>(), value_name = "WHAT", default_value = "input-shape")]
    pub group_by: GroupName,
    /// With `--group-by scope`, only so many of the outermost names of modules; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub levels: usize,
    /// What rows are ordered by, the largest first
    #[arg(long, value_name = "KEY", value_parser = choices::<SortBy>(), default_value = "self_cpu_time_total")]
    pub sort_by: SortBy,
    /// Show what calls take of the memory between operators, what is taken of it meanwhile, and what they ask of a workspace
    #[arg(long)]
    pub profile_memory: bool,
    /// Show so many rows; JSON and CSV have all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub row_limit: usize,
    /// Write the rows to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}
