//! The command line: the commands. Flags of one command lie beside it, shared ones in `options.rs`.

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
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Collect operator times: load a model, compile its operators with Apache TVM, measure them, record what happened.
#[derive(Debug, Parser)]
#[command(
    name = "opcollect",
    version,
    args_conflicts_with_subcommands = true,
    after_help = EXAMPLES,
    after_long_help = LONG_EXAMPLES
)]
pub struct Arguments {
    /// Something else than collecting.
    #[command(subcommand)]
    pub command: Option<Command>,
    // Declared for help and completions: `report::terminal::take_color_flag` removes it before clap parses.
    /// Colour tables and messages: `auto` on terminals, unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", value_parser = report::ColorChoice::NAMES, default_value = "auto")]
    pub color: String,
    /// What to collect.
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

Exit codes: 0 all done; 1 done, but some attempts gave no time (counts are printed); 2 bad use or input; 3 this machine
or installation cannot do it; 4 something got slower, with `--fail-on`; 130 or 143 interrupted, everything so far is in the store.";

/// What is done with a whole model.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Run a model, time it and compare it with the reference
    #[command(after_help = "Example: opcollect model run --modelsource local --modelname resnet-18 --threads 2")]
    Run(Box<ModelRun>),
    /// Build a model into a folder that `opcollect run` runs without the compiler and without the model's file
    #[command(after_help = "Example: opcollect model build --modelsource local --modelname resnet-18 --out resnet-18")]
    Build(ModelBuild),
    /// Run a model in several ways in turns, and say how their times compare
    #[command(after_help = "Example: opcollect model compare --modelsource local --modelname resnet-18 --threads 1")]
    Compare(ModelCompare),
}

/// Everything but collecting.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the models that have names
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the graph of a model
    Graph {
        #[command(flatten)]
        models: Models,
        /// Show it as loaded, before any pass
        #[arg(long)]
        raw: bool,
        /// How to show it
        #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
        format: GraphFormat,
        /// Write a page with a drawing of its tasks to this file, to open in a browser
        #[arg(long, value_name = "FILE", conflicts_with = "format")]
        html: Option<PathBuf>,
        /// Write it as an ONNX file, with the numbers of its constants
        #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "html"])]
        onnx: Option<PathBuf>,
        /// On the page, show the best measured median of each task that this store has
        #[arg(long, value_name = "DIR", requires = "html")]
        store: Option<PathBuf>,
    },
    /// Show the tasks of a model with their work and places
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
        /// Show what is left of the spaces with these settings of an axis
        #[arg(long, value_name = "AXIS=SETTING,...")]
        only: Vec<String>,
        /// Also list this many sampled schedules of each task
        #[arg(long, value_name = "N", default_value_t = 0)]
        sample: usize,
        /// Seed of the samples
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Compile a model's tasks into a folder of artifacts, without running them
    Build {
        #[command(flatten)]
        models: Models,
        #[command(flatten)]
        sweep: Sweep,
        /// Folder for the artifacts; it must not exist or be empty
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Measure a folder that was built: of artifacts by `build`, of a program by `model build`
    ///
    /// Both hold machine code, which is run: run only folders you trust.
    Run {
        /// The folder
        dir: PathBuf,
        /// Write records to this store [default: opcollect-data]
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
    /// Run whole models
    Model {
        #[command(subcommand)]
        command: ModelCommand,
    },
    /// Run operators beside each other, and beside partners that ask for one thing alone: what that costs each
    ///
    /// Each combination is timed in rounds, each member alone and then all at once, each on cores of its own. Records stand beside
    /// those of operators alone: their times are those beside the operators of `co_run`, and `counters` has `alone_ns`, `slowdown`
    /// and its interval. What the store has is not measured again.
    #[command(after_help = CORUN_EXAMPLES)]
    Corun(Box<CoRunRun>),
    /// Run a few operators side by side and one after the other, in turns, by the schedules of a choice
    ///
    /// `oppredict cotune --measure` does this with what it chose.
    Race(RaceRun),
    /// Tell where the time of a model goes, operator by operator
    ///
    /// The model is built and run as `model run` does it. Runs with times around each operator take turns with runs that
    /// nobody looks at: what looking costs is part of every report.
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileRun>),
    /// Look into, move and care for stores
    Dataset {
        #[command(subcommand)]
        command: DatasetCommand,
    },
    /// Measure for a night: what regressed or is uncertain, then new work, then variations, with sentinels between
    #[command(after_help = NIGHT_EXAMPLES)]
    Night(Box<NightRun>),
    /// Tell what got slower or faster between stores, nights, versions or hosts, after taking out what the machine did
    #[command(after_help = DRIFT_EXAMPLES)]
    Drift(DriftRun),
    /// Show every process that is at work on a store: how far it is, how fast, and what it lost
    Status {
        /// The store [default: opcollect-data]
        #[arg(long, value_name = "DIR", conflicts_with = "place")]
        store: Option<PathBuf>,
        /// The store, as for `--store`
        #[arg(value_name = "STORE")]
        place: Option<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Build and measure again: one record of a store, or saved traces of TVM's tuner
    Replay(Replay),
    /// Read captures of TPU cards: view, import, compare and take them
    Tpu {
        #[command(subcommand)]
        command: TpuCommand,
    },
    /// Look into trace files of any origin: sums, questions, checks, other formats
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Serve a board, or look at what a core on its fabric would do
    Board {
        #[command(subcommand)]
        command: BoardCommand,
    },
    /// Look at the devices of a tracker
    Fleet {
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Say what this machine can measure, what not, and how to improve it
    #[command(after_help = "Example: opcollect doctor --noise")]
    Doctor {
        /// Measure for 60 s how much this machine's times scatter from visit to visit, and print that
        #[arg(long)]
        noise: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}
