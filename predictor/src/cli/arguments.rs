//! The command line: what may be typed.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Predict operator times from a dataset, and say how sure the prediction is.
#[derive(Debug, Parser)]
#[command(name = "oppredict", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure how well predictors do on data they have not seen
    Eval(Eval),
    /// Learn from data and keep the predictor in a file
    Train(Train),
    /// Predict the time of operators or of whole models
    Predict(Predict),
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
    /// Of records, the one kind of time that is taken
    #[arg(long, default_value = "measured", value_name = "WORD")]
    pub source: String,
    /// Of records, the largest spread (standard deviation over mean) that is taken
    #[arg(long, default_value_t = 0.05, value_name = "FRACTION")]
    pub max_cv: f64,
    /// Of records, take those of all TVM versions, not only of the most frequent one
    #[arg(long)]
    pub all_versions: bool,
}

/// How to evaluate.
#[derive(Clone, Debug, Args)]
pub struct Eval {
    /// What to learn from.
    #[command(flatten)]
    pub data: Data,
    /// What is held out: P0 nothing (repeats), P1 shapes, P1x the largest shapes, P2 models, P2f families of models,
    /// P3 devices, P4 devices but for a few times, P5 shapes, scored by the order of schedules
    #[arg(long, default_value = "P1", value_name = "NAME")]
    pub protocol: String,
    /// Learners beside each other, separated by commas
    #[arg(long, default_value = "ours,xgboost,forest,linear,neighbours,median,roofline", value_delimiter = ',')]
    pub learners: Vec<String>,
    /// How many divisions of the data, one per seed
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Parts that groups are divided into; each is held out once
    #[arg(long, default_value_t = 5)]
    pub folds: usize,
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
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to predict.
#[derive(Clone, Debug, Args)]
pub struct Predict {
    /// File that `train` wrote
    #[arg(long, value_name = "FILE")]
    pub predictor: PathBuf,
    /// Operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`, or, with --mapping, `bmm:B=8,M=128,N=128,K=64`; repeatable
    #[arg(long, value_name = "TEXT")]
    pub op: Vec<String>,
    /// Neural network of the zoo, whose operators are added up; repeatable
    #[arg(long, value_name = "NAME")]
    pub model: Vec<String>,
    /// Batch size of --model
    #[arg(long, default_value_t = 1)]
    pub batchsize: i64,
    /// Mapping whose operators and devices can be asked about
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Device; may be left out where the predictor learned from only one
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Threads the operator may use; all of the device if left out
    #[arg(long)]
    pub threads: Option<u32>,
    /// Knob of the schedule, such as `tile_c=8`; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub knob: Vec<String>,
    /// Answer questions outside of what was learned, and say so
    #[arg(long)]
    pub extrapolate: bool,
    /// End with one JSON document
    #[arg(long)]
    pub json: bool,
}
