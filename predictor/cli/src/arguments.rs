//! Commands and global options. Options of one command are in the command's file, shared ones in `options.rs`.

use crate::adapt::{ADAPT_EXAMPLES, Adapt};
use crate::correlate::Correlate;
use crate::cotune::{COTUNE_EXAMPLES, CotuneArguments};
use crate::devices::Devices;
use crate::eval::{EVAL_EXAMPLES, Eval};
use crate::explain::Explain;
use crate::in_place::{IN_PLACE_EXAMPLES, InPlaceArguments};
use crate::interference::{INTERFERENCE_EXAMPLES, InterferenceArguments};
use crate::knee::KneeArguments;
use crate::place::{PLACE_EXAMPLES, PlaceArguments};
use crate::plan::{PLAN_EXAMPLES, PlanArguments};
use crate::predict::{PREDICT_EXAMPLES, Predict};
use crate::serve::Serve;
use crate::suggest::{SUGGEST_EXAMPLES, Suggest};
use crate::train::Train;
use crate::xgboost::Xgboost;
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  oppredict predict --model resnet-18
  oppredict train --data opcollect-data --out cpu.opp
  oppredict predict --predictor cpu.opp --model resnet-18 --threads 2
  oppredict predict --op dense:m=1,n=1000,k=512 --knob tile_c=8 --json
  oppredict knee --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --html knee.html
  oppredict eval --data opcollect-data --protocol P1 --html errors.html
  oppredict serve --predictor cpu.opp

Exit codes:
    0  success
    1  success, with losses that notes name
    2  invalid arguments or input
    3  this machine or installation lacks something that the command needs
    4  an error exceeds that of `eval --gate`";

/// Predict operator times with intervals, from records of `opcollect`.
#[derive(Debug, Parser)]
#[command(name = "oppredict", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Colour of output: `auto` on terminals unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", value_parser = report::ColorChoice::NAMES, default_value = "auto")]
    pub color: String,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the error of predictors on held-out data
    #[command(after_help = EVAL_EXAMPLES)]
    Eval(Eval),
    /// Train a predictor on records and write it to a file
    Train(Train),
    /// Correct a predictor for another device with a few of its measurements
    #[command(after_help = ADAPT_EXAMPLES)]
    Adapt(Adapt),
    /// Suggest which shapes to measure first on a new device
    #[command(after_help = SUGGEST_EXAMPLES)]
    Suggest(Suggest),
    /// Predict the time of operators or whole models
    #[command(after_help = PREDICT_EXAMPLES)]
    Predict(Predict),
    /// Compare operator times in the network with times in isolation
    ///
    /// Reports by how much the sum of isolated times differs from the time of the model.
    #[command(name = "inplace", after_help = IN_PLACE_EXAMPLES)]
    InPlace(InPlaceArguments),
    /// Show correlations between features and utilisation
    Correlate(Correlate),
    /// Explain one prediction, or the effect of features on all predictions
    Explain(Explain),
    /// Find the thread count or knob value beyond which times hardly improve
    Knee(KneeArguments),
    /// Plan which operators of a model run concurrently, and predict the time
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArguments),
    /// Print the stages of the concurrent plan of a model
    #[command(after_help = PLAN_EXAMPLES)]
    Stages(PlanArguments),
    /// Assign operators to devices, with a certificate of stability
    ///
    /// In a stable assignment, no operator gains by moving to another device.
    #[command(after_help = PLACE_EXAMPLES)]
    Place(PlaceArguments),
    /// Predict slowdown under concurrent operators, with held-out errors
    ///
    /// A model fitted to records of `opcollect corun` is compared with simple rules.
    #[command(after_help = INTERFERENCE_EXAMPLES)]
    Interference(InterferenceArguments),
    /// Choose schedules and threads for operators that run concurrently
    #[command(after_help = COTUNE_EXAMPLES)]
    Cotune(CotuneArguments),
    /// Serve predictions over HTTP
    Serve(Serve),
    /// Export or import a predictor's trees as XGBoost JSON
    Xgboost(Xgboost),
    /// List the values of `--device` with their known properties
    Devices(Devices),
    /// List the features with units and sources
    Features,
    /// Print a completion script for a shell
    Completions {
        /// Shell that the script is for
        shell: clap_complete::Shell,
    },
}
