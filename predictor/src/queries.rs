//! Questions in words: an operator, a whole neural network, or a row of a table, each as sizes that can be predicted.

use crate::error::{Error, Result};
use learn::cross_validation::CrossValidatedError;
use learn::in_place::InPlace;
use learn::predictor::{Basis, Prediction, Predictor, Query};
use models::Fuse;
use samples::features::Work;
use samples::records::work_of;
use samples::schedules::CompleteSchedule;
use samples::table::Mapping;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use zoo::transformers;

/// An operator that can be asked about.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The name the data has for it.
    pub name: String,
    /// The question as a person reads it.
    pub text: String,
    /// Its sizes.
    pub work: Work,
    /// How often it occurs.
    pub count: u64,
}

/// How operators are run.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The device; may be left out where the predictor knows only one.
    pub device: Option<String>,
    /// Threads; if left out as many as [`default_threads`] says.
    pub threads: Option<f64>,
    /// Knobs by the names of their features; those left out are as in the default schedule.
    pub extras: BTreeMap<String, f64>,
    /// Whether questions outside of what was learned are answered.
    pub extrapolate: bool,
}

impl Operator {
    /// The operator as it was learned: under the name and with the sizes of a foreign table, where that has it.
    pub fn as_learned(&self, predictor: &Predictor) -> Operator {
        match predictor.learned_as(&self.name, &self.work) {
            Some((name, work)) => Operator { name, work, ..self.clone() },
            None => self.clone(),
        }
    }
}

/// An operator and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct OperatorPrediction {
    /// The question as a person reads it.
    pub operator: String,
    /// How often it occurs.
    pub count: u64,
    /// The answer.
    #[serde(flatten)]
    pub prediction: Prediction,
}

/// A cell of a table of questions.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing.
    Absent,
    /// A number.
    Number(f64),
    /// A text.
    Word(String),
}

/// The question in a row of named cells: `operator`, `device`, `threads` and `knob.NAME`, or with a mapping its columns.
/// What the row leaves open is taken from the usual setting.
pub fn row(cells: &[(String, Cell)], usual: &Setting, mapping: Option<&Mapping>) -> Result<(Operator, Setting)> {
    let known = mapping.map(Mapping::columns);
    let (operator_column, device_column) = mapping.map_or(("operator", "device"), Mapping::key_columns);
    let mut setting = usual.clone();
    let mut text = None;
    let mut sizes = BTreeMap::new();
    for (name, cell) in cells {
        let wrong = |kind: &str| Error::Query(format!("the column `{name}` should hold {kind}"));
        match (name.as_str(), cell) {
            (_, Cell::Absent) => {}
            (name, Cell::Word(word)) if [operator_column, "operator"].contains(&name) => text = Some(word.as_str()),
            (name, Cell::Word(word)) if [device_column, "device"].contains(&name) => {
                setting.device = Some(word.clone());
            }
            (name, _) if [operator_column, device_column, "operator", "device"].contains(&name) => {
                return Err(wrong("names"));
            }
            ("threads", Cell::Number(number)) => setting.threads = Some(*number),
            ("threads", _) => return Err(wrong("numbers")),
            (name, cell) if name.starts_with("knob.") => setting.set_extra(name, cell),
            (name, cell) if known.as_ref().is_some_and(|known| known.contains(name)) => {
                if let Cell::Number(number) = cell {
                    sizes.insert(name, *number);
                }
            }
            (name, _) => {
                let others = match mapping {
                    None => "`operator`, `device`, `threads` and `knob.NAME`".to_owned(),
                    Some(_) => "those of the mapping, `threads` and `knob.NAME`".to_owned(),
                };
                let problem = format!("the column `{}` means nothing here; columns are {others}", excerpt(name));
                return Err(Error::Query(problem));
            }
        }
    }
    let text = text.ok_or_else(|| Error::Query(format!("there is no `{operator_column}`")))?;
    match mapping.filter(|_| !text.contains(':')) {
        Some(mapping) => {
            let work = mapping.work(text, &sizes).map_err(|problem| unreadable(text, problem))?;
            let sizes: Vec<String> = sizes.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let text_whole = format!("{text}:{}", sizes.join(","));
            Ok((Operator { name: text.to_owned(), text: text_whole, work, count: 1 }, setting))
        }
        None => Ok((operator(text, mapping)?, setting)),
    }
}

impl Setting {
    /// Sets a knob by the name of its feature; a word becomes a claim of its own name.
    pub fn set_extra(&mut self, name: &str, cell: &Cell) {
        match cell {
            Cell::Absent => None,
            Cell::Number(number) => self.extras.insert(name.to_owned(), *number),
            Cell::Word(word) => self.extras.insert(format!("{name}={word}"), 1.0),
        };
    }

    /// The same setting with every knob of an operator named, those that are left out as in its default schedule.
    pub fn complete(&self, predictor: &Predictor, operator: &Operator) -> Result<Setting> {
        Ok(Setting { extras: self.schedule(predictor, operator)?.knobs, ..self.clone() })
    }

    /// The schedule that the knobs name.
    fn schedule(&self, predictor: &Predictor, operator: &Operator) -> Result<CompleteSchedule> {
        let device = device(predictor, self)?;
        let schedules = &predictor.operator(&operator.name)?.statistics.schedules;
        let refused = |problem: String| Error::Query(format!("`{}`: {problem}", operator.text));
        schedules.complete(&operator.work, device, &self.extras).map_err(refused)
    }

    /// The same setting as a question is asked: without knobs where they name the default schedule, of which most is known.
    pub fn asked(&self, predictor: &Predictor, operator: &Operator) -> Result<Setting> {
        match self.extras.is_empty() {
            true => Ok(self.clone()),
            false => Ok(Setting { extras: self.schedule(predictor, operator)?.asked(), ..self.clone() }),
        }
    }
}

fn unreadable(text: &str, problem: String) -> Error {
    Error::Query(format!("cannot read the operator `{}`: {problem}", excerpt(text)))
}

/// How a whole model is run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// What the executor takes for each operator, beside the operator's own time.
    pub dispatch_ns: f64,
    /// Share of starting operators that is hidden behind those that run: 0 where each is waited for, 1 where a queue is
    /// always full.
    pub overlap: f64,
}

/// How many threads answers are for, and why so many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssumedThreads {
    /// Threads.
    pub count: f64,
    /// What they are called: `unit` where a device is always taken whole, as a GPU is.
    pub word: &'static str,
    /// Who said so.
    pub from: ThreadsOrigin,
    /// The same in words.
    pub reason: String,
}

/// Who says how many threads answers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadsOrigin {
    /// Who asked.
    Flag,
    /// Nobody, so the default holds.
    Default,
}

/// How many threads answers in a setting are for. Where times are those of this machine, no more than it has CPUs.
pub fn assumed_threads(predictor: &Predictor, setting: &Setting, cpus_here: Option<usize>) -> Result<AssumedThreads> {
    if let Some(count) = setting.threads {
        let reason = "--threads".to_owned();
        return Ok(AssumedThreads { count, word: "thread", from: ThreadsOrigin::Flag, reason });
    }
    let device = device(predictor, setting)?;
    let described = predictor.about.devices.get(device);
    let (Some(units), Some(most)) = (described.map(|device| device.units), predictor.default_threads(device)) else {
        let known = predictor.about.devices.keys().map(String::as_str);
        return Err(Error::unknown("device", device, known));
    };
    let here = cpus_here.map_or(f64::INFINITY, |cpus| cpus as f64);
    let count = most.min(here);
    let mut reason = match () {
        () if count < most => format!("default: all CPUs of this machine, where `{device}` has {units}"),
        () if most < units => format!("default: the most that were learned from, of {units} that `{device}` has"),
        () => format!("default: all of `{device}`"),
    };
    if here.is_finite() && here > count {
        reason.push_str(&format!("; this machine has {here}, of so many nothing was learned"));
    }
    let is_whole = predictor.learned_threads(device).is_some_and(|(least, _)| least > 1.0);
    let word = if is_whole { "unit" } else { "thread" };
    Ok(AssumedThreads { count, word, from: ThreadsOrigin::Default, reason })
}

/// How far off the answers are that a model's time is the sum of, by shapes that were held out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOutErrors {
    /// The mean of the median errors of its operators' kinds, weighted by their times.
    pub weighted_percent: f64,
    /// The share of the time whose error is known.
    pub known_share: f64,
    /// The kind with the largest error.
    pub worst: String,
    /// Its error.
    pub worst_error: CrossValidatedError,
}

/// The errors behind a model's time; nothing where none is known.
pub fn held_out_errors(operators: &[Operator], predictions: &[OperatorPrediction]) -> Option<HeldOutErrors> {
    let time_ns = |one: &OperatorPrediction| one.count as f64 * one.prediction.time_ns;
    let all_ns: f64 = predictions.iter().map(time_ns).sum();
    let known: Vec<(&str, f64, CrossValidatedError)> = operators
        .iter()
        .zip(predictions)
        .filter_map(|(operator, one)| Some((operator.name.as_str(), time_ns(one), one.prediction.held_out?)))
        .collect();
    let known_ns: f64 = known.iter().map(|(_, time_ns, _)| time_ns).sum();
    let weighted: f64 = known.iter().map(|(_, time_ns, error)| time_ns * error.median_percent).sum();
    let worst = known.iter().max_by(|one, other| one.2.median_percent.total_cmp(&other.2.median_percent))?;
    Some(HeldOutErrors {
        weighted_percent: weighted / known_ns,
        known_share: known_ns / all_ns,
        worst: worst.0.to_owned(),
        worst_error: worst.2,
    })
}

/// What a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Total {
    /// The time.
    pub time_ns: f64,
    /// 90 % of measurements should lie between this …
    pub low_ns: f64,
    /// … and this; nothing where an operator has no interval.
    pub high_ns: f64,
    /// Sum of the operators' own times.
    pub operators_ns: f64,
    /// What of it, and of the executor, is starting them.
    pub dispatch_ns: f64,
    /// What of the starting is hidden behind operators that run.
    pub hidden_ns: f64,
    /// Operators that are run.
    pub calls: u64,
    /// What of the time is that of operators outside of what was learned.
    pub extrapolated_ns: f64,
    /// What of it is that of operators of which nothing was learned: their bounds, so the whole takes at least as long.
    pub bounds_ns: f64,
}

/// Adds up the operators of a model.
///
/// Starting operators and running them are two queues: without overlap they take their sum, with full overlap the longer
/// of the two. Errors of operators of one kind are taken to be the same, as one set of trees answers for them; those of
/// different kinds to be independent.
pub fn total(operators: &[Operator], predictions: &[OperatorPrediction], run: &Run) -> Total {
    let (mut starting, mut running, mut calls) = (0.0, 0.0, 0);
    let (mut extrapolated_ns, mut bounds_ns) = (0.0, 0.0);
    let mut halves: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (operator, OperatorPrediction { count, prediction, .. }) in operators.iter().zip(predictions) {
        let times = *count as f64;
        let start = prediction.overhead_ns.min(prediction.time_ns);
        starting += times * (start + run.dispatch_ns);
        running += times * (prediction.time_ns - start);
        calls += count;
        match prediction.basis {
            Basis::Learned => {}
            Basis::Extrapolated => extrapolated_ns += times * prediction.time_ns,
            Basis::Bound => bounds_ns += times * prediction.time_ns,
        }
        let half = halves.entry(&operator.name).or_default();
        half.0 += times * (prediction.time_ns - prediction.low_ns);
        half.1 += times * (prediction.high_ns - prediction.time_ns);
    }
    let hidden_ns = run.overlap * f64::min(starting, running);
    let time_ns = starting + running - hidden_ns;
    let off = |of: fn(&(f64, f64)) -> f64| halves.values().map(|half| of(half).powi(2)).sum::<f64>().sqrt();
    Total {
        time_ns,
        low_ns: (time_ns - off(|half| half.0)).max(0.0),
        high_ns: time_ns + off(|half| half.1),
        operators_ns: starting + running - calls as f64 * run.dispatch_ns,
        dispatch_ns: starting,
        hidden_ns,
        calls,
        extrapolated_ns,
        bounds_ns,
    }
}

/// A model whose operators run in their places: what its sum misses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InPlaceTotal {
    /// All operators in their places.
    pub operators_ns: f64,
    /// That over the same operators alone.
    pub over_alone: f64,
    /// What a run takes beside its operators; nothing where no network was timed as a whole.
    pub beside_ns: Option<f64>,
    /// What it was learned from, and what it is worth.
    pub learned: InPlace,
}

/// What is known of a model's operators in their places on the device that is asked for.
pub fn in_place_total(
    predictor: &Predictor,
    operators: &[Operator],
    predictions: &[OperatorPrediction],
    setting: &Setting,
) -> Result<Option<InPlaceTotal>> {
    let Some(learned) = predictor.about.in_place.get(device(predictor, setting)?) else { return Ok(None) };
    let (mut alone_ns, mut operators_ns, mut calls) = (0.0, 0.0, 0.0);
    for (operator, OperatorPrediction { count, prediction, .. }) in operators.iter().zip(predictions) {
        let times = *count as f64;
        alone_ns += times * prediction.time_ns;
        operators_ns += times * learned.time_ns(&operator.name, prediction.time_ns);
        calls += times;
    }
    let over_alone = if alone_ns > 0.0 { operators_ns / alone_ns } else { 1.0 };
    let beside_ns = learned.beside_call_ns.map(|ns| ns * calls);
    Ok(Some(InPlaceTotal { operators_ns, over_alone, beside_ns, learned: learned.clone() }))
}

/// The operator in a text: a short form such as `conv2d:ci=64,hw=56,co=64,k=3,p=1`, or, with a mapping, one of its
/// operators with the mapping's columns, such as `bmm:B=8,M=128,N=128,K=64`.
pub fn operator(text: &str, mapping: Option<&Mapping>) -> Result<Operator> {
    let wrong = |problem: String| unreadable(text, problem);
    if let Some(mapping) = mapping {
        let (name, sizes) = text.split_once(':').unwrap_or((text, ""));
        let work = numbers(sizes).and_then(|sizes| mapping.work(name, &sizes)).map_err(wrong)?;
        return Ok(Operator { name: name.to_owned(), text: text.to_owned(), work, count: 1 });
    }
    let graph = zoo::simple::build(text).map_err(|error| wrong(error.to_string()))?;
    let mut operators = of_graph(&graph)?;
    match operators.len() {
        1 => Ok(operators.remove(0)),
        count => Err(wrong(format!("it makes {count} tasks, not one"))),
    }
}

/// The operators of a neural network of the zoo.
pub fn model(name: &str, batch: i64) -> Result<Vec<Operator>> {
    let graph = zoo::build(name, batch).map_err(|error| Error::Query(error.to_string()))?;
    of_graph(&graph)
}

/// Where neural networks come from that are not of the zoo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModelSource {
    /// The zoo.
    Local,
    /// A shipped configuration of a transformer, or a folder with a `config.json`.
    Transformers,
    /// An ONNX file.
    Onnx,
    /// A TFLite file.
    Tflite,
    /// A file of PyTorch's exporter.
    Torch,
}

impl ModelSource {
    /// The source of a word, as on the command line.
    pub fn from_name(name: &str) -> Result<ModelSource> {
        <ModelSource as clap::ValueEnum>::from_str(name, false)
            .map_err(|_| Error::unknown("source of models", name, ["local", "transformers", "onnx", "tflite", "torch"]))
    }
}

/// The operators of a neural network of any source; the number of tokens is that of transformers.
pub fn model_of(source: ModelSource, name: &str, batch: i64, tokens: i64) -> Result<Vec<Operator>> {
    of_graph(&graph_of(source, name, batch, tokens)?)
}

/// The graph of a neural network of any source.
pub fn graph_of(source: ModelSource, name: &str, batch: i64, tokens: i64) -> Result<models::Graph> {
    let options = readers::Options { batch, ..readers::Options::default() };
    let file = Path::new(name);
    let graph = match source {
        ModelSource::Local => zoo::build(name, batch),
        ModelSource::Transformers => {
            let options = transformers::Options { batch, sequence: tokens, ..transformers::Options::default() };
            transformers::load(name, &options).map(|loaded| loaded.graph)
        }
        ModelSource::Onnx => readers::onnx::load(file, &options).map(|imported| imported.graph),
        ModelSource::Tflite => readers::tflite::load(file, &options).map(|imported| imported.graph),
        ModelSource::Torch => readers::torch::load(file, &options).map(|imported| imported.graph),
    };
    graph.map_err(|error| Error::Query(error.to_string()))
}

fn of_graph(graph: &models::Graph) -> Result<Vec<Operator>> {
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = passes::simplify(graph).map_err(refused)?;
    models::tasks(&graph, Fuse::Epilogue).map_err(refused)?.iter().map(of_task).collect()
}

/// A task of a neural network.
pub fn of_task(found: &models::TaskUse) -> Result<Operator> {
    let work = work_of(&found.task).map_err(Error::Query)?;
    Ok(Operator {
        name: found.task.kind().to_owned(),
        text: found.task.describe(),
        work,
        count: found.places.len() as u64,
    })
}

/// The numbers in `name=number` pairs with commas between them.
fn numbers(pairs: &str) -> std::result::Result<BTreeMap<&str, f64>, String> {
    let mut numbers = BTreeMap::new();
    for pair in pairs.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not NAME=NUMBER"))?;
        let value = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
        numbers.insert(name.trim(), value);
    }
    Ok(numbers)
}

/// Answers for some operators in one setting, in their order; all or none.
pub fn predict(predictor: &Predictor, operators: &[Operator], setting: &Setting) -> Result<Vec<OperatorPrediction>> {
    let questions: Vec<(Operator, Setting)> =
        operators.iter().map(|operator| (operator.clone(), setting.clone())).collect();
    let predictions = operators.iter().zip(predict_each(predictor, &questions)).map(|(operator, prediction)| {
        prediction.map(|prediction| OperatorPrediction {
            operator: operator.text.clone(),
            count: operator.count,
            prediction,
        })
    });
    predictions.collect()
}

/// Answers for the operators of a whole model at their default schedules: what lies outside of what was learned is
/// extrapolated, and what nothing was learned of is answered by its bound. Both say so.
pub fn predict_model(
    predictor: &Predictor,
    operators: &[Operator],
    setting: &Setting,
) -> Result<Vec<OperatorPrediction>> {
    if !setting.extras.is_empty() {
        let problem =
            "knobs name a schedule of one operator; a model's operators are asked about at their default ones";
        return Err(Error::Query(problem.to_owned()));
    }
    let device = device(predictor, setting)?;
    let is_known = |operator: &Operator| predictor.learned_as(&operator.name, &operator.work).is_some();
    let (known, others): (Vec<&Operator>, Vec<&Operator>) = operators.iter().partition(|operator| is_known(operator));
    let setting = Setting { extrapolate: true, ..setting.clone() };
    let known: Vec<Operator> = known.into_iter().cloned().collect();
    let mut learned = predict(predictor, &known, &setting)?.into_iter();
    let mut bounds = others.into_iter().map(|operator| {
        let (threads, extras) = (setting.threads, &setting.extras);
        predictor.bound(&Query { operator: &operator.name, work: &operator.work, device, threads, extras })
    });
    let answered = |operator: &Operator| match is_known(operator) {
        true => Ok(learned.next().expect("all that are known were asked")),
        false => {
            let prediction = bounds.next().expect("all others have a bound")?;
            Ok(OperatorPrediction { operator: operator.text.clone(), count: operator.count, prediction })
        }
    };
    operators.iter().map(answered).collect()
}

/// Answers for operators in settings of their own; each that cannot be answered has its own error. Knobs that are left out are
/// as in the default schedule.
pub fn predict_each(predictor: &Predictor, questions: &[(Operator, Setting)]) -> Vec<Result<Prediction>> {
    let asked = |(operator, setting): &(Operator, Setting)| {
        let operator = operator.as_learned(predictor);
        let setting = setting.asked(predictor, &operator)?;
        Ok((operator, setting))
    };
    let mut answers = predict_some(predictor, questions.iter().map(asked).collect());
    for (answer, (operator, _)) in answers.iter_mut().zip(questions) {
        let learned_as = operator.as_learned(predictor).name;
        if let (Ok(answer), true) = (answer, learned_as != operator.name) {
            answer.learned_as = Some(learned_as);
        }
    }
    answers
}

/// The same for settings that name every knob: all are answered by what was learned of knobs, the default schedule, too, so that
/// they can be compared.
pub fn predict_schedules(predictor: &Predictor, questions: &[(Operator, Setting)]) -> Vec<Result<Prediction>> {
    let asked =
        |(operator, setting): &(Operator, Setting)| Ok((operator.clone(), setting.complete(predictor, operator)?));
    predict_some(predictor, questions.iter().map(asked).collect())
}

/// Answers for those questions that are any.
fn predict_some(predictor: &Predictor, questions: Vec<Result<(Operator, Setting)>>) -> Vec<Result<Prediction>> {
    let queries: Vec<Option<Result<Query<'_>>>> = questions
        .iter()
        .map(|question| question.as_ref().ok().map(|(operator, setting)| to_query(predictor, operator, setting)))
        .collect();
    let sound: Vec<Query<'_>> = queries.iter().flatten().flatten().cloned().collect();
    let mut predictions = predictor.predict_all(&sound).into_iter();
    let mut prediction =
        |query: Result<Query<'_>>| query.and_then(|_| Ok(predictions.next().expect("all that can be asked were")?));
    let answered: Vec<Option<Result<Prediction>>> =
        queries.into_iter().map(|query| query.map(&mut prediction)).collect();
    let result = |(question, prediction): (Result<(Operator, Setting)>, Option<Result<Prediction>>)| {
        let (operator, setting) = question?;
        let prediction = prediction.expect("what is a question was asked")?;
        match prediction.outside.first().filter(|_| prediction.basis != Basis::Learned && !setting.extrapolate) {
            None => Ok(prediction),
            Some(_) => Err(Error::Query(format!(
                "`{}` is outside of what was learned ({}); measure something like it, or ask to extrapolate",
                operator.text,
                prediction.outside.join("; ")
            ))),
        }
    };
    questions.into_iter().zip(answered).map(result).collect()
}

/// A question as the predictor takes it.
fn to_query<'a>(predictor: &'a Predictor, operator: &'a Operator, setting: &'a Setting) -> Result<Query<'a>> {
    Ok(Query {
        operator: &operator.name,
        work: &operator.work,
        device: device(predictor, setting)?,
        threads: setting.threads,
        extras: &setting.extras,
    })
}

/// Devices of a mapping can be asked about, learned from or not.
pub fn describe_devices(predictor: &mut Predictor, mapping: &Mapping) {
    for (name, device) in mapping.devices() {
        predictor.about.devices.entry(name.clone()).or_insert_with(|| device.clone());
    }
}

/// The device a setting names, or the only one that was learned from.
pub fn device<'a>(predictor: &'a Predictor, setting: &'a Setting) -> Result<&'a str> {
    if let Some(device) = &setting.device {
        return Ok(device);
    }
    let mut known: Vec<&String> =
        predictor.learned.operators.values().flat_map(|operator| operator.statistics.overheads_ns.keys()).collect();
    known.sort_unstable();
    known.dedup();
    match known[..] {
        [one] => Ok(one),
        _ => Err(Error::Query(format!(
            "say which device; learned: {}",
            known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use samples::features::{Form, View};

    #[test]
    fn networks_come_from_every_source() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/readers/tests/tflite-cases/one_layer_int8");
        let kinds = |source: ModelSource, name: &str| {
            let operators = model_of(source, name, 1, 16).expect("a network");
            operators.into_iter().map(|operator| operator.name).collect::<Vec<String>>()
        };
        assert!(kinds(ModelSource::Local, "mobilenet:hw=96").contains(&"depthwise_conv2d".to_owned()));
        assert!(kinds(ModelSource::Transformers, "gpt2:n_layer=1").contains(&"attention".to_owned()));
        for (source, file) in [(ModelSource::Tflite, "model.tflite"), (ModelSource::Onnx, "qdq.onnx")] {
            assert!(kinds(source, &format!("{cases}/{file}")).contains(&"q_conv2d".to_owned()), "{file}");
        }
        let refused = model_of(ModelSource::Torch, "no such file.pt2", 1, 16).expect_err("there is no file");
        assert!(refused.to_string().contains("no such file.pt2"), "{refused}");
    }

    fn asked(times: &[(f64, u64)]) -> (Vec<Operator>, Vec<OperatorPrediction>) {
        let one = |(place, (time_ns, count)): (usize, &(f64, u64))| {
            let name = format!("kind {}", place % 2);
            let work = Work::of_form(Form::Other);
            let prediction = Prediction {
                time_ns: *time_ns,
                low_ns: time_ns * 0.9,
                high_ns: time_ns * 1.1,
                attainable_ns: 1.0,
                overhead_ns: 20.0,
                known: View::Sizes,
                reference_ns: 21.0,
                bound: "memory",
                choice: None,
                learned_as: None,
                threads: 1.0,
                held_out: None,
                basis: Basis::Learned,
                outside: Vec::new(),
            };
            let operator = Operator { name, text: String::new(), work, count: *count };
            (operator, OperatorPrediction { operator: String::new(), count: *count, prediction })
        };
        times.iter().enumerate().map(one).unzip()
    }

    #[test]
    fn the_errors_of_a_model_are_weighted_by_time_and_the_worst_is_named() {
        let (operators, mut predictions) = asked(&[(100.0, 3), (50.0, 2), (100.0, 1)]);
        assert_eq!(held_out_errors(&operators, &predictions), None, "old files do not know");
        let error = |median_percent: f64| CrossValidatedError { median_percent, shapes: 9, rows: 40 };
        predictions[0].prediction.held_out = Some(error(10.0));
        predictions[1].prediction.held_out = Some(error(50.0));
        let found = held_out_errors(&operators, &predictions).expect("two are known");
        assert_eq!((found.weighted_percent, found.known_share), (20.0, 0.8));
        assert_eq!((found.worst.as_str(), found.worst_error), ("kind 1", error(50.0)));
    }

    #[test]
    fn starting_adds_and_hides() {
        let (operators, predictions) = asked(&[(100.0, 2), (50.0, 1)]);
        let of = |dispatch_ns, overlap| total(&operators, &predictions, &Run { dispatch_ns, overlap });
        assert_eq!(of(0.0, 0.0).time_ns, 250.0);
        assert_eq!(of(10.0, 0.0).time_ns, 280.0);
        // Starting takes 60, running 190: all of the starting is hidden.
        assert_eq!(of(0.0, 1.0).time_ns, 190.0);
        // Now starting takes 360, and hides the running.
        assert_eq!(of(100.0, 1.0).time_ns, 360.0);
        // 20 off for one kind, 5 for the other.
        assert!((of(0.0, 0.0).high_ns - 250.0 - 425f64.sqrt()).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_total_lies_between_its_longest_part_and_its_sum(
            times in prop::collection::vec((20.0f64..1e6, 1u64..9), 1..9),
            dispatch_ns in 0.0f64..1e4,
            overlap in 0.0f64..=1.0,
        ) {
            let (operators, predictions) = asked(&times);
            let total = total(&operators, &predictions, &Run { dispatch_ns, overlap });
            let sum = total.operators_ns + dispatch_ns * total.calls as f64;
            prop_assert!(total.time_ns <= sum * (1.0 + 1e-9) && total.time_ns >= sum / 2.0 * (1.0 - 1e-9), "{total:?}");
            prop_assert!(total.low_ns <= total.time_ns && total.time_ns <= total.high_ns);
        }
    }
}
