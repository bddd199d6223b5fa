//! The command line: what may be typed. Flags that the field's prior art has keep their names.

use super::night_arguments::{DRIFT_EXAMPLES, DriftRun, NIGHT_EXAMPLES, NightRun};
use super::pace::Pace;
use super::tables::{SortKey, Style};
use super::trace::TraceCommand;
use super::values::some_seconds;
use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::campaign::config::{SIMPLE, TRANSFORMERS};
use measure::{Plan, ROUNDS};
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
    /// What to collect.
    #[command(flatten)]
    pub collect: Collect,
}

const EXAMPLES: &str = "Example: opcollect --modelsource local --modelname resnet-18 --target llvm";
const LONG_EXAMPLES: &str = "\
Examples:
  opcollect --modelsource local --modelname resnet-18 --target llvm
  opcollect --modelsource local --modelname mlp --modelname resnet-50 --batchsize 1,8 --store runs/tonight
  opcollect --modelsource simple --modelname conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1 --schedules 64 --threads 1
  opcollect --config configs/smoke.toml --modelsource local --modelname resnet-18 --store runs/smoke --json
  opcollect --modelsource local --modelname resnet-18 --shard 2/8 --store runs/node2
  opcollect --modelsource local --modelname resnet-18 --iftune true --trials 300 --threads 1 --ifcompare
  opcollect --modelsource local --modelname resnet-18 --backend torch --store runs/vendor
  opcollect --modelsource local --modelname resnet-18 --target pynq --board pynq-z2 --host 192.168.2.99 --store runs/board

Exit codes: 0 all done; 1 done, but some attempts gave no time (counts are printed); 2 bad use or input; 3 this machine
or installation cannot do it; 130 or 143 interrupted, everything so far is in the store.";

const PROFILE_EXAMPLES: &str = "\
Examples:
  opcollect profile --modelsource local --modelname resnet-18
  opcollect profile --modelsource local --modelname squeezenet-1.1 --counters default --sort-by count --row-limit 20
  opcollect profile --modelsource transformers --modelname gpt2 --group-by scope --levels 2
  opcollect profile --modelsource local --modelname mlp --schedule skip_first=10,wait=5,warmup=1,active=3,repeat=2 --json";

/// Which models, and how their operators are compiled and measured.
#[derive(Clone, Debug, Default, Args)]
pub struct Collect {
    #[command(flatten)]
    pub models: Models,
    /// Write records to this store, a folder that is made if needed
    ///
    /// The same command again measures only what is missing. Default: `opcollect-data` in the working folder.
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub measuring: Measuring,
    /// After the campaign, run each model as a whole by the default and by the best schedules, and compare their times
    ///
    /// It is what `opcollect model compare --variant default --variant best --store DIR` does, on each number of threads of
    /// the campaign.
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
    /// Do only this part of the work, as I/N with I from 1 to N
    ///
    /// Each attempt belongs to exactly one part, even if the parts run on different machines; a search is not divided.
    /// Without the flag, a Slurm job array or a Kubernetes indexed job says which part this process is.
    #[arg(long, value_name = "I/N", help_heading = "Data")]
    pub shard: Option<String>,
    /// At the end, also bring the store's records to `file:///folder` or `postgres://user@host/database`
    ///
    /// The store stays the truth: a place that is away is told, delays records and loses none.
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
    pub boards: Boards,
}

/// Where code runs, where that is not this machine.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Boards")]
pub struct Boards {
    /// Run on this board, where `opcollect-board` or TVM's `rpc_server` listens; code is built here
    ///
    /// With `--target llvm` code is made for the processor that the board tells of, with `--target pynq` for that of
    /// `--board`, and a JSON target says itself what it is for.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Port of the board's server [default: 9090]
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Run on the devices that this tracker lends, all of a key at once
    ///
    /// Default for the target `pynq`, and with `--key`: `TVM_TRACKER_HOST` and `TVM_TRACKER_PORT` of the environment.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "host")]
    pub tracker: Option<String>,
    /// Key of the board's server, or of the devices at the tracker [default: the board at a tracker, none at a server]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// A file with the secret that the servers were started with
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// The command that links code for the board [default: the usual cross compiler of its architecture]
    #[arg(long, value_name = "COMMAND")]
    pub cross_cc: Option<String>,
    /// Say that the server runs on hardware, where it cannot say so itself, as TVM's own servers; without it their times are
    /// recorded as emulated
    #[arg(long)]
    pub on_hardware: bool,
    /// File of a bitstream on the board, for `--unit fpga` on a board, such as 1x16_i8w8a32_15_15_18_17.bin in its /lib/firmware
    /// [default: the core is there already]
    #[arg(long, value_name = "NAME")]
    pub bitstream: Option<String>,
    /// Give up a board that cannot be reached, or a tracker that lends nothing, after so long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub board_wait: u64,
}

/// What is done with many devices.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the devices that a tracker knows, by key: how many there are, how many are free, how many requests wait
    #[command(after_help = "Example: opcollect fleet status --tracker 127.0.0.1:9190")]
    Status {
        /// The tracker [default: TVM_TRACKER_HOST and TVM_TRACKER_PORT of the environment]
        #[arg(long, value_name = "HOST:PORT")]
        tracker: Option<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the devices of a key out of service: each agent ends after the session that it is in, before all who wait
    ///
    /// Campaigns go on with what other devices there are, or end with what they have when none is left; the same command
    /// continues them. TVM's own servers cannot be told to end, and are named.
    #[command(after_help = "Example: opcollect fleet drain --tracker 127.0.0.1:9190 --key z2")]
    Drain(FleetDrain),
}

/// Which devices are to end.
#[derive(Debug, Args)]
pub struct FleetDrain {
    /// The tracker [default: TVM_TRACKER_HOST and TVM_TRACKER_PORT of the environment]
    #[arg(long, value_name = "HOST:PORT")]
    pub tracker: Option<String>,
    /// Key of the devices
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// A file with the secret that the agents were started with
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Wait so long for all sessions to end
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub wait: u64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How schedules are searched for.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Search")]
pub struct Tuning {
    /// Search for the best schedules, in place of measuring a sample of them [default: false]
    ///
    /// Every trial is a record like any other, and what the store has is heard first: the same command again goes on where
    /// it ended. At the end the best few of each task are measured again in turns, until it is known which is fastest, or that
    /// they are equal.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub iftune: Option<bool>,
    /// Who proposes schedules [default: draft]
    #[arg(long, value_enum, value_name = "TUNER")]
    pub tuner: Option<TunerArgument>,
    /// Trials of each model, all its tasks and thread counts together; they go where they save most [default: 3000]
    ///
    /// Trials of the same search that the store has already are counted; what other campaigns measured is known for nothing.
    #[arg(long, value_name = "N")]
    pub trials: Option<usize>,
    /// Trials of one task on one number of threads, at most
    #[arg(long, value_name = "N")]
    pub trials_per_task: Option<usize>,
    /// Give up a task that gained nothing in so many trials; 0 for never [default: 100]
    #[arg(long, value_name = "N")]
    pub patience: Option<usize>,
    /// Search only among schedules with these settings of an axis; several axes are named by several flags
    ///
    /// Where the setting decides nothing a schedule stays, and tasks without the axis are not concerned. The default schedule is
    /// measured all the same. `opcollect space` lists axes and settings. Example: --only layout=blocked --only tile_x=4,8
    #[arg(long, value_name = "AXIS=SETTING,...")]
    pub only: Vec<String>,
    /// Write a page with the learning curves to this file, to open in a browser
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,
}

/// Tuners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TunerArgument {
    /// Our own: from the default schedule on, drafts by what trees say of knobs, tiles and loops, other tasks' trials included
    Draft,
    /// Trees that learn speeds from loops; annealing finds what they like
    Xgb,
    /// The same with trees that learn which of two is faster
    XgbRank,
    /// Trees that learn speeds from knobs
    #[value(name = "xgb_knob")]
    XgbKnob,
    /// Trees that learn speeds from loops
    #[value(name = "xgb_itervar")]
    XgbItervar,
    /// Trees that learn speeds from how often data is used again, over how much of it must stay near
    #[value(name = "xgb_curve")]
    XgbCurve,
    /// Generations of which the fittest are crossed and changed
    Ga,
    /// Draws
    Random,
    /// One point after the other
    Gridsearch,
    /// Draws from TVM's MetaSchedule space
    Metaschedule,
}

/// What is measured although it is known, or not although it is not, and beside whom.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct Measuring {
    /// Measure again what the store has already
    #[arg(long)]
    pub again: bool,
    /// Leave out experiments whose medians in these stores are within 2 % of each other
    ///
    /// A machine may be another one for minutes at a time. So measure into one store, later into a second, and into a third
    /// what these two disagree about; `oppredict` takes the middle of all.
    #[arg(long, value_name = "DIR", num_args = 2..)]
    pub unless_agree: Vec<PathBuf>,
    /// Try again what crashed or timed out in earlier runs, so many times
    ///
    /// A worker that was killed from outside, or a machine that stood still, says nothing of an operator. Each run tries
    /// such an experiment once, until it was tried one time more than this.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(i64).range(0..=1000))]
    pub retry_faults: i64,
    /// Leave out experiments whose keys do not stand in this file, one on a line
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Where standard error is no terminal, say how far the work is each so many seconds, 0 for never; or `json`, a document on
    /// a line of standard error every second, for other programs
    #[arg(long, value_name = "SECONDS", default_value_t = Pace::default())]
    pub progress: Pace,
    /// The night that this is part of: what it measured is not measured again.
    #[arg(long, hide = true)]
    pub night: Option<String>,
}

impl Default for Measuring {
    fn default() -> Measuring {
        Measuring {
            again: false,
            unless_agree: Vec::new(),
            retry_faults: 2,
            keys: None,
            wait: 0,
            progress: Pace::default(),
            night: None,
        }
    }
}

/// Examples of `corun`.
const CORUN_EXAMPLES: &str = "\
Examples:
  opcollect corun --config configs/corun.toml --store runs/corun
  opcollect corun --config configs/corun.toml --modelsource local --modelname squeezenet-1.1 --modelname mlp
  oppredict interference --data runs/corun --html slowdowns.html";

/// Operators beside each other.
#[derive(Debug, Args)]
pub struct CoRunRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Write records to this store, a folder that is made if needed [default: opcollect-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// Two ways to run a few operators.
#[derive(Debug, Args)]
pub struct RaceRun {
    /// A choice, as `oppredict cotune --choice FILE` writes it
    #[arg(value_name = "FILE")]
    pub choice: PathBuf,
    /// How many rounds; six are the least that give an interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// Which models.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Models")]
pub struct Models {
    /// Where models come from
    #[arg(long, value_enum, value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    /// Name of a model in its source; may be given several times
    ///
    /// For `local` a name of the zoo (see `opcollect list`), or `resnet-18:hw=160` for images of another size, for
    /// `simple` one operator such as `matmul:m=512,n=512,k=512`, for `onnx`, `tflite` and `torch` the path of a file,
    /// for `remoteonnx` a path or a `file://` address, for `transformers` a folder with a `config.json`, a shipped
    /// configuration, or either with changed fields such as `llama-7b:num_hidden_layers=2`.
    #[arg(long, value_name = "NAME")]
    pub modelname: Vec<String>,
    /// Shape of an input whose file leaves dimensions open, as NAME=1x3x224x224; may be given several times
    ///
    /// Without it, dimensions that are called a batch become the batch size, and others are an error. An input that is
    /// given several shapes makes the model one of several sizes.
    #[arg(long, value_name = "NAME=SHAPE")]
    pub shape: Vec<String>,
    /// Leave out operators of a file that this version cannot represent, and tell which
    #[arg(long)]
    pub skip_unsupported: bool,
    /// Batch sizes, such as 1 or 1,8,32 [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub batchsize: Vec<i64>,
    /// Tokens of each sequence, such as 128 or 32,512; in a decoding step those that were read before [default: 128]
    ///
    /// Only for `transformers`. Models of images have their own number.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub sequence: Vec<i64>,
    /// Parts of a decoder's work: all tokens at once, or one more token after those that were read [default: prefill]
    ///
    /// Only for `transformers`. A decoding step takes the keys and values of earlier tokens from outside.
    #[arg(long, value_enum, value_name = "PHASE", value_delimiter = ',')]
    pub phase: Vec<PhaseArgument>,
    /// Decoding steps one after the other as one model, each with the keys and values of those before it [default: 1]
    ///
    /// Only for `--phase decode`. `--sequence` is what was read before the first step; each step is given its token.
    #[arg(long, value_name = "N")]
    pub steps: Option<i64>,
    /// Whether attention is one task, its parts, or both [default: fused]
    #[arg(long, value_enum)]
    pub attention: Option<AttentionArgument>,
    /// Whether pointwise operators join the operator before them [default: epilogue]
    #[arg(long, value_enum)]
    pub fuse: Option<FuseArgument>,
    /// Whether code is made for one size, or once for all the sizes that are given [default: default]
    ///
    /// With `vm`, the batch sizes and lengths of sequences of a model stay open when its tasks are compiled; each piece
    /// of code is then measured, and checked, at every size. What needs numbers is compiled for each size: `opcollect
    /// tasks --executor vm` says which tasks and why. No tile of a thread may be larger than 1 along a size that is open.
    #[arg(long, value_enum)]
    pub executor: Option<ExecutorArgument>,
    /// So many others beside each task, of other sizes [default: 0]
    ///
    /// The operators stay, each size is drawn from between half and twice of what it was, and the work is at most twice
    /// as much; `--seed` draws others. They stand in no model and count for none: from them a predictor learns what lies
    /// between the shapes of known networks.
    #[arg(long, value_name = "N")]
    pub variations: Option<usize>,
    /// What to compile for: `llvm`, `cuda`, `pynq`, or TVM's JSON of such a target [default: llvm]
    ///
    /// `build` also takes `mali`, or the JSON of an OpenCL device: kernels in OpenCL C, which nothing here runs.
    ///
    /// Libraries that take the operators they support may stand before it, as in `cpu-vendor, llvm`, where
    /// `cpu-vendor` is PyTorch's library (see `--backend`).
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// Who computes the tasks: TVM's code, or PyTorch's library [default: tvm]
    ///
    /// `torch` shows what a vendor's library reaches on the same tasks, on this machine's CPU and timed as compiled code
    /// is; an operator that PyTorch has no form of is recorded as skipped. It needs a build with the feature `torch`: see
    /// `docs/torch.md`.
    #[arg(long, value_enum, value_name = "BACKEND")]
    pub backend: Option<BackendArgument>,
    /// GPU architectures to compile for, such as sm_90 or sm_80,sm_90 [default: this machine's GPU]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub arch: Vec<String>,
    /// Which part of a board computes, for `--target pynq`: `arm`, its cores, reached over RPC, or `fpga`, a core on its
    /// fabric, whose times are simulated here unless a board is named [default: arm]
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<String>,
    /// Which board, for `--target pynq`: pynq-z1, pynq-z2, ultra96, zcu104, kv260 [default: pynq-z1]
    #[arg(long, value_name = "NAME")]
    pub board: Option<String>,
    /// Which configuration of the core, for `--unit fpga`: 1x16, 4x8 [default: 1x16]
    #[arg(long, value_name = "NAME")]
    pub fpga_config: Option<String>,
    /// Which parameters of the timing model, for `--unit fpga` [default: those of the board]
    #[arg(long, value_name = "NAME")]
    pub sim_params: Option<String>,
    /// Read settings from this TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Where models come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelSource {
    /// The built-in zoo
    Local,
    /// One operator given as text
    Simple,
    /// An ONNX file
    Onnx,
    /// An ONNX file that was fetched from elsewhere
    Remoteonnx,
    /// A TFLite file
    Tflite,
    /// An archive of `torch.export`, a `.pt2` file
    Torch,
    /// A transformer by its configuration
    Transformers,
}

impl ModelSource {
    /// The word in records.
    pub fn name(self) -> &'static str {
        match self {
            ModelSource::Local => "local",
            ModelSource::Simple => SIMPLE,
            ModelSource::Onnx => "onnx",
            ModelSource::Remoteonnx => "remoteonnx",
            ModelSource::Tflite => "tflite",
            ModelSource::Torch => "torch",
            ModelSource::Transformers => TRANSFORMERS,
        }
    }
}

/// Who computes the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArgument {
    /// Code that TVM compiles
    Tvm,
    /// PyTorch's library
    Torch,
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExecutorArgument {
    /// One size
    Default,
    /// All sizes of a model
    Vm,
}

/// Parts of a decoder's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PhaseArgument {
    /// All tokens at once
    Prefill,
    /// One more token
    Decode,
}

/// What becomes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AttentionArgument {
    /// One task
    Fused,
    /// Two products and a softmax
    Split,
    /// Both, so that they can be compared
    Both,
}

/// Whether pointwise operators join the operator before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FuseArgument {
    /// They do
    Epilogue,
    /// Each operator is a task of its own
    None,
}

/// Which schedules and settings are measured, and how.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sweep")]
pub struct Sweep {
    /// Schedules per task, the default one included [default: 8]
    #[arg(long, value_name = "N")]
    pub schedules: Option<usize>,
    /// Where schedules come from [default: template]
    #[arg(long, value_enum, value_name = "SAMPLER", value_delimiter = ',')]
    pub sampler: Vec<SamplerArgument>,
    /// Thread counts, such as 1,2 [default: 1 and all CPUs]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Cache states before a timed run [default: warm]
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',')]
    pub cache: Vec<CacheArgument>,
    /// Seed of schedules and input values [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub budget: Option<f64>,
    #[command(flatten)]
    pub sampling: Sampling,
    /// Counters to read, by stable or native name; `none` for no counters (see `opcollect doctor`)
    ///
    /// A campaign measures known attempts again that lack one of the named counters.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub counters: Vec<String>,
    /// Builders at work at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub builders: Option<usize>,
}

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

/// A way to run a whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VariantArgument {
    /// Our code, by the default schedules
    Default,
    /// Our code, by the fastest right schedule of each task that a store has
    Best,
    /// ONNX Runtime's library, on the same model written as a file
    Onnxruntime,
    /// OpenVINO's library, on the same file, f32 computed as f32; `scripts/setup --openvino` installs it
    Openvino,
    /// PyTorch's library, operator by operator as its users run a model; see `docs/torch.md`
    Torch,
    /// Our code with operators side by side, as `--plan` says
    Plan,
    /// Our code, one operator after the other on all cores, by the threads that run plans
    Sequential,
    /// Our code with what is ready at once side by side, on cores of their own
    Stream,
    /// Our code with what is ready at once side by side, each on all cores
    Full,
}

/// How ways to run a model are compared.
#[derive(Debug, Args)]
pub struct ModelCompare {
    #[command(flatten)]
    pub models: Models,
    /// A way to run the model; ratios are to the first one [default: default, onnxruntime]
    #[arg(long, value_enum, value_name = "VARIANT")]
    pub variant: Vec<VariantArgument>,
    /// Take the schedules of `--variant best` from this store, as measured on such a host for the same target, versions, code
    /// and number of threads
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Also use times of other TVM versions and code revisions for `--variant best`
    #[arg(long, requires = "store")]
    pub all_versions: bool,
    /// The plan of `--variant plan`, which `oppredict plan` made for this model, machine and number of threads
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Rounds; in each, every variant is sampled for a short time, and who begins changes
    ///
    /// An interval of a ratio needs 6 of them.
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Do not compare the outputs with the reference, which takes long for large models
    #[arg(long)]
    pub no_check: bool,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// What a model is given from files.
#[derive(Clone, Debug, Default, Args)]
pub struct Given {
    /// Give an input of the model a file, as NAME=FILE.npy; others are drawn from the seed
    ///
    /// Of an `.npz` archive or a `.safetensors` file, the tensor of that name is taken.
    #[arg(long, value_name = "NAME=FILE")]
    pub input: Vec<String>,
    /// Give all inputs of the model from an `.npz` archive or a `.safetensors` file, by their names
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
}

/// How a whole model becomes a folder.
#[derive(Debug, Args)]
pub struct ModelBuild {
    #[command(flatten)]
    pub models: Models,
    /// Folder for the program; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Build each task by the fastest right schedule that a store has, where it has one
    #[arg(long, requires = "store")]
    pub best: bool,
    /// Take the schedules of `--best` from this store, as measured on such a host for the same target, versions, code and
    /// number of threads
    #[arg(long, value_name = "DIR", requires = "best")]
    pub store: Option<PathBuf>,
    /// Also use times of other TVM versions and code revisions for `--best`
    #[arg(long, requires = "best")]
    pub all_versions: bool,
    /// Threads that the schedules of `--best` were measured on [default: all CPUs]
    #[arg(long, value_name = "N", requires = "best")]
    pub threads: Option<usize>,
    /// Seed of the input values whose outputs are kept in the folder to compare with [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Keep no outputs of the reference, which takes long for large models
    #[arg(long)]
    pub no_check: bool,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// How samples of times are taken.
#[derive(Clone, Debug, Default, Args)]
pub struct Sampling {
    /// Stop repeating when the median of a visit is known to this part of itself [default: 0.01]
    #[arg(long, value_name = "PART")]
    pub precision: Option<f64>,
    /// Share the time among this many visits, each at another time and place in memory [default: 3]
    ///
    /// Printed intervals are for the median that as many visits at another time would give. With one visit there is no such
    /// interval.
    #[arg(long, value_name = "N")]
    pub visits: Option<u32>,
    /// Move the measuring thread's stack by this much, a multiple of 16 below 4096 [default: all over a page]
    ///
    /// To see how much a time depends on where the stack lies.
    #[arg(long, value_name = "BYTES")]
    pub stack_offset: Option<u32>,
}

impl Sampling {
    /// Puts what was asked for into a plan.
    pub fn apply(&self, plan: &mut Plan) {
        plan.precision = self.precision.unwrap_or(plan.precision);
        plan.visits = self.visits.unwrap_or(plan.visits);
        plan.stack_offset_bytes = self.stack_offset.or(plan.stack_offset_bytes);
    }
}

/// How long a model is run, on what, and where its outputs go.
#[derive(Clone, Debug, Default, Args)]
pub struct Running {
    #[command(flatten)]
    pub sampling: Sampling,
    #[command(flatten)]
    pub given: Given,
    /// Write each output to a file of NumPy's format in this folder
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// How the program of a folder is run. Folders of artifacts take none of it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Programs of whole models")]
pub struct ProgramRun {
    /// Threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of input values [default: that of the expected outputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub running: Running,
}

/// How a whole model is run.
#[derive(Debug, Args)]
pub struct ModelRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub boards: Boards,
    /// Threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub running: Running,
    /// Write a record of the kind `network` to this store, which is made if needed; each run is one more attempt
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Run operators side by side as this plan says, which `oppredict plan` made for this model, machine and number of threads; a
    /// GPU takes a plan that names no machine, and runs each group on a stream of its own
    #[arg(long, value_name = "FILE", conflicts_with = "parallel")]
    pub plan: Option<PathBuf>,
    /// Run operators side by side by a rule, without a plan
    #[arg(long, value_enum, value_name = "TYPE")]
    pub parallel: Option<ParallelArgument>,
    /// Do not compare the outputs with the reference, which takes long for large models
    #[arg(long)]
    pub no_check: bool,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// How operators share the cores, or the streams of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ParallelArgument {
    /// One operator after the other on all cores
    Sequential,
    /// What is ready at once side by side, each group on cores of its own; on a GPU up to four groups, each on a stream of its own
    Stream,
    /// What is ready at once side by side, each on all cores; on a GPU each on a stream of its own, of which there are up to 32
    Full,
}

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
    #[arg(long, value_name = "SECONDS", default_value_t = 0, help_heading = "Running")]
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
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = GroupArgument::InputShape)]
    pub group_by: GroupArgument,
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
    #[arg(long, value_name = "HERTZ", default_value_t = 3989, requires = "annotate",
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
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub trace_mib: u32,
}

/// How rows of operators are put together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct ProfileTable {
    /// Print a table that people know from elsewhere, in its words; with `--json` and `--csv` those write its columns, too
    #[arg(long, value_enum)]
    pub style: Option<Style>,
    /// What is one row
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = GroupArgument::InputShape)]
    pub group_by: GroupArgument,
    /// With `--group-by scope`, only so many of the outermost names of modules; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub levels: usize,
    /// What rows are ordered by, the largest first
    #[arg(long, value_enum, value_name = "KEY", default_value_t = SortKey::SelfCpuTimeTotal)]
    pub sort_by: SortKey,
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

/// What is one row of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupArgument {
    /// Operators of one name
    Name,
    /// Operators of one name on the same shapes
    InputShape,
    /// Operators at one place of the model's modules
    Scope,
    /// Each call of a run
    Call,
}

/// Where schedules come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SamplerArgument {
    /// Our own templates: tile, split, reorder, unroll, vectorise, parallel, compute-at
    Template,
    /// TVM's MetaSchedule space
    Metaschedule,
}

/// Cache states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArgument {
    /// What the previous run left
    Warm,
    /// Other data
    Cold,
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
        /// The store
        #[arg(value_name = "STORE", default_value = "opcollect-data")]
        store: PathBuf,
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

/// How to show a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// One operator a line; parses back
    Text,
    /// Graphviz
    Dot,
    /// JSON
    Json,
}

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
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What can be done with stores.
#[derive(Debug, Subcommand)]
pub enum DatasetCommand {
    /// Count a store's records by outcome, source, target, host and operator
    Stats {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Of several attempts, count the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "middle", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write records to one file
    Export {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// csv, parquet or jsonl [default: by the file's name]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// The file; it is written beside and renamed into place
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Of several attempts, write the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the records of a file into a store
    Import {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// csv, parquet or jsonl [default: by the file's name]
        #[arg(long, value_name = "FORMAT")]
        format: Option<String>,
        /// The file
        file: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take the records of other stores into this one; the order does not matter
    Merge {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// The other stores
        #[arg(required = true)]
        others: Vec<PathBuf>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Turn finished journals into Parquet parts
    Seal {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Also seal journals of processes not seen from here, which must have ended
        #[arg(long)]
        take_over: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Merge small parts and drop rows of measurements met twice
    Compact {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Read everything and report whatever is damaged
    Verify {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Set aside what is damaged, and say what is lost
        #[arg(long)]
        quarantine: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Count records by whether this program still makes the code that was measured
    ///
    /// Exits with 1 where some records are of other code. The campaign that measured them, run again, measures their tasks by
    /// the code of now.
    Revisions {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Tell the best known schedule and time of operators, tasks or models, on a host or the nearest that is known
    ///
    /// For this machine, only times of the installed versions count; for another host, those of its newest versions.
    Best(BestQuestion),
    /// Ask all records one question in SQL, answered by SQLite, which this program has inside
    ///
    /// The table is `records`; its columns are those of `opcollect dataset schema`. Columns that the question does not
    /// name are not read. Keys are texts of hexadecimal digits, JSON and lists are texts for `json_extract` and its kind.
    Query {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// The question, one statement
        #[arg(long, value_name = "STATEMENT")]
        sql: String,
        /// Of several attempts, ask about the middle, latest or all
        #[arg(long, value_name = "WHICH", default_value = "all", value_parser = datasets::Choose::named)]
        choose: datasets::Choose,
        /// Give up after so long
        #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = some_seconds)]
        seconds: f64,
        /// Memory for rows and answer
        #[arg(long, value_name = "MIB", default_value_t = 4096)]
        memory_mib: u32,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Bring parts, configurations and peaks to a folder or a bucket by its address, or a store's records into a database
    ///
    /// What is there already is not written again, so an interrupted push goes on where it ended.
    Push {
        /// The store
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// `file:///folder`; `s3://bucket/place`, which takes `curl` and the usual variables (AWS_ACCESS_KEY_ID,
        /// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL); or `postgres://user@host/database`, which takes PostgreSQL's
        /// client `psql`
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Fetch parts, configurations and peaks that were pushed to a folder or a bucket
    Pull {
        /// The store, made if needed
        #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
        store: PathBuf,
        /// `file:///folder` or `s3://bucket/place`
        address: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the columns of a record
    Schema {
        /// Print a CREATE TABLE statement: postgres, clickhouse or duckdb
        #[arg(long, value_name = "ENGINE")]
        sql: Option<String>,
    },
}

/// Of what the best is asked.
#[derive(Clone, Debug, Args)]
pub struct BestQuestion {
    /// The store
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// Only tasks of this operator, such as `conv2d`
    #[arg(long, value_name = "KIND")]
    pub operator: Option<String>,
    /// Only tasks whose text contains this, or whose hash begins with it
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// Only tasks of this model, and their sum
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Only times on so many threads
    #[arg(long, value_name = "N")]
    pub threads: Option<i64>,
    /// The host, or its class; without records of it, the nearest that is known [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Also use times of other TVM versions, code revisions and clock policies, and show them
    #[arg(long)]
    pub all_versions: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What can be done with captures of TPU cards.
#[derive(Clone, Debug, Subcommand)]
pub enum TpuCommand {
    /// Write everything a capture shows: trace, summary, registers, workbook, page
    ///
    /// Into the output folder go `perfetto.pftrace`, `summary.txt`, `tiuRegInfo_*.txt`, `tdmaRegInfo_*.txt`,
    /// `cdmaRegInfo_*.txt`, `PerfDoc/PerfAI_output.xlsx` with the same records as CSV beside it, and
    /// `PerfWeb/result.html`. What cannot be read is skipped, told with file and offset, and makes the exit code 1.
    View(TpuView),
    /// Add a capture's operators to a store, as rows with the source `imported`
    Import(TpuImport),
    /// Show which operators got slower between two captures, the costliest first
    ///
    /// Operators that are as often and as long in both are counted and not listed.
    Compare(TpuCompare),
    /// Run a command with profiling switched on, and view the capture it writes
    Capture(TpuCapture),
}

/// A capture and what to write of it.
#[derive(Clone, Debug, Args)]
pub struct TpuView {
    /// The capture, a folder such as `cdm_profile_data_dev0-0`
    pub input: PathBuf,
    /// Folder for what is written
    #[arg(default_value = "profile_out")]
    pub output: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
}

/// Which outputs, and how to read; flags of both generations of bigTpuProfile keep their names.
#[derive(Clone, Debug, Default, Args)]
pub struct TpuOutputs {
    /// Write the Perfetto trace; it is written anyway, the flag is for command lines of bigTpuProfile 0.3.0
    #[arg(long)]
    pub perfetto: bool,
    /// Write no Perfetto trace
    #[arg(long = "disable_perfetto", alias = "disable-perfetto", conflicts_with = "perfetto")]
    pub disable_perfetto: bool,
    /// Write no summary.txt and print no table
    #[arg(long = "disable_summary", alias = "disable-summary")]
    pub disable_summary: bool,
    /// Write no page (PerfWeb)
    #[arg(long = "disable_web", alias = "disable-web")]
    pub disable_web: bool,
    /// Write no workbook (PerfDoc); without page and workbook there are no register reports either
    #[arg(long = "disable_doc", alias = "disable-doc")]
    pub disable_doc: bool,
    /// Write the workbook; it is written anyway, the flag is for command lines of bigTpuProfile 0.3.2 and later
    #[arg(long = "enable_doc", alias = "enable-doc", conflicts_with = "disable_doc")]
    pub enable_doc: bool,
    /// Merge a host trace in the format of Chrome's tracing
    #[arg(long = "trace_file", alias = "trace-file", value_name = "FILE")]
    pub trace_file: Option<PathBuf>,
    /// Clock of the tensor unit in MHz, instead of the capture's own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Show only cores below this number in the workbook
    #[arg(long = "num_core", alias = "num-core", value_name = "N")]
    pub num_core: Option<u32>,
    /// Give the figures of bigTpuProfile 0.3.7 where they are wrong, too, for comparison
    #[arg(long)]
    pub compat: bool,
}

impl TpuOutputs {
    /// Whether the trace is wanted.
    pub fn writes_trace(&self) -> bool {
        !self.disable_perfetto
    }

    /// Whether the workbook is wanted.
    pub fn writes_book(&self) -> bool {
        !self.disable_doc
    }

    /// Whether the page is wanted.
    pub fn writes_page(&self) -> bool {
        !self.disable_web
    }

    /// Whether the register reports are wanted: workbook and page used to be made from them.
    pub fn writes_registers(&self) -> bool {
        self.writes_book() || self.writes_page()
    }
}

/// A capture and the store it goes to.
#[derive(Clone, Debug, Args)]
pub struct TpuImport {
    /// The capture
    pub input: PathBuf,
    /// The store, a folder that is made if needed
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// One row for every command instead of one for equal commands of a core
    #[arg(long)]
    pub commands: bool,
    /// Name of the host the capture was taken on
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Clock of the tensor unit in MHz, instead of the capture's own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// An operator, or the whole, that got slower.
    Slower,
}

/// Two captures of the same work.
#[derive(Clone, Debug, Args)]
pub struct TpuCompare {
    /// The capture before
    pub before: PathBuf,
    /// The capture after
    pub after: PathBuf,
    /// Only this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// End with exit code 4 when an operator's mean or the whole time grew by more than --threshold
    ///
    /// The mean of an operator must besides have grown by more than three standard errors of its runs. Exit code 1, for
    /// parts of a capture that were skipped, gives way to it.
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Growth in percent up to which nothing counts as slower
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = some_percent)]
    pub threshold: f64,
    /// Clock of the tensor unit in MHz, instead of the captures' own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A command that is profiled.
#[derive(Clone, Debug, Args)]
pub struct TpuCapture {
    /// How much is recorded: 0 times only, 1 commands too, 2 their registers too (`PROFILE_MODE`)
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mode: Option<u8>,
    /// Records an engine may write (`PROFILE_RECORD_SIZE`)
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// The firmware of the cores, for old models (`TPUKERNEL_FIRMWARE_PATH`)
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// Folder for what is written
    #[arg(long, value_name = "DIR", default_value = "profile_out")]
    pub out: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// A growth.
fn some_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e6).contains(&percent) { Ok(percent) } else { Err("give 0 to 1000000".to_owned()) }
}

/// What is done for boards.
#[derive(Clone, Debug, Subcommand)]
pub enum BoardCommand {
    /// Simulate one operator on a core's fabric, and write what its modules did when, for Perfetto
    ///
    /// Nothing is measured: all times are simulated. There is a line for each module, for fetching instructions, and for what
    /// waits for memory.
    #[command(after_help = BOARD_TRACE_EXAMPLES)]
    Trace(Box<BoardTrace>),
    /// Serve this machine as a board: what `opcollect-board serve` does, which needs neither Python nor TVM
    #[command(after_help = "Example: opcollect board serve --port 9090")]
    Serve(BoardServe),
}

const BOARD_TRACE_EXAMPLES: &str = "\
Examples:
  opcollect board trace --modelsource simple --modelname conv2d:ci=64,hw=56,co=64,k=3,p=1 --out layer.pftrace
  opcollect board trace --modelsource local --modelname resnet-18 --task 5 --knobs tile_h=7,tile_ci=4 --out layer.pftrace";

/// What is simulated, and where the trace goes.
#[derive(Clone, Debug, Args)]
pub struct BoardTrace {
    #[command(flatten)]
    pub models: Models,
    /// Which of the models' tasks, from 1, in the order of `opcollect tasks --target pynq --unit fpga`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub task: usize,
    /// Knobs that are not as the default schedule has them, as in tile_h=7,tile_ci=4
    #[arg(long, value_name = "NAME=N,…", value_delimiter = ',')]
    pub knobs: Vec<String>,
    /// Write the trace to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write at most about so many MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub trace_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How a board is served.
#[derive(Clone, Debug, Args)]
pub struct BoardServe {
    /// Address to listen on; another than the default needs `--secret-file`, since a session can run any code
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: String,
    /// Port to listen on; 0 takes any
    #[arg(long, value_name = "N", default_value_t = 9090)]
    pub port: u16,
    /// What clients must call this board, and what a tracker knows it by [default: any]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// A file with what every client must know, one line
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Register with this tracker
    #[arg(long, value_name = "HOST:PORT", requires = "key")]
    pub tracker: Option<String>,
    /// End a session after so long
    #[arg(long, value_name = "N", default_value_t = 3600)]
    pub session_seconds: u64,
    /// Memory for the tensors of a session [default: half of what is free]
    #[arg(long, value_name = "N")]
    pub memory_mib: Option<u64>,
    /// Serve a core on the fabric, too: `devmem` by its registers (not run on hardware), `simulated` computes and times nothing
    #[arg(long, value_name = "KIND", value_parser = ["none", "devmem", "simulated"], default_value = "none")]
    pub fpga: String,
    /// Say that this machine is an emulator
    #[arg(long)]
    pub emulated: bool,
}

impl From<ParallelArgument> for models::Parallel {
    fn from(argument: ParallelArgument) -> models::Parallel {
        match argument {
            ParallelArgument::Sequential => models::Parallel::Sequential,
            ParallelArgument::Stream => models::Parallel::Stream,
            ParallelArgument::Full => models::Parallel::Full,
        }
    }
}

impl Given {
    /// The files that are named.
    pub fn files(&self) -> engine::given::Given {
        engine::given::Given { input: self.input.clone(), inputs: self.inputs.clone() }
    }
}

impl Measuring {
    /// What is asked to be measured once more.
    pub fn repeat(&self) -> engine::repeat::RepeatAsked<'_> {
        let Measuring { again, retry_faults, .. } = *self;
        engine::repeat::RepeatAsked {
            again,
            retry_faults,
            keys: self.keys.as_deref(),
            unless_agree: &self.unless_agree,
        }
    }
}
