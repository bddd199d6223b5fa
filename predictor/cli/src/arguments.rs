//! The command line: the commands. Flags of one command lie beside it, shared ones in `options.rs`.

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
  oppredict predict --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --knob tile_c=8 --json
  oppredict knee --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --html knee.html
  oppredict eval --data opcollect-data --protocol P1 --html errors.html
  oppredict serve --predictor cpu.opp

Exit codes: 0 all done; 1 done, with losses that are named; 2 bad use or input; 3 this machine or
installation cannot do it; 4 worse than before, with `eval --gate`.";

/// Predict operator times from a dataset, and say how sure the prediction is.
#[derive(Debug, Parser)]
#[command(name = "oppredict", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Colour tables and messages: `auto` on terminals, unless `NO_COLOR` is set
    #[arg(long, global = true, value_name = "WHEN", value_parser = report::ColorChoice::NAMES, default_value = "auto")]
    pub color: String,
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
    InPlace(InPlaceArguments),
    /// Show how features and utilisation go together
    Correlate(Correlate),
    /// Show why an answer is as it is, or which features matter at all
    Explain(Explain),
    /// Find where more threads, or larger tiles, stop to pay
    Knee(KneeArguments),
    /// Say how a model is best run: one operator after the other or side by side, and how long it takes
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArguments),
    /// Cut a model into stages of groups that run side by side
    #[command(after_help = PLAN_EXAMPLES)]
    Stages(PlanArguments),
    /// Put operators on devices, with a certificate that none wants to move
    #[command(after_help = PLACE_EXAMPLES)]
    Place(PlaceArguments),
    /// Tell what operators cost each other, and how far off that is for operators that were held out
    ///
    /// What `opcollect corun` recorded teaches weights; rules that know nothing of it stand in the same table.
    #[command(after_help = INTERFERENCE_EXAMPLES)]
    Interference(InterferenceArguments),
    /// Choose schedules and threads of operators that run together
    #[command(after_help = COTUNE_EXAMPLES)]
    Cotune(CotuneArguments),
    /// Answer questions over HTTP on this machine
    Serve(Serve),
    /// Write a predictor's trees as XGBoost's JSON, or take them from there
    Xgboost(Xgboost),
    /// List the values of `--device` and what is known of each device
    Devices(Devices),
    /// List the features, their units and sources
    Features,
    /// Print a script that completes commands in a shell
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}
