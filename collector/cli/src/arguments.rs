//! Arguments of all commands, and global options. Options of a single command are in the file of that command, shared
//! options in `options.rs`.

use crate::board::BoardCommand;
use crate::collect::Collect;
use crate::compare::ModelCompare;
use crate::corun::{CORUN_EXAMPLES, CoRunRun};
use crate::dataset::DatasetCommand;
use crate::fleet::FleetCommand;
use crate::inspect::GraphFormat;
use crate::night_arguments::{DRIFT_EXAMPLES, DriftRun, NIGHT_EXAMPLES, NightRun};
use crate::options::{Measuring, ModelRun, Models, Sweep};
use crate::profile::arguments::{PROFILE_EXAMPLES, ProfileRun};
use crate::program::{ModelBuild, ProgramRun};
use crate::race::RaceRun;
use crate::replay::Replay;
use crate::tpu::TpuCommand;
use crate::trace::TraceCommand;
use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Compile a model's operators with Apache TVM, measure them, and record times.
#[derive(Debug, Parser)]
#[command(
    name = "opcollect",
    version,
    args_conflicts_with_subcommands = true,
    after_help = EXAMPLES,
    after_long_help = LONG_EXAMPLES
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    // Declared for help and completions: `report::terminal::take_color_flag` removes it before clap parses.
    /// Colour of output: `auto` on terminals unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", value_parser = report::ColorChoice::NAMES, default_value = "auto")]
    pub color: String,
    #[command(flatten)]
    pub collect: Collect,
}

const EXAMPLES: &str = "Example: opcollect resnet-18 --target llvm";
const LONG_EXAMPLES: &str = "\
Examples:
  opcollect resnet-18
  opcollect net.onnx --threads 1 --store runs/net
  opcollect --modelsource local --modelname resnet-18 --target llvm
  opcollect --modelsource local --modelname mlp --modelname resnet-50 --batchsize 1,8 --store runs/tonight
  opcollect --modelsource simple --modelname conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1 --schedules 64 --threads 1
  opcollect --config configs/smoke.toml --modelsource local --modelname resnet-18 --store runs/smoke --json
  opcollect --modelsource local --modelname resnet-18 --shard 2/8 --store runs/node2
  opcollect --modelsource local --modelname resnet-18 --iftune true --trials 300 --threads 1 --ifcompare
  opcollect --modelsource local --modelname resnet-18 --backend torch --store runs/vendor
  opcollect --modelsource local --modelname resnet-18 --target pynq --board pynq-z2 --host 192.168.2.99 --store runs/board

Exit codes:
    0    success
    1    success, but some attempts gave no time; the number is printed
    2    invalid arguments or input
    3    this machine or installation lacks something that the command needs
    4    a comparison with `--fail-on` found a regression
    130  interrupted (143: terminated); completed measurements are in the store";

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Run a model, time it, and compare its outputs with the reference
    #[command(after_help = "Example: opcollect model run --modelsource local --modelname resnet-18 --threads 2")]
    Run(Box<ModelRun>),
    /// Build a model into a folder that needs neither compiler nor model file
    ///
    /// `opcollect run DIR` runs such a folder.
    #[command(after_help = "Example: opcollect model build --modelsource local --modelname resnet-18 --out resnet-18")]
    Build(ModelBuild),
    /// Compare ways to run a model in interleaved rounds
    #[command(after_help = "Example: opcollect model compare --modelsource local --modelname resnet-18 --threads 1")]
    Compare(ModelCompare),
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the models of the zoo and the transformer configurations
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the graph of a model
    Graph {
        #[command(flatten)]
        models: Models,
        /// Show the graph as loaded, before any pass
        #[arg(long)]
        raw: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
        format: GraphFormat,
        /// Write an HTML page with a drawing of the tasks to this file
        #[arg(long, value_name = "FILE", conflicts_with = "format")]
        html: Option<PathBuf>,
        /// Write the model as an ONNX file, including its constants
        #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "html"])]
        onnx: Option<PathBuf>,
        /// Add the best measured median of each task from this store to the page
        #[arg(long, value_name = "DIR", requires = "html")]
        store: Option<PathBuf>,
    },
    /// Show the tasks of a model: counts, positions, FLOPs and bytes moved
    Tasks {
        #[command(flatten)]
        models: Models,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the schedule spaces of a model's tasks
    Space {
        #[command(flatten)]
        models: Models,
        /// Show only schedules with these settings of an axis, such as tile_x=4,8
        #[arg(long, value_name = "AXIS=SETTING,...")]
        only: Vec<String>,
        /// Also list N schedules of each task, sampled at random; at most 1000
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(..=1000))]
        sample: usize,
        /// Seed of the sampled schedules
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 63))]
        seed: u64,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Compile a model's tasks into a folder of artifacts without running them
    Build {
        #[command(flatten)]
        models: Models,
        #[command(flatten)]
        sweep: Sweep,
        /// Output folder of the artifacts; it must be empty or absent
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Measure a folder that `build` or `model build` wrote
    ///
    /// Such folders contain machine code, which is executed: run only folders you trust.
    Run {
        /// Folder that `build` or `model build` wrote
        dir: PathBuf,
        /// Store to write records to [default: opcollect-data]
        #[arg(long, value_name = "DIR")]
        store: Option<PathBuf>,
        #[command(flatten)]
        measuring: Measuring,
        #[command(flatten)]
        program: ProgramRun,
        /// Print one JSON document as the last line of stdout instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Run, build or compare whole models
    Model {
        #[command(subcommand)]
        command: ModelCommand,
    },
    /// Measure slowdown under concurrent operators and synthetic load
    ///
    /// Each combination is timed in rounds: first each member alone, then all members at once, each on its own cores. A
    /// record contains the times during concurrent execution; its column `co_run` names the other operators, and
    /// `counters` contains `alone_ns`, `slowdown` and the interval of the slowdown. Combinations that are in the store
    /// are not measured again.
    #[command(after_help = CORUN_EXAMPLES)]
    Corun(Box<CoRunRun>),
    /// Compare concurrent with sequential execution of two to four operators
    ///
    /// Reads schedules and threads from a file of `oppredict cotune --choice`. `oppredict cotune --measure` runs this
    /// command.
    Race(RaceRun),
    /// Report the time of each operator of a model, measured in the network
    ///
    /// Runs with timers around each operator alternate with runs without timers, so each report contains the overhead
    /// of profiling.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileRun>),
    /// Query, convert, merge and check stores
    Dataset {
        #[command(subcommand)]
        command: DatasetCommand,
    },
    /// Run a nightly campaign: repeat operators, measure new ones, check drift
    #[command(after_help = NIGHT_EXAMPLES)]
    Night(Box<NightRun>),
    /// Find regressions, corrected for machine drift
    ///
    /// Compares stores, nightly runs, versions or hosts.
    #[command(after_help = DRIFT_EXAMPLES)]
    Drift(DriftRun),
    /// Show the progress of all processes that write to a store
    Status {
        /// Store [default: opcollect-data]
        #[arg(long, value_name = "DIR", conflicts_with = "place")]
        store: Option<PathBuf>,
        /// Store, as for `--store`
        #[arg(value_name = "STORE")]
        place: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Build and measure one record of a store, or saved traces of TVM's tuner
    Replay(Replay),
    /// View, import, compare and take captures of TPU cards
    Tpu {
        #[command(subcommand)]
        command: TpuCommand,
    },
    /// Summarize, query, check, convert, merge and import trace files
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Serve this machine as a board, or simulate a board's FPGA accelerator
    Board {
        #[command(subcommand)]
        command: BoardCommand,
    },
    /// Show or drain the devices of a tracker
    Fleet {
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Show what this machine can measure, and how to improve it
    ///
    /// The exit code is 3 if the worker program or a library without which nothing can be compiled or run is missing.
    #[command(after_help = "Example: opcollect doctor --noise")]
    Doctor {
        /// Measure for 60 s how much times vary between fresh processes
        #[arg(long)]
        noise: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}
