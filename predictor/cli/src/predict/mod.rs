//! The command `oppredict predict`.

mod schedules;
mod table;
mod texts;

use crate::kernels::{self, KernelQuestion};
use crate::language_models::{self, ServerFlags};
use crate::loading::read_predictor;
use crate::options::{PredictorFlags, model_source, parse_not_negative, reader_options, refuse_flags, sequence_length};
use crate::{DONE, DONE_WITH_LOSSES, name_extrapolate_flag, print_json, print_text};
use clap::Args;
use learn::levels::LEVELS;
use learn::predictor::{Basis, MOST_THREADS};
use predictor::answers::{Conditions, NetworkAnswer, lists_kernels, predict_network, predict_operators};
use predictor::origin::Origin;
use predictor::queries::{self, ModelSource, NetworkQuestion, Operator, Run, Setting};
use predictor::{Error, Result};
use readers::inputs::OpenInputs;
use report::terminal::print_notes;
use samples::table::{Table, read_table};
use serde_json::json;
use serving::architecture::Architecture;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub const PREDICT_EXAMPLES: &str = "\
Examples:
  oppredict predict resnet-18
  oppredict predict net.onnx matmul:m=512,n=512,k=512 --threads 1
  oppredict predict --predictor cpu.opp --op conv2d:ci=64,hw=56,co=64,k=3,p=1 --threads 2
  oppredict predict --predictor cpu.opp --model resnet-18 --batchsize 4 --threads 1
  oppredict predict --predictor cpu.opp --modelsource transformers --model gpt2 --sequence 64
  opcollect build --modelsource simple --modelname dense:m=128,n=512,k=512 --schedules 64 --out built
  oppredict predict --op dense:m=128,n=512,k=512 --space built/plan.json --best 5
  oppredict predict --op gemm:m=4096,n=4096,k=4096,dtype=fp8 --device h100_sxm
  oppredict predict --op attention_decode:batch=32,context=4096,heads=64,kv_heads=8,head_dim=128 --device b200_sxm
  oppredict predict --model llama-3.1-70b --device h100_sxm --dtype fp8 --tensor-parallel 4 --batch 32 --context 4096";

#[derive(Clone, Debug, Args)]
pub struct Predict {
    #[command(flatten)]
    pub asked: PredictorFlags,
    /// Models and operators, as for `--model` and `--op`
    #[arg(value_name = "MODEL", conflicts_with_all = ["data", "space"])]
    pub named: Vec<String>,
    /// Operator such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`; repeatable
    ///
    /// With --mapping, an operator of the mapping such as `bmm:B=8,M=128,N=128,K=64`.
    #[arg(long, value_name = "TEXT")]
    pub op: Vec<String>,
    /// Neural network, as the sum of its operators; repeatable
    ///
    /// A name of the zoo such as `resnet-18` or `resnet-18:hw=160`, or a file.
    #[arg(long, visible_alias = "modelname", value_name = "NAME")]
    pub model: Vec<String>,
    /// Source of models [default: derived from their names]
    #[arg(long, value_parser = model_source(), value_name = "SOURCE")]
    pub modelsource: Option<ModelSource>,
    #[command(flatten)]
    pub inputs: OpenInputs,
    /// Sequence length of a transformer, in tokens [default: 128]
    #[arg(long, value_name = "N")]
    pub sequence: Option<i64>,
    /// CSV table of operators to predict, one per row
    ///
    /// Columns: `operator`, `device`, `threads`, `knob.NAME`, or those of --mapping. Tables of language-model kernels
    /// have `operator` and `device`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["op", "model", "space"])]
    pub data: Option<PathBuf>,
    /// Rank the schedules of a space for --op
    ///
    /// FILE is the output of `opcollect space --sample N --json`, or the `plan.json` of `opcollect build`, which
    /// contains code features.
    #[arg(long, value_name = "FILE", requires = "op")]
    pub space: Option<PathBuf>,
    /// Number of schedules of --space to show
    #[arg(long, default_value = "10", value_name = "COUNT", requires = "space")]
    pub best: NonZeroUsize,
    /// Batch size of --model; for language models on GPUs, concurrent requests
    #[arg(long, visible_alias = "batch", default_value_t = 1, value_name = "N")]
    pub batchsize: i64,
    /// Overhead of the framework per operator, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "TIME", value_parser = parse_not_negative)]
    pub dispatch_us: f64,
    /// Share of the framework's overhead that overlaps with execution, 0 to 1
    ///
    /// 0: the framework awaits each operator, as on a CPU. 1: its launch queue is always full.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub overlap: f64,
    /// TOML file that maps operators and devices of another project's table
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Device [default: that of the predictor, if it has only one]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Power limit of the device in watts, for kernels of language models
    #[arg(long, value_name = "WATTS")]
    pub power_limit: Option<f64>,
    /// Number of threads [default: all of the device, or the most in the training data]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub threads: Option<u32>,
    /// Knob of the schedule, such as `tile_c=8`; repeatable
    ///
    /// Other knobs are those of the default schedule.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "model")]
    pub knob: Vec<String>,
    /// Level of the intervals in percent: 50, 80, 90 or 95
    #[arg(long, default_value_t = 90, value_name = "PERCENT", value_parser = parse_level)]
    pub level: u8,
    /// Also predict outside of the training range, with a note
    ///
    /// Operators of --model are always predicted.
    #[arg(long)]
    pub extrapolate: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerFlags,
}

pub fn run(predict: &Predict) -> Result<u8> {
    let mut predict = predict.clone();
    let is_sourced = predict.modelsource.is_some();
    let is_operator = |text: &String| !is_sourced && (queries::is_operator(text) || serving::text::is_kernel(text));
    let (operators, models): (Vec<String>, Vec<String>) =
        std::mem::take(&mut predict.named).into_iter().partition(is_operator);
    predict.op.extend(operators);
    predict.model.extend(models);
    // A folder is the same question as the configuration in it, unless only the zoo can read that.
    let has_no_source =
        |name: &String| !is_sourced && (!queries::is_network(name) || models::configuration::is_folder(name));
    // A file of another format is read as a configuration, because its error is more specific than that of the zoo.
    for name in predict.model.iter().filter(|name| has_no_source(name) && Path::new(name).is_file()) {
        Architecture::load_architecture(name)?;
    }
    // Unknown names on GPUs of language models are most likely misspelt language models.
    let is_on_gpu = predict.device.as_deref().is_some_and(|device| serving::device::find_device(device).is_ok());
    for name in predict.model.iter().filter(|name| is_on_gpu && has_no_source(name)) {
        Architecture::load_architecture(name)?;
    }
    let is_language_model = |name: &String| has_no_source(name) && Architecture::load_architecture(name).is_ok();
    let are_servers = predict.server.is_given() || predict.model.iter().any(is_language_model);
    let is_server = are_servers && predict.op.is_empty() && !predict.model.is_empty();
    let table = predict.data.as_deref().map(read_table).transpose()?;
    let has_kernels = predict.op.iter().any(|text| serving::text::is_kernel(text));
    let is_kernel = predict.mapping.is_none() && (has_kernels || table.as_ref().is_some_and(lists_kernels));
    predict.refuse_unused(is_server, is_kernel)?;
    if (is_server || is_kernel) && predict.level != 90 {
        return Err(Error::Query(
            "--level does not apply to language models, which have 90 % intervals, or to kernels, whose --json output has all levels"
                .to_owned(),
        ));
    }
    if is_server {
        let question =
            |model: &String| predict.server.server_question(model, predict.device.as_deref(), predict.batchsize);
        let questions = predict.model.iter().map(question).collect::<Result<Vec<_>>>()?;
        return language_models::predict_servers(&questions, predict.asked.predictor.as_deref(), predict.json);
    }
    let table = table.as_ref().zip(predict.data.as_deref());
    if let (true, Some(table)) = (is_kernel, table) {
        return table::predict_kernel_table(table, &predict);
    }
    if is_kernel {
        let question = KernelQuestion {
            kernels: &predict.op,
            device: predict.device.as_deref(),
            power_limit: predict.power_limit,
            predictor: predict.asked.predictor.as_deref(),
        };
        return kernels::run_predict(&question, predict.json);
    }
    answer_query(&predict, table)
}

impl Predict {
    /// Refuses flags that would be ignored.
    fn refuse_unused(&self, is_server: bool, is_kernel: bool) -> Result<()> {
        let for_models = [
            ("--batchsize", self.batchsize != 1),
            ("--dispatch-us", self.dispatch_us != 0.0),
            ("--overlap", self.overlap != 0.0),
            ("--sequence", self.sequence.is_some()),
            ("--modelsource", self.modelsource.is_some()),
            ("--shape, --bind and --skip-unsupported", self.inputs.is_given()),
        ];
        let for_predictors = [
            ("--threads", self.threads.is_some()),
            ("--knob", !self.knob.is_empty()),
            ("--extrapolate", self.extrapolate),
            ("--calibration", self.asked.calibration.is_some()),
        ];
        let of_servers =
            ("--dtype, --tensor-parallel, --input-tokens and other flags of servers", self.server.is_given());
        let power_limit = ("--power-limit", self.power_limit.is_some());
        let space = ("--space", self.space.is_some());
        if is_server {
            let own = [power_limit, space, ("--mapping", self.mapping.is_some())];
            let unused = [&for_models[1..], &for_predictors, &own];
            return refuse_flags("language models", &unused.concat());
        }
        if is_kernel {
            let own = [space, ("--model", !self.model.is_empty()), of_servers];
            let unused = [&for_models[..], &for_predictors, &own];
            let subject = "kernels, whose text states all, as in `gemm:m=64,n=4096,k=4096,dtype=fp8`";
            return refuse_flags(subject, &unused.concat());
        }
        refuse_flags(
            "this question; servers are predicted for --model alone, and power limits for kernels of language models",
            &[of_servers, power_limit],
        )?;
        match self.model.is_empty() {
            true => refuse_flags("operators alone, only with a model", &for_models),
            false => Ok(()),
        }
    }
}

/// Returns the questions about the models.
fn network_questions<'a>(predict: &'a Predict, options: &'a readers::Options) -> Result<Vec<NetworkQuestion<'a>>> {
    let source = |name: &String| ModelSource::infer_source(predict.modelsource, name);
    let tokens = sequence_length(predict.sequence, predict.model.iter().map(source))?;
    let questions = predict.model.iter().map(|name| NetworkQuestion {
        source: source(name),
        name,
        batch: predict.batchsize,
        tokens,
        options: Some(options),
    });
    Ok(questions.collect())
}

fn answer_query(predict: &Predict, table: Option<(&Table, &Path)>) -> Result<u8> {
    let options = reader_options(&predict.inputs)?;
    let questions = network_questions(predict, &options)?;
    let (predictor, mapping) = read_predictor(&predict.asked, predict.device.as_deref(), predict.mapping.as_deref())?;
    if let Some(table) = table {
        return table::predict_table(&predictor, table, mapping.as_ref(), predict);
    }
    if let Some(path) = &predict.space {
        return schedules::print_schedules(&predictor, path, predict);
    }
    if predict.op.is_empty() && predict.model.is_empty() {
        return Err(Error::Query(
            "nothing to predict: give --model, --op or --data, as in `oppredict predict resnet-18`".to_owned(),
        ));
    }
    let conditions = Conditions::new(&predictor, read_setting(predict)?)?;
    let operators: Vec<Operator> =
        predict.op.iter().map(|text| queries::parse_operator(text, mapping.as_ref())).collect::<Result<_>>()?;
    let (predictions, refused) = predict_operators(&conditions, operators);
    if let (true, true, Some(first)) = (predictions.is_empty(), predict.model.is_empty(), refused.first()) {
        return Err(Error::Query(first.reason.clone()));
    }
    let run = Run { dispatch_ns: 1e3 * predict.dispatch_us, overlap: predict.overlap };
    if !run.is_sound() {
        return Err(Error::Query(
            "--dispatch-us must be at most 1000000, a second, and --overlap must be between 0 and 1".to_owned(),
        ));
    }
    if !predictions.is_empty() {
        print_text(
            predict.json,
            &format!(
                "{}\n{}",
                texts::operator_table(&predictions, predict.level),
                texts::on_threads(&conditions.threads)
            ),
        )?;
    }
    print_notes("warning", refused.iter().map(|one| name_extrapolate_flag(&one.reason)));
    let networks = questions
        .iter()
        .map(|question| print_network(question, &conditions, &run, predict))
        .collect::<Result<Vec<_>>>()?;
    let has_bounds = networks.iter().any(|network| network.total.bounds_ns > 0.0)
        || predictions.iter().any(|one| one.prediction.basis == Basis::Bound);
    let has_skipped = networks.iter().any(|network| !network.left_out.is_empty());
    let has_losses = has_bounds || has_skipped || !refused.is_empty();
    if predict.json {
        let mut document = json!({
            "operators": predictions, "refused": refused, "models": networks, "threads": conditions.threads,
            "learned_from": Origin::from_predictor(&predictor.about),
        });
        if let Some(host) = &predictor.this_host {
            document["this_host"] = json!(host);
        }
        print_json(&document)?;
    }
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

fn print_network(
    question: &NetworkQuestion<'_>,
    conditions: &Conditions<'_>,
    run: &Run,
    predict: &Predict,
) -> Result<NetworkAnswer> {
    let answer = predict_network(conditions, question, run)?;
    let heading = format!("{}, batch {}, {}", question.name, question.batch, texts::on_threads(&conditions.threads));
    print_notes("warning", &answer.left_out);
    let is_empty = answer.layers.is_empty();
    print_notes("warning", is_empty.then(|| format!("`{}` has no operator that takes time", question.name)));
    print_text(predict.json, &texts::network_table(&heading, &answer, run, predict.level))?;
    print_text(predict.json, &texts::held_out_text(answer.held_out.as_ref()))?;
    if let Some(in_place) = &answer.in_place {
        print_text(predict.json, &texts::in_place_text(in_place))?;
    }
    Ok(answer)
}

/// Parses a coverage level of intervals in percent, one of `LEVELS`.
fn parse_level(text: &str) -> std::result::Result<u8, String> {
    let known = || LEVELS.map(|level| level.to_string()).join(", ");
    text.parse().ok().filter(|level| LEVELS.contains(level)).ok_or_else(|| format!("give one of {}", known()))
}

fn read_setting(predict: &Predict) -> Result<Setting> {
    let mut setting = Setting {
        device: predict.device.clone(),
        threads: predict.threads.map(f64::from),
        extrapolate: predict.extrapolate,
        level: (predict.level != 90).then_some(predict.level),
        ..Setting::default()
    };
    setting.set_knobs(&predict.knob)?;
    Ok(setting)
}
