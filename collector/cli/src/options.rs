//! Flags that several commands share. Those of the field's prior art keep their names.

use crate::pace::Pace;
use crate::values::whole_seconds;
use clap::Args;
use engine::campaign::TuneSettings;
use engine::campaign::choices::ModelSource;
use engine::campaign::settings::{ModelSettings, SweepSettings};
use engine::flags::choices;
use engine::repeat::DEFAULT_RETRY_FAULTS;
use measure::Plan;
use models::Parallel;
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
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole_seconds::<1, 86_400>)]
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
    #[command(flatten)]
    pub settings: TuneSettings,
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
    #[arg(long, value_name = "N", default_value_t = DEFAULT_RETRY_FAULTS, value_parser = clap::value_parser!(i64).range(0..=1000))]
    pub retry_faults: i64,
    /// Leave out experiments whose keys do not stand in this file, one on a line
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
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
            retry_faults: DEFAULT_RETRY_FAULTS,
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
    /// Models, as for `--modelname`
    #[arg(value_name = "MODEL")]
    pub model: Vec<String>,
    /// Source of models [default: by the name: a file ending, the zoo, an operator as text, a transformer]
    #[arg(long, value_parser = choices::<ModelSource>(), value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    /// Name of a model in its source; may be given several times
    ///
    /// For `local` a name of the zoo (see `opcollect list`), or `resnet-18:hw=160` for images of another size, for
    /// `simple` one operator such as `matmul:m=512,n=512,k=512`, for `onnx`, `tflite` and `torch` the path of a file,
    /// for `remoteonnx` a path or a `file://` address, for `transformers` a folder with a `config.json`, a shipped
    /// configuration, or either with changed fields such as `llama-7b:num_hidden_layers=2`.
    #[arg(long, visible_alias = "model", value_name = "NAME")]
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
    #[command(flatten)]
    pub settings: ModelSettings,
    /// Read settings from this TOML file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which schedules and settings are measured, and how.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sweep")]
pub struct Sweep {
    #[command(flatten)]
    pub settings: SweepSettings,
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

impl Models {
    /// Returns all models that are named.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.model.iter().chain(&self.modelname)
    }
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
    #[arg(long, value_parser = choices::<Parallel>(), value_name = "TYPE")]
    pub parallel: Option<Parallel>,
    /// Do not compare the outputs with the reference, which takes long for large models
    #[arg(long)]
    pub no_check: bool,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
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

impl Sweep {
    /// Returns the options of a command that runs one schedule of each task.
    pub fn of_run(threads: Option<usize>, seed: Option<u64>, sampling: &Sampling) -> Sweep {
        let settings = SweepSettings { threads: threads.map(|count| vec![count]), seed, ..SweepSettings::default() };
        Sweep { settings, sampling: sampling.clone(), ..Sweep::default() }
    }
}
