//! Options that several commands share. Names follow earlier tools of the field where there are such tools.

use crate::pace::Pace;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use engine::campaign::TuneSettings;
use engine::campaign::choices::ModelSource;
use engine::campaign::settings::{ModelSettings, SweepSettings};
use engine::flags::choice_parser;
use engine::repeat::DEFAULT_RETRY_FAULTS;
use measure::Plan;
use models::Parallel;
use readers::inputs::OpenInputs;
use report::quantity::whole_seconds;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ExclusiveUse {
    /// Wait for other measurements on the same CPUs, at most this long
    ///
    /// With 0, the command fails at once if another process measures on these CPUs.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_seconds::<0, 1_000_000>)]
    pub wait: u64,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Boards")]
pub struct BoardFlags {
    /// Run on this board, served by `opcollect-board` or TVM's `rpc_server`
    ///
    /// Code is built on this machine: with `--target llvm` for the processor that the board reports, with `--target
    /// pynq` for the processor of `--board`, with a JSON target for the processor that it names.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Port of the board's server [default: 9090]
    #[arg(long, value_name = "N", requires = "host", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Run on all devices of a key that this tracker lends
    ///
    /// Default for the target `pynq`, and with `--key`: `TVM_TRACKER_HOST` and `TVM_TRACKER_PORT` of the environment.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "host")]
    pub tracker: Option<String>,
    /// Key of a board's server or of devices at a tracker
    ///
    /// Default: the board's name for a tracker, no key for a server.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// File with the secret that the servers were started with
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Command that links code for the board [default: the usual cross compiler of its architecture]
    #[arg(long, value_name = "COMMAND")]
    pub cross_cc: Option<String>,
    /// Declare a real board, not an emulator, if the server cannot report it
    ///
    /// TVM's own servers do not report whether they are emulated; without this flag, records contain `emulated`.
    #[arg(long)]
    pub on_hardware: bool,
    /// Bitstream file on the board for `--unit fpga` [default: keep the loaded core]
    ///
    /// Example: 1x16_i8w8a32_15_15_18_17.bin in the board's /lib/firmware.
    #[arg(long, value_name = "NAME")]
    pub bitstream: Option<String>,
    /// Give up an unreachable board or an empty tracker after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole_seconds::<1, 86_400>)]
    pub board_wait: u64,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Search")]
pub struct Tuning {
    /// Search for the best schedules instead of measuring a sample [default: false]
    ///
    /// Every trial is a record. Records of the store count, so the same command continues a search. Finally, the
    /// fastest schedules of each task are measured in interleaved rounds until one is significantly fastest or all are
    /// equivalent.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub iftune: Option<bool>,
    #[command(flatten)]
    pub settings: TuneSettings,
    /// Search only schedules with these settings of an axis; repeatable
    ///
    /// Tasks without the axis, and schedules in which the axis has no effect, are not restricted. The default schedule
    /// is always measured. `opcollect space` lists axes and settings. Example: --only layout=blocked --only tile_x=4,8
    #[arg(long, value_name = "AXIS=SETTING,...")]
    pub only: Vec<String>,
    /// Write an HTML page with learning curves to this file
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,
}

/// Which experiments of a campaign are measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct Measuring {
    /// Measure experiments again even if the store has their records
    #[arg(long)]
    pub again: bool,
    /// Skip experiments whose medians in these stores differ by at most 2 %
    ///
    /// Some machines are temporarily slower or faster. Measure into two stores at different times, then measure into a
    /// third store with this flag; `oppredict` uses the median of all.
    #[arg(long, value_name = "DIR", num_args = 2..)]
    pub unless_agree: Vec<PathBuf>,
    /// Retry experiments that crashed or timed out up to N times
    ///
    /// Failures that the machine may have caused, such as a killed worker, are retried once per run until the
    /// experiment was attempted N + 1 times.
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_RETRY_FAULTS,
        value_parser = clap::value_parser!(i64).range(0..=1000)
    )]
    pub retry_faults: i64,
    /// Measure only experiments whose keys are in this file, one key per line
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    #[command(flatten)]
    pub exclusive: ExclusiveUse,
    /// Interval of progress lines in seconds, or `json`; 0 disables them
    ///
    /// Progress lines are printed if standard error is not a terminal. `json` prints one document per line every second
    /// to standard error, for other programs.
    #[arg(long, value_name = "SECONDS", default_value_t = Pace::default())]
    pub progress: Pace,
    /// Identifier of the nightly run that this campaign belongs to; its own records are not measured again.
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
            exclusive: ExclusiveUse::default(),
            progress: Pace::default(),
            night: None,
        }
    }
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Models")]
pub struct Models {
    /// Models, as for `--modelname`
    #[arg(value_name = "MODEL")]
    pub model: Vec<String>,
    /// Source of models [default: derived from the model's name]
    #[arg(long, value_parser = choice_parser::<ModelSource>(), value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    /// Model name or file; repeatable
    ///
    /// `local`: a name of the zoo (see `opcollect list`), or with another image size as in `resnet-18:hw=160`.
    /// `simple`: one operator such as `matmul:m=512,n=512,k=512`. `onnx`, `tflite`, `torch`: a path. `remoteonnx`: a
    /// path or a `file://` address. `transformers`: a folder with a `config.json`, a shipped configuration, or either
    /// with changed fields as in `llama-7b:num_hidden_layers=2`.
    #[arg(long, visible_alias = "model", value_name = "NAME")]
    pub modelname: Vec<String>,
    #[command(flatten)]
    pub inputs: OpenInputs,
    #[command(flatten)]
    pub settings: ModelSettings,
    /// Read settings from this TOML file; flags take precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sweep")]
pub struct Sweep {
    #[command(flatten)]
    pub settings: SweepSettings,
    #[command(flatten)]
    pub sampling: Sampling,
    /// Counters to read, by stable or native name; `none` disables counters
    ///
    /// `opcollect doctor` lists the counters. Experiments whose records lack a requested counter are measured again.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub counters: Vec<String>,
    /// Number of parallel builders [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = builder_count())]
    pub builders: Option<usize>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct InputFlags {
    /// Read a model input from NAME=FILE.npy; repeatable
    ///
    /// From an `.npz` archive or a `.safetensors` file, the tensor of that name is read. NAME can also be the number of
    /// the input, counted from 0. Inputs without a file are random, by `--seed`.
    #[arg(long, value_name = "NAME=FILE")]
    pub input: Vec<String>,
    /// Read all model inputs from an `.npz` or `.safetensors` file by name
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Sampling {
    /// Stop sampling at this relative uncertainty of a median [default: 0.01]
    ///
    /// With 0.01, sampling ends when the interval is at most 1 % of the median of a visit.
    #[arg(long, value_name = "PART")]
    pub precision: Option<f64>,
    /// Number of visits that share the measuring time [default: 3]
    ///
    /// Visits run at different times with different memory layouts. Printed intervals predict the median of as many
    /// visits at another time; with one visit there is no interval.
    #[arg(long, value_name = "N")]
    pub visits: Option<u32>,
    /// Offset of the measuring thread's stack in bytes [default: varied over a page]
    ///
    /// A multiple of 16 below 4096, to examine how times depend on the address of the stack.
    #[arg(long, value_name = "BYTES")]
    pub stack_offset: Option<u32>,
}

impl Models {
    pub fn model_names(&self) -> impl Iterator<Item = &String> {
        self.model.iter().chain(&self.modelname)
    }
}

impl Sampling {
    pub fn apply_to_plan(&self, plan: &mut Plan) {
        plan.precision = self.precision.unwrap_or(plan.precision);
        plan.visits = self.visits.unwrap_or(plan.visits);
        plan.stack_offset_bytes = self.stack_offset.or(plan.stack_offset_bytes);
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct Running {
    #[command(flatten)]
    pub sampling: Sampling,
    #[command(flatten)]
    pub given: InputFlags,
    /// Write each output to a NumPy file in this folder
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ModelRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub boards: BoardFlags,
    /// Number of threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub running: Running,
    /// Store for a record of kind `network`, created if absent
    ///
    /// Each run adds one attempt.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Run operators concurrently by this plan, which `oppredict plan` wrote
    ///
    /// The plan must be for this model, machine and number of threads. A GPU needs a plan without a machine, and runs
    /// each group on its own stream.
    #[arg(long, value_name = "FILE", conflicts_with = "parallel")]
    pub plan: Option<PathBuf>,
    /// Run operators concurrently by a rule, without a plan
    #[arg(long, value_parser = choice_parser::<Parallel>(), value_name = "TYPE")]
    pub parallel: Option<Parallel>,
    /// Skip the comparison with the reference, which is slow for large models
    #[arg(long)]
    pub no_check: bool,
    #[command(flatten)]
    pub exclusive: ExclusiveUse,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

impl InputFlags {
    pub fn input_files(&self) -> engine::input_files::InputFiles {
        engine::input_files::InputFiles { input: self.input.clone(), inputs: self.inputs.clone() }
    }
}

impl Measuring {
    pub fn repeat_options(&self) -> engine::repeat::RepeatOptions<'_> {
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
    pub fn of_run(threads: Option<usize>, seed: Option<u64>, sampling: &Sampling) -> Sweep {
        let settings = SweepSettings { threads: threads.map(|count| vec![count]), seed, ..SweepSettings::default() };
        Sweep { settings, sampling: sampling.clone(), ..Sweep::default() }
    }
}

/// Parses a number of parallel builders.
pub fn builder_count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}
