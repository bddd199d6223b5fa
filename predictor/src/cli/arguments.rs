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
}

/// How to evaluate.
#[derive(Clone, Debug, Args)]
pub struct Eval {
    /// What to learn from.
    #[command(flatten)]
    pub data: Data,
    /// What is held out: P1 shapes, P3 devices
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
