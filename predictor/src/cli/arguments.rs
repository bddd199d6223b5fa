//! The command line: what may be typed.

use crate::queries::ModelSource;
use clap::{Args, Parser, Subcommand};
use samples::records::Policy;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  oppredict predict --model resnet-18
  oppredict train --data opcollect-data --out cpu.opp
  oppredict predict --predictor cpu.opp --model resnet-18 --threads 2
  oppredict predict --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --knob tile_c=8 --json
  oppredict knee --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --html knee.html
  oppredict eval --data opcollect-data --protocol P1 --html errors.html
  oppredict serve --predictor cpu.opp

Exit codes: 0 all done; 1 done, with losses that are named; 2 bad use or input; 3 this machine or installation cannot do it.";

const PREDICT_EXAMPLES: &str = "\
Examples:
  oppredict predict --model resnet-18
  oppredict predict --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --threads 2
  oppredict predict --predictor cpu.opp --model resnet-18 --batchsize 4 --threads 1
  oppredict predict --predictor cpu.opp --modelsource transformers --model gpt2 --sequence 64
  opcollect build --modelsource simple --modelname matmul:m=512,n=512,k=512 --schedules 64 --out built
  oppredict predict --predictor cpu.opp --op matmul:m=512,n=512,k=512 --space built/plan.json --best 5";

const IN_PLACE_EXAMPLES: &str = "\
Examples:
  opcollect profile --modelsource local --modelname resnet-18 --threads 1 --store opcollect-data
  oppredict inplace --data opcollect-data --operators";

const ADAPT_EXAMPLES: &str = "\
Examples:
  oppredict train --data bmm.csv.gz --mapping configs/gpu-ops.toml --out gpu.opp
  oppredict adapt --predictor gpu.opp --data few.csv --mapping with-the-new-device.toml --out new.opp
  oppredict adapt --this-host && oppredict predict --model resnet-18";

const SUGGEST_EXAMPLES: &str = "\
Examples:
  oppredict suggest --predictor gpu.opp --data bmm.csv.gz --mapping configs/gpu-ops.toml --count 20";

const EVAL_EXAMPLES: &str = "\
Examples:
  oppredict eval --data opcollect-data --max-uncertainty 0.01 --learners ours,forest
  oppredict eval --data opcollect-data --protocol P2 --default-only --learners ours --json
  oppredict eval --data bmm.csv.gz --mapping configs/gpu-ops.toml --protocol P3
  oppredict eval --data opcollect-data --gate cpu.opp";

const PLAN_EXAMPLES: &str = "\
Examples:
  opcollect --modelsource local --modelname inception-v3 --schedules 1 --threads 1,2 --store times
  oppredict plan --model inception-v3 --data times --threads 2 --out inception.plan --html lanes.html
  opcollect model run --modelsource local --modelname inception-v3 --plan inception.plan";

const PLACE_EXAMPLES: &str = "\
Examples:
  oppredict place --times times.csv --off 10
  oppredict place --model googlenet --predictor gpus.opp --device A100 --device T4 --link-us 10 --link-gb-per-s 12";

const INTERFERENCE_EXAMPLES: &str = "\
Examples:
  opcollect corun --config configs/corun.toml --store runs/corun
  oppredict interference --data runs/corun --html slowdowns.html";

const COTUNE_EXAMPLES: &str = "\
Examples:
  opcollect --modelsource simple --modelname matmul:m=512,n=512,k=512 --threads 1,2 --store times
  opcollect --modelsource simple --modelname softmax:shape=64x1000 --threads 1,2 --store times
  oppredict cotune --op matmul:m=512,n=512,k=512 --op softmax:shape=64x1000 --data times --threads 2";

/// Predict operator times from a dataset, and say how sure the prediction is.
#[derive(Debug, Parser)]
#[command(name = "oppredict", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure how well predictors do on data they have not seen
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(Eval),
    /// Learn from data and keep the predictor in a file
    Train(Train),
    /// Correct a predictor for another device by a few of its measurements
    #[command(after_help = ADAPT_EXAMPLES)]
    Adapt(Adapt),
    /// Say which shapes to measure first on a device that was not learned from
    #[command(after_help = SUGGEST_EXAMPLES)]
    Suggest(Suggest),
    /// Predict the time of operators or of whole models
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(Predict),
    /// Say what the sum of a model's operators misses: the same operators in their places and alone
    #[command(name = "inplace", after_help = IN_PLACE_EXAMPLES)]
    InPlace(InPlaceOf),
    /// Show how features and utilisation go together
    Correlate(Correlate),
    /// Show why an answer is as it is, or which features matter at all
    Explain(Explain),
    /// Find where more threads, or larger tiles, stop to pay
    Knee(KneeOf),
    /// Say how a model is best run: one operator after the other or side by side, and how long it takes
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanOf),
    /// Cut a model into stages of groups that run side by side
    #[command(after_help = PLAN_EXAMPLES)]
    Stages(PlanOf),
    /// Put operators on devices, with a certificate that none wants to move
    #[command(after_help = PLACE_EXAMPLES)]
    Place(PlaceOf),
    /// Tell what operators cost each other, and how far off that is for operators that were held out
    ///
    /// What `opcollect corun` recorded teaches weights; rules that know nothing of it stand in the same table.
    #[command(after_help = INTERFERENCE_EXAMPLES)]
    Interference(InterferenceOf),
    /// Choose schedules and threads of operators that run together
    #[command(after_help = COTUNE_EXAMPLES)]
    Cotune(CotuneOf),
    /// Answer questions over HTTP on this machine
    Serve(Serve),
    /// Write a predictor's trees as XGBoost's JSON, or take them from there
    Xgboost(Xgboost),
    /// List the features, their units and sources
    Features,
    /// Print a script that completes commands in a shell
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// What to learn from.
#[derive(Clone, Debug, Args)]
pub struct Data {
    /// File of records or table of others, or a store; repeatable
    #[arg(long, required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// TOML file that says what the columns of a foreign table mean
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Which records are taken.
    #[command(flatten)]
    pub filter: Filter,
}

/// Which records are taken; the same for every command.
#[derive(Clone, Debug, Args)]
pub struct Filter {
    /// Of records, the one kind of time that is taken
    #[arg(long, default_value = "measured", value_name = "WORD", requires = "data")]
    pub source: String,
    /// Of records, those whose median is known to this share of it (half the width of its 95 % interval); `inf` takes all, those
    /// of which it is not known, too
    #[arg(long, default_value_t = Policy::default().max_uncertainty, value_name = "SHARE", value_parser = share, requires = "data")]
    pub max_uncertainty: f64,
    /// Of records, those whose single runs are spread by at most this (standard deviation over mean) [default: any]
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "data")]
    pub max_cv: Option<f64>,
    /// Of records, take those of all TVM versions and of older code, not only of the most frequent version and the newest code
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Of records, those with this value of a column that no feature tells, such as `cache_state=cold` or
    /// `clock_policy=powersave`; repeatable [default: of each device the values that most of its records share]
    #[arg(long, value_name = "COLUMN=VALUE", requires = "data")]
    pub setting: Vec<String>,
    /// Of records, take those of default schedules alone
    #[arg(long, requires = "data")]
    pub default_only: bool,
}

/// A positive share; `inf` is no limit.
fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if number > 0.0 { Ok(number) } else { Err("it must be larger than 0; `inf` is no limit".to_owned()) }
}

/// What a split must save.
fn saved(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if number >= 0.0 && number.is_finite() { Ok(number) } else { Err("give a number of at least 0".to_owned()) }
}

/// How to evaluate.
#[derive(Clone, Debug, Args)]
pub struct Eval {
    /// What to learn from.
    #[command(flatten)]
    pub data: Data,
    /// What is held out: P0 nothing (repeats), P1 shapes, P1x the largest shapes, P1m shapes as models have
    /// them, P2 models, P2f families of models, P3 devices, P4 devices but for a few times, P5 shapes, scored by the order of schedules
    #[arg(long, default_value = "P1", value_name = "NAME")]
    pub protocol: String,
    /// Learners beside each other, separated by commas
    #[arg(
        long,
        default_value = "ours,xgboost,forest,linear,lasso,svr,neighbours,median,roofline",
        value_delimiter = ','
    )]
    pub learners: Vec<String>,
    /// How many divisions of the data, one per seed
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Parts that shapes, networks or families are divided into; each is held out once [default: 5 parts of shapes, every
    /// network or family alone]
    #[arg(long)]
    pub folds: Option<usize>,
    /// Find intervals, too, and how often they hold (takes about three times as long)
    #[arg(long)]
    pub intervals: bool,
    /// Score only rows with at most this spread (CV), such as 0.03; all are learned from
    #[arg(long, value_name = "SHARE")]
    pub score_cv: Option<f64>,
    /// Score only experiments that were measured several times and are at most this far from the middle one, such as 0.03;
    /// all are learned from
    #[arg(long, value_name = "SHARE")]
    pub score_apart: Option<f64>,
    /// Score only default schedules; all are learned from
    #[arg(long)]
    pub score_default: bool,
    /// Score only operators that stand in a neural network, not their variations; learn from all
    #[arg(long)]
    pub score_networks: bool,
    /// What may be known of schedules: `sizes` (they are the default ones), their `knobs`, or figures of their `code`,
    /// which take a build and no run
    #[arg(long, default_value = "code", value_name = "NAME")]
    pub know: String,
    /// What a split of our trees must save of the squared error of logarithms, as `train` has it
    #[arg(long, default_value_t = 0.0, value_name = "SAVED", value_parser = saved)]
    pub min_split_loss: f64,
    /// Show how our error falls with the number of shapes learned from (takes about twice as long as ours alone)
    #[arg(long)]
    pub curve: bool,
    /// Fail if an error is worse than in this earlier JSON document, or than the one a file of `train` had on shapes left
    /// aside, by more than its interval
    #[arg(long, value_name = "FILE")]
    pub gate: Option<PathBuf>,
    /// Write a page for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How to learn.
#[derive(Clone, Debug, Args)]
pub struct Train {
    /// What to learn from.
    #[command(flatten)]
    pub data: Data,
    /// Where to write the predictor
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Search for how the trees of each operator are best grown (takes about seven times as long)
    #[arg(long)]
    pub tune: bool,
    /// What a split of a tree must save of the squared error of logarithms; more makes the file smaller and answers a little worse
    #[arg(long, default_value_t = 0.0, value_name = "SAVED", value_parser = saved)]
    pub min_split_loss: f64,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How to correct.
#[derive(Clone, Debug, Args)]
pub struct Adapt {
    /// File that `train` wrote; with --this-host the one that came with the program is the default
    #[arg(long, value_name = "FILE", required_unless_present = "this_host")]
    pub predictor: Option<PathBuf>,
    /// Measure ten fixed operators on this machine with `opcollect`, about 20 seconds, and keep how far it is from where the
    /// predictor learned; `predict` then speaks of this machine
    #[arg(long, conflicts_with = "data")]
    pub this_host: bool,
    /// File of records or table of others, or a store, measured on the device; rows of devices that were learned from are not
    /// looked at; repeatable
    #[arg(long, required_unless_present = "this_host", value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// TOML file that says what the columns of a foreign table mean
    #[arg(long, value_name = "FILE", requires = "data")]
    pub mapping: Option<PathBuf>,
    /// Which records are taken.
    #[command(flatten)]
    pub filter: Filter,
    /// Where to write the corrected predictor; with --this-host the calibration, by default below the user's cache
    #[arg(long, value_name = "FILE", required_unless_present = "this_host")]
    pub out: Option<PathBuf>,
    /// Seconds that --this-host may take
    #[arg(long, default_value_t = 180, value_name = "SECONDS", requires = "this_host", value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub seconds: u64,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct Suggest {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// The shapes to choose among; their times are not looked at
    #[command(flatten)]
    pub data: Data,
    /// Shapes of each operator
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    pub count: std::num::NonZeroUsize,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Trees to or from XGBoost's JSON.
#[derive(Clone, Debug, Args)]
pub struct Xgboost {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// Folder to write the trees into: `OPERATOR.known.0.json`, and `OPERATOR.transfer.0.json` for devices never seen
    #[arg(long, value_name = "FOLDER", required_unless_present = "read")]
    pub write: Option<PathBuf>,
    /// Folder to take trees from; operators without files keep theirs, those with files lose their intervals
    #[arg(long, value_name = "FOLDER", requires = "out", conflicts_with = "write")]
    pub read: Option<PathBuf>,
    /// Where to write the predictor with the trees that were read
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to predict.
#[derive(Clone, Debug, Args)]
pub struct Predict {
    /// File that `train` wrote [default: the one for CPUs that came with the program]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// How far this machine is from where the predictor learned: the file that `adapt --this-host --out` wrote [default: what
    /// `adapt --this-host` kept of this machine, for the predictor that came with the program]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "space", "device", "mapping"])]
    pub calibration: Option<PathBuf>,
    /// Operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`, or, with --mapping, `bmm:B=8,M=128,N=128,K=64`; repeatable
    #[arg(long, value_name = "TEXT")]
    pub op: Vec<String>,
    /// Neural network, whose operators are added up: a name of the zoo such as `resnet-18` or `resnet-18:hw=160`, or what
    /// --modelsource says; repeatable
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,
    /// Where --model comes from: the zoo, configurations of transformers, or a file
    #[arg(long, value_enum, default_value = "local", value_name = "SOURCE", requires = "model")]
    pub modelsource: ModelSource,
    /// Tokens of a transformer's sequence
    #[arg(long, default_value_t = 128, value_name = "N", requires = "model")]
    pub sequence: i64,
    /// CSV table whose rows are all answered: columns `operator`, `device`, `threads`, `knob.NAME`, or those of --mapping
    #[arg(long, value_name = "FILE", conflicts_with_all = ["op", "model", "space"])]
    pub data: Option<PathBuf>,
    /// Rank schedules of --op: what `opcollect space --sample N --json` printed, or the `plan.json` of `opcollect build`, whose
    /// code is known
    #[arg(long, value_name = "FILE", requires = "op")]
    pub space: Option<PathBuf>,
    /// Schedules of --space that are shown
    #[arg(long, default_value_t = 10, value_name = "COUNT", requires = "space")]
    pub best: usize,
    /// Batch size of --model
    #[arg(long, default_value_t = 1)]
    pub batchsize: i64,
    /// Microseconds that whatever runs the whole model takes for each operator beside the operator's own time
    #[arg(long, default_value_t = 0.0, value_name = "TIME", requires = "model")]
    pub dispatch_us: f64,
    /// Share of starting operators that is hidden behind those that run, from 0 (each is waited for, as on a CPU) to 1 (a
    /// queue that is always full)
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", requires = "model")]
    pub overlap: f64,
    /// Mapping whose operators and devices can be asked about
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Device; may be left out where the predictor learned from only one
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Threads the operator may use [default: all of the device, or the most that were learned from, and said with the answer]
    #[arg(long)]
    pub threads: Option<u32>,
    /// Knob of the schedule, such as `tile_c=8`; repeatable. All others are as in the default schedule
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "model")]
    pub knob: Vec<String>,
    /// Answer questions outside of what was learned, and say so; operators of --model are always answered
    #[arg(long)]
    pub extrapolate: bool,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Which networks to look at.
#[derive(Clone, Debug, Args)]
pub struct InPlaceOf {
    /// File of records or store with what `opcollect profile --store` wrote; repeatable
    #[arg(long, required = true, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// Which records are taken.
    #[command(flatten)]
    pub filter: Filter,
    /// Show each operator, too
    #[arg(long)]
    pub operators: bool,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to correlate.
#[derive(Clone, Debug, Args)]
pub struct Correlate {
    /// What to look at.
    #[command(flatten)]
    pub data: Data,
    /// Write all of it as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a heat map for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to explain.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE", required_unless_present = "data")]
    pub predictor: Option<PathBuf>,
    /// Operator whose answer is taken apart
    #[arg(long, value_name = "TEXT", requires = "predictor")]
    pub op: Option<String>,
    /// Measured data, repeatable. With --op: the nearest rows, and with --vary the effect over all rows. With --predictor
    /// alone: what each feature does over many rows. Alone: what mixing up each feature costs on held-out shapes
    #[arg(long, value_name = "PATH")]
    pub data: Vec<PathBuf>,
    /// Feature that is varied over the range it was learned from, all else unchanged
    #[arg(long, value_name = "FEATURE", requires = "op")]
    pub vary: Option<String>,
    /// Mapping of the data and of the operator
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Which records are taken.
    #[command(flatten)]
    pub filter: Filter,
    /// Device; may be left out where the predictor learned from only one
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Threads the operator may use
    #[arg(long)]
    pub threads: Option<u32>,
    /// Knob of the schedule, such as `tile_c=8`; repeatable. All others are as in the default schedule
    #[arg(long, value_name = "NAME=VALUE", requires = "op")]
    pub knob: Vec<String>,
    /// Write what each feature does over many rows for the browser
    #[arg(long, value_name = "FILE", requires_all = ["predictor", "data"], conflicts_with = "op")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where to look for a knee.
#[derive(Clone, Debug, Args)]
pub struct KneeOf {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// Operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`
    #[arg(long, value_name = "TEXT")]
    pub op: String,
    /// What the curve goes over: `threads` or a knob such as `tile_x`; repeatable
    #[arg(long, default_value = "threads", value_name = "NAME")]
    pub over: Vec<String>,
    /// The curve over threads goes from one to this many; all that the predictor learned from if left out
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub most_threads: Option<u32>,
    /// Threads of curves over knobs; all of the device if left out
    #[arg(long, value_name = "COUNT")]
    pub threads: Option<u32>,
    /// Knob that is held fixed, such as `tile_c=8`; repeatable. All others are as in the default schedule
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "probe")]
    pub knob: Vec<String>,
    /// Device; may be left out where the predictor learned from only one
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Measure at most three thread counts on this machine by `opcollect`, and bend the curve through them
    #[arg(long)]
    pub probe: bool,
    /// Program that measures; by default the one beside this program, else the one on the search path
    #[arg(long, value_name = "FILE", requires = "probe")]
    pub opcollect: Option<PathBuf>,
    /// Seconds that one measurement may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS", requires = "probe")]
    pub deadline: u64,
    /// Answer outside of what was learned, and say so
    #[arg(long)]
    pub extrapolate: bool,
    /// Write the curves for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where times of operators come from.
#[derive(Clone, Debug, Args)]
pub struct TimesOf {
    /// Store with records of this machine, at every number of threads up to --threads; what was measured is not predicted
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// File that `train` wrote, for what was not measured
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Class of hosts, where the store has several; without --data, the predictor's device
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use times of --data with older TVM versions, code revisions and other clock policies
    #[arg(long, requires = "data")]
    pub all_versions: bool,
    /// Device of the predictor beside --data; may be left out where it learned from only one
    #[arg(long, value_name = "NAME", requires_all = ["predictor", "data"])]
    pub device: Option<String>,
}

/// What to plan.
#[derive(Clone, Debug, Args)]
pub struct PlanOf {
    /// Neural network: a name of the zoo such as `inception-v3`, or what --modelsource says
    #[arg(long, value_name = "NAME")]
    pub model: String,
    /// Where --model comes from: the zoo, configurations of transformers, or a file
    #[arg(long, value_enum, default_value = "local", value_name = "SOURCE")]
    pub modelsource: ModelSource,
    /// Tokens of a transformer's sequence
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub sequence: i64,
    /// Batch size
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batchsize: i64,
    /// Where times come from.
    #[command(flatten)]
    pub times: TimesOf,
    /// Cores to plan for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Microseconds that starting groups side by side and waiting for them costs [default: 1]
    #[arg(long, value_name = "TIME")]
    pub barrier_us: Option<f64>,
    /// Write the plan for `opcollect model run --plan`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the lanes and what each operator takes on other numbers of cores for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw beside them what `opcollect model run --plan FILE --json` printed into this file
    #[arg(long, value_name = "FILE", requires = "html")]
    pub measured: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to place.
#[derive(Clone, Debug, Args)]
pub struct PlaceOf {
    /// Table of times in nanoseconds: `operator,DEVICE,DEVICE…`, an operator a line, whoever measured or simulated them
    #[arg(long = "times", value_name = "FILE", conflicts_with_all = ["model", "predictor"])]
    pub table: Option<PathBuf>,
    /// Neural network whose operators wait for each other
    #[arg(long, value_name = "NAME", requires = "predictor")]
    pub model: Option<String>,
    /// Where --model comes from: the zoo, configurations of transformers, or a file
    #[arg(long, value_enum, default_value = "local", value_name = "SOURCE")]
    pub modelsource: ModelSource,
    /// Tokens of a transformer's sequence
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub sequence: i64,
    /// Batch size
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batchsize: i64,
    /// File that `train` wrote, from records of all devices
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Device of the predictor, repeatable; all of them if left out
    #[arg(long, value_name = "NAME")]
    pub device: Vec<String>,
    /// Microseconds that any transfer between two devices takes
    #[arg(long, default_value_t = 0.0, value_name = "TIME")]
    pub link_us: f64,
    /// Gigabytes per second between two devices
    #[arg(long, default_value_t = 10.0, value_name = "RATE")]
    pub link_gb_per_s: f64,
    /// Power of a device at work, as DEVICE=WATTS; repeatable, for all devices or none
    #[arg(long, value_name = "DEVICE=WATTS")]
    pub watts: Vec<String>,
    /// Microseconds that a joule is worth
    #[arg(long, default_value_t = 0.0, value_name = "PRICE", requires = "watts")]
    pub price_us_per_j: f64,
    /// Percent that any time may be off, either way; says what is promised then
    #[arg(long, value_name = "PERCENT")]
    pub off: Option<f64>,
    /// Write what each operator pays on each device for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Whose slowdowns.
#[derive(Clone, Debug, Args)]
pub struct InterferenceOf {
    /// Store with records of operators beside each other
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Class of hosts, where the store has several
    #[arg(long, value_name = "NAME")]
    pub hardware: Option<String>,
    /// Also use records with older TVM versions, code revisions and other clock policies
    #[arg(long)]
    pub all_versions: bool,
    /// Seed of what is held out together
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Write a heat map of all slowdowns for the browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What runs together.
#[derive(Clone, Debug, Args)]
pub struct CotuneOf {
    /// Operator such as `matmul:m=512,n=512,k=512`; two to four
    #[arg(long, value_name = "TEXT", required = true)]
    pub op: Vec<String>,
    /// Where times come from.
    #[command(flatten)]
    pub times: TimesOf,
    /// Cores that they share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Schedules of each operator that are considered, the fastest on all cores first
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub schedules: usize,
    /// Run the choice and one after the other in turns, keep the faster, and say what the choice would have cost
    #[arg(long)]
    pub measure: bool,
    /// Rounds of that
    #[arg(long, default_value_t = 15, value_name = "N", requires = "measure", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Program that measures; by default the one beside this program, else the one on the search path
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub opcollect: Option<PathBuf>,
    /// Seconds that measuring may take
    #[arg(long, default_value_t = 300, value_name = "SECONDS", requires = "measure")]
    pub deadline: u64,
    /// Write both ways for `opcollect race`
    #[arg(long, value_name = "FILE")]
    pub choice: Option<PathBuf>,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where to listen.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// File that `train` wrote [default: the one for CPUs that came with the program, which speaks of where it learned]
    #[arg(long, value_name = "FILE")]
    pub predictor: Option<PathBuf>,
    /// Mapping whose operators and devices can be asked about
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Store whose tasks and best schedules can be asked about at `/tasks` and `/best`; it is read once
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8731", value_name = "ADDRESS")]
    pub address: String,
}
