//! Flags that several commands share. Those of the field's prior art keep their names.

use crate::pace::Pace;
use clap::{Args, ValueEnum};
use engine::campaign::config::{SIMPLE, TRANSFORMERS};
use measure::Plan;
use std::path::PathBuf;

/// Where code runs, where that is not this machine.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Boards")]
pub struct BoardFlags {
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

/// How a whole model is run.
#[derive(Debug, Args)]
pub struct ModelRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub boards: BoardFlags,
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
    /// Returns the files that are named.
    pub fn files(&self) -> engine::given::InputFiles {
        engine::given::InputFiles { input: self.input.clone(), inputs: self.inputs.clone() }
    }
}

impl Measuring {
    /// Returns the options of measuring again.
    pub fn repeat(&self) -> engine::repeat::RepeatOptions<'_> {
        let Measuring { again, retry_faults, .. } = *self;
        engine::repeat::RepeatOptions {
            again,
            retry_faults,
            keys: self.keys.as_deref(),
            unless_agree: &self.unless_agree,
        }
    }
}
