//! `oppredict predict`.

mod calibration;
mod schedules;
mod table;
mod texts;

pub use calibration::describe_distance;

use crate::installation::shipped_predictor;
use crate::loading::read_described;
use crate::options::model_source;
use crate::{DONE, DONE_WITH_LOSSES, print, print_json};
use clap::Args;
use predictor::answers::{Conditions, NetworkAnswer, predict_network, predict_operators};
use predictor::origin::Origin;
use predictor::queries::{self, ModelSource, NetworkQuestion, Operator, Run, Setting};
use predictor::{Error, Result};
use report::terminal::print_notes;
use serde_json::json;
use std::path::PathBuf;

pub const PREDICT_EXAMPLES: &str = "\
Examples:
  oppredict predict --model resnet-18
  oppredict predict --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --threads 2
  oppredict predict --predictor cpu.opp --model resnet-18 --batchsize 4 --threads 1
  oppredict predict --predictor cpu.opp --modelsource transformers --model gpt2 --sequence 64
  opcollect build --modelsource simple --modelname matmul:m=512,n=512,k=512 --schedules 64 --out built
  oppredict predict --predictor cpu.opp --op matmul:m=512,n=512,k=512 --space built/plan.json --best 5";

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
    #[arg(long, value_parser = model_source(), default_value = "local", value_name = "SOURCE", requires = "model")]
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

/// Answers and prints.
pub fn run(predict: &Predict) -> Result<u8> {
    let shipped = || shipped_predictor(predict.device.as_deref(), predict.mapping.is_some());
    let file = predict.predictor.clone().map_or_else(shipped, Ok)?;
    let (predictor, mapping) = read_described(&file, predict.mapping.as_deref())?;
    if let Some(path) = &predict.data {
        return table::run(&predictor, path, mapping.as_ref(), predict);
    }
    if let Some(path) = &predict.space {
        return schedules::run(&predictor, path, predict);
    }
    if predict.op.is_empty() && predict.model.is_empty() {
        return Err(Error::Query("say what to predict: --op, --model or --data".to_owned()));
    }
    let calibration = calibration::find(predict, &predictor)?;
    let conditions = Conditions::new(&predictor, setting(predict)?, calibration.as_ref())?;
    let operators: Vec<Operator> =
        predict.op.iter().map(|text| queries::operator(text, mapping.as_ref())).collect::<Result<_>>()?;
    let (predictions, refused) = predict_operators(&conditions, operators);
    if let (true, true, Some(first)) = (predictions.is_empty(), predict.model.is_empty(), refused.first()) {
        return Err(Error::Query(first.reason.clone()));
    }
    let run = Run { dispatch_ns: 1e3 * predict.dispatch_us, overlap: predict.overlap };
    if !run.is_sound() {
        return Err(Error::Query("--dispatch-us must not be negative, and --overlap lies between 0 and 1".to_owned()));
    }
    if !predictions.is_empty() {
        print(&format!("{}\n{}", texts::operator_table(&predictions), texts::on_threads(&conditions.threads)))?;
    }
    print_notes("warning", refused.iter().map(|one| &one.reason));
    let networks =
        predict.model.iter().map(|name| network(name, &conditions, &run, predict)).collect::<Result<Vec<_>>>()?;
    let has_bounds = networks.iter().any(|network| network.total.bounds_ns > 0.0);
    let has_losses = has_bounds || !refused.is_empty();
    if predict.json {
        let mut document = json!({
            "operators": predictions, "refused": refused, "models": networks, "threads": conditions.threads,
            "learned_from": Origin::of(&predictor.about),
        });
        if let Some(known) = &calibration {
            document["this_host"] =
                json!({ "host_class": known.host_class, "learned_on": known.learned_on, "distance": known.distance() });
        }
        print_json(&document)?;
    }
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// Answers for a whole network and prints.
fn network(name: &str, conditions: &Conditions<'_>, run: &Run, predict: &Predict) -> Result<NetworkAnswer> {
    let Predict { modelsource: source, batchsize: batch, sequence: tokens, .. } = *predict;
    let answer = predict_network(conditions, &NetworkQuestion { source, name, batch, tokens }, run)?;
    let heading = format!("{name}, batch {batch}, {}", texts::on_threads(&conditions.threads));
    print(&texts::network_table(&heading, &answer.layers, &answer.total))?;
    print(&texts::held_out_text(answer.held_out.as_ref()))?;
    if let Some(in_place) = &answer.in_place {
        print(&texts::in_place_text(in_place))?;
    }
    Ok(answer)
}

fn setting(predict: &Predict) -> Result<Setting> {
    let mut setting = Setting {
        device: predict.device.clone(),
        threads: predict.threads.map(f64::from),
        extrapolate: predict.extrapolate,
        ..Setting::default()
    };
    setting.set_knobs(&predict.knob)?;
    Ok(setting)
}
